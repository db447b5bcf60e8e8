"""What several verbs share: decoding settings from the command line, and a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kermit.errors import DecodingError

if TYPE_CHECKING:
    from kermit.rendering import ReadableTrace


def decoding_choices(decoding: str | None, settings: list[str] | None) -> dict[str, Any]:
    """Decoding settings by name from `--decoding` and `--set key=value`, values read as YAML."""
    import yaml

    choices: dict[str, Any] = {} if decoding is None else {"strategy": decoding}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise DecodingError(f"--set {setting}: write it as key=value")
        choices[key] = yaml.safe_load(value)
    return choices


def print_trace(trace: ReadableTrace) -> None:
    """Print the rounds of a decode on stdout, in colour where there is any."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for line in trace.terminal_lines(colour=console.is_terminal):
        console.print(line)


@contextmanager
def progress_bar(total: int, title: str) -> Iterator[Callable[[int], None]]:
    """A bar on stderr while the block runs; yields what to tell how many more are done. Hidden where no one looks."""
    import sys

    from tqdm import tqdm

    with tqdm(total=total, desc=title, file=sys.stderr, disable=None) as bar:

        def advance(count: int) -> None:
            bar.update(count)

        yield advance
