"""Where results go: to stdout, or to a file that is there under its name only once it is complete."""

from __future__ import annotations

import gzip
import json
import sys
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

import typer

from kermit.errors import DataError, Place

if TYPE_CHECKING:
    from kermit.rendering import Layout, ReadableTrace


class Results:
    """Lines of results, written as they come; use it with `with`.

    A file is written as ``NAME.part`` and takes its name at the end, so a run that was interrupted leaves what it had
    done and no file that looks complete. That a folder is missing shows before the work begins. A file named ``.gz`` is
    packed.

    Args:
        output: the file; stdout where there is none.
    """

    def __init__(self, output: Path | None) -> None:
        self.output = output
        self._target = None if output is None else output.resolve()  # a link stays one
        in_place = self._target is None or (self._target.exists() and not self._target.is_file())  # such as /dev/null
        self._part = None if in_place or self._target is None else self._target.with_name(f"{self._target.name}.part")
        self._stream: IO[str] | None = None

    def __enter__(self) -> Results:
        path = self._part or self._target
        if path is not None and self._target is not None:
            try:
                packed = self._target.suffix == ".gz"
                self._stream = gzip.open(path, "wt", encoding="utf-8") if packed else path.open("w", encoding="utf-8")
            except OSError as error:
                raise DataError(f"--output {self.output}: {error.strerror}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._stream is None:
            return
        self._stream.close()
        if self._part is not None and self._target is not None:
            if kind is None:
                self._part.replace(self._target)
            elif self._part.stat().st_size == 0:
                self._part.unlink()

    def line(self, text: str) -> None:
        """One line; a text's own line breaks are spaces."""
        self.write(text.replace("\n", " ").replace("\r", " ") + "\n")

    def pair(self, x: str, y: str) -> None:
        """Two texts on a line with a tab between, as `kermit.cli.texts` reads them."""
        self.line("\t".join(text.replace("\t", " ") for text in (x, y)))

    def json(self, record: dict[str, Any]) -> None:
        """One JSON object, on a line; a number that is not finite is null, for JSON has no word for it."""
        strange = {key: None for key, value in record.items() if isinstance(value, float) and not isfinite(value)}
        self.write(json.dumps(record | strange, ensure_ascii=False, allow_nan=False) + "\n")

    def write(self, text: str) -> None:
        """Text as it is; a progress bar on the same terminal makes room."""
        from tqdm import tqdm

        if self._stream is not None:
            self._stream.write(text)
            self._stream.flush()
            return
        with tqdm.external_write_mode(file=sys.stdout):
            typer.echo(text, nl=False, color=True)  # which leaves the text as it is

    def trace(self, trace: ReadableTrace, layout: Layout | None = None) -> None:
        """A decode, by its rounds unless another layout is named; in colour where there is any."""
        from rich.console import Console

        from kermit.rendering import Layout

        console = Console(file=self._stream or sys.stdout, highlight=False, soft_wrap=True)
        colour = console.color_system is not None and not console.no_color
        with console.capture() as capture:
            for line in trace.terminal_lines(colour=colour, layout=layout or Layout.ROUNDS):
                console.print(line)
        self.write(capture.get())


def warn_if_cut(place: Place, finish: str) -> None:
    """Say on stderr that a limit ended a text."""
    if finish != "finished":
        from tqdm import tqdm

        with tqdm.external_write_mode(file=sys.stderr):
            typer.echo(f"{place}: ended by {finish}; the text may be incomplete", err=True)


def check_file(option: str, path: Path | None, *, in_new_folder: bool = False) -> None:
    """Whether a file can be put there, before the work begins.

    Args:
        option: what the file was named with.
        path: the file, if one was named.
        in_new_folder: whether the folder that it is to be in may be missing.

    Raises:
        DataError: there is no such folder, or a folder has that name.
    """
    if path is not None and not path.parent.is_dir() and not in_new_folder:
        raise DataError(f"{option} {path}: there is no folder {path.parent}")
    if path is not None and path.is_dir():
        raise DataError(f"{option} {path}: this is a folder; name a file")


def check_folder(option: str, path: Path) -> None:
    """Whether files can be put into a folder, which need not be there yet.

    Raises:
        DataError: a file has that name.
    """
    if path.exists() and not path.is_dir():
        raise DataError(f"{option} {path}: this is a file; name a folder")
