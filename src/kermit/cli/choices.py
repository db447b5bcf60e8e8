"""What several verbs share: options by their meaning, decoding settings, a model at hand, and progress."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kermit.cli import logs
from kermit.errors import DecodingError

if TYPE_CHECKING:
    from kermit.decoding import DecodingSettings
    from kermit.pipeline import Kermit

Model = Annotated[
    Path | None, typer.Option(help="Folder of the model; the bundled one by default.", show_default=False)
]
Input = Annotated[
    Path | None,
    typer.Option("--input", "-i", help="A file with a text a line, or .gz; - for stdin.", show_default=False),
]
PairInput = Annotated[
    Path | None,
    typer.Option(
        "--input",
        "-i",
        help="A file with a text a line, or a pair with a tab between; - for stdin.",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write there instead of to stdout.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="A JSON object a line.")]
Decoding = Annotated[
    Literal["serial", "parallel", "left_to_right"] | None,
    typer.Option(
        help="One token per round, one at every open slot, or each blank from left to right, if trained for it.",
        show_default=False,
    ),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A decoding setting, such as top_p=0.9.")
]
Precision = Annotated[
    Literal["float32", "bfloat16", "float16"], typer.Option(help="Of the weights and the arithmetic.")
]
Samples = Annotated[int, typer.Option(min=0, help="Draw so many instead of taking the best; 0 takes the best.")]
Seed = Annotated[int, typer.Option(help="The first draw's seed; the others follow.")]
Trace = Annotated[bool, typer.Option("--trace", help="Show the rounds.")]
X = Annotated[str | None, typer.Option("--x", help="The first side of a pair, or a text of it.", show_default=False)]
Y = Annotated[str | None, typer.Option("--y", help="The second side of a pair, or a text of it.", show_default=False)]
Side = Annotated[str, typer.Option(help="The language of texts that are no pairs; x and y always work.")]

BAR_DELAY = 1.0
"""Seconds before a progress bar appears: what is done by then needs none."""


def refuse(context: typer.Context, options: Collection[str], why: str) -> None:
    """Raise where options were given that would do nothing.

    Args:
        context: of the verb.
        options: which, as ``--name``.
        why: why they would do nothing, and what to do.
    """
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if (named := set(parameter.opts) & set(options)) and source is not None and source.name == "COMMANDLINE":
            raise DecodingError(f"{named.pop()} {why}")


NO_DRAW = "is for draws, and the best tokens are taken; leave it out, or draw"
"""Why a seed may do nothing."""


def is_second_side(context: typer.Context, kermit: Kermit, x: str | None, y: str | None) -> bool:
    """Whether texts that are no pairs are of the second side: as `--side` says, or --y where it stands alone."""
    if x is None and y is None:
        return kermit.segment(context.params["side"]) == kermit.segment("y")
    refuse(context, ["--side"], "is for texts, and --x and --y say it themselves; leave it out")
    return x is None


def decoding_choices(decoding: str | None, settings: list[str] | None) -> dict[str, Any]:
    """Decoding settings by name from `--decoding` and `--set key=value`, values read as YAML."""
    import yaml

    choices: dict[str, Any] = {} if decoding is None else {"strategy": decoding}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise DecodingError(f"--set {setting}: write it as key=value")
        if key == "strategy" and decoding is not None:
            raise DecodingError(f"--set {setting}: --decoding {decoding} says it already; leave one of them out")
        try:
            choices[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise DecodingError(f"--set {setting}: {value!r} is no YAML value") from error
    return choices


def settings_of(
    decoding: str | None,
    chosen: list[str] | None,
    samples: int = 0,
    min_tokens_per_blank: int = 0,
    max_tokens_per_blank: int | None = None,
) -> DecodingSettings:
    """The decoder's settings from the command line; samples are drawn at 0.7 unless another temperature is set."""
    from dataclasses import replace

    from pydantic import ValidationError

    from kermit.decoding import DRAWING_TEMPERATURE, Constraints
    from kermit.tasks.families import InsertionDecoding

    choices = decoding_choices(decoding, chosen)
    if samples:
        choices.setdefault("temperature", DRAWING_TEMPERATURE)
    known = sorted(set(InsertionDecoding.model_fields) - {"batch_size", "seed"})  # those two are options or no matter
    for key in choices:
        if key not in known:
            raise DecodingError(f"--set {key}: there is no such decoding setting; known: {', '.join(known)}")
    try:
        settings = InsertionDecoding(**choices).build()
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"])
        raise DecodingError(f"decoding setting {key!r}: {problem['msg']}; known: {', '.join(known)}") from error
    constraints = Constraints(min_tokens_per_blank=min_tokens_per_blank, max_tokens_per_blank=max_tokens_per_blank)
    return replace(settings, constraints=constraints)


def load_kermit(model: Path | None) -> Kermit:
    """The pipeline of a model folder, or of the bundled model.

    Raises:
        ModelError: there is no model, or one of another family.
    """
    with loading():
        from kermit.folders import named_or_bundled
        from kermit.pipeline import Kermit

        return Kermit.from_pretrained(named_or_bundled(model))


def loading() -> AbstractContextManager[object]:
    """A word on stderr while libraries and weights are read, which may take seconds; hidden where no one looks."""
    import sys

    if logs.spoken.quiet or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("reading the model")


@contextmanager
def progress_bar(total: int, title: str) -> Iterator[Callable[[int], None]]:
    """A bar on stderr while the block runs; yields what to tell how many more are done. Hidden where no one looks."""
    import sys
    from time import monotonic

    from tqdm import tqdm

    due = monotonic() + BAR_DELAY

    class Patient(tqdm):  # type: ignore[type-arg]
        """A bar that also waits when it is asked to make room for a line of results."""

        def display(self, msg: str | None = None, pos: int | None = None) -> None:
            if monotonic() >= due:
                super().display(msg, pos)

    hidden = True if logs.spoken.quiet else None
    with Patient(total=total, desc=title, file=sys.stderr, disable=hidden, delay=BAR_DELAY, leave=False) as bar:

        def advance(count: int) -> None:
            bar.update(count)

        yield advance
