"""Shared by several commands: options, decoding settings, loading a model, and progress."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kermit.cli import completion, logs
from kermit.cli.inputs import InputText, given_pairs
from kermit.errors import DecodingError

if TYPE_CHECKING:
    from kermit.decoding import DecodingSettings
    from kermit.pipeline import Kermit
    from kermit.searcher import ChosenDecoding

Model = Annotated[
    str | None, typer.Option(help="Folder of the model, or its name on the Hub; the bundled model by default.")
]
Input = Annotated[
    Path | None, typer.Option("--input", "-i", help="File with one text per line, plain or .gz; - for stdin.")
]
PairInput = Annotated[
    Path | None,
    typer.Option("--input", "-i", help="File with one text, or one pair separated by a tab, per line; - for stdin."),
]
TextArguments = Annotated[
    list[str] | None, typer.Argument(metavar="TEXT", help="Texts; by default from --input or stdin.")
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file instead of stdout.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip and count invalid lines.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Decoding = Annotated[
    Literal["serial", "parallel", "left_to_right"] | None,
    typer.Option(help="Insert one token per round, one per open slot, or left to right (for models trained for it)."),
]


def set_option(help_: str, known: Callable[..., Any], metavar: str = "KEY=VALUE") -> Any:
    """Return the option `--set`; `known` completes its values."""
    return typer.Option("--set", metavar=metavar, help=help_, autocompletion=known)


Set = Annotated[
    list[str] | None, set_option("Decoding setting, such as top_p=0.9. Repeatable.", completion.decoding_settings)
]
To = Annotated[str, typer.Option("--to", help="Language to translate into.", autocompletion=completion.languages)]
Samples = Annotated[int, typer.Option(min=0, help="Number of samples per text; 0 takes the best tokens instead.")]
X = Annotated[str | None, typer.Option("--x", help="First side of a pair, or a text of that side.")]
Y = Annotated[str | None, typer.Option("--y", help="Second side of a pair, or a text of that side.")]
Side = Annotated[
    str, typer.Option(help="Language of single texts; x and y always work.", autocompletion=completion.languages)
]

BAR_DELAY = 1.0
"""Seconds before a progress bar appears."""


def refuse(context: typer.Context, options: Collection[str], why: str) -> None:
    """Raise if any of these options (``--name``) is on the command line; `why` is the reason and what to do."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if (named := set(parameter.opts) & set(options)) and source is not None and source.name == "COMMANDLINE":
            raise DecodingError(f"{named.pop()} {why}")


NO_DRAW = "has no effect without sampling; remove it, or sample with --set temperature=0.7"
"""Why a seed is rejected."""


@dataclass(frozen=True)
class HowToGenerate:
    """The options of every verb that generates."""

    seed: Annotated[int, typer.Option(help="Seed of the first sample; the others count up from it.")] = 0
    decoding: Decoding = None
    set_: Set = None
    model: Model = None
    trace: Annotated[bool, typer.Option("--trace", help="Show the rounds.")] = False
    output: Output = None
    json_: Json = False


@dataclass(frozen=True)
class TextsOrPairs:
    """The inputs of a verb on texts of either side, or on pairs."""

    texts: TextArguments = None
    x: X = None
    y: Y = None
    input_: PairInput = None
    side: Side = "x"

    def read(self) -> list[InputText]:
        """Read the texts and pairs."""
        return given_pairs(self.texts, self.x, self.y, self.input_)

    def on_y(self, context: typer.Context, kermit: Kermit) -> bool:
        """Return whether single texts belong to the second side: by `--side`, or because only --y is given."""
        if self.x is None and self.y is None:
            return kermit.segment(self.side) == kermit.segment("y")
        refuse(context, ["--side"], "has no effect with --x or --y; remove it")
        return self.x is None


def bundled(verb: Callable[..., None]) -> Callable[..., None]:
    """Expand the dataclass arguments of a verb (see above) into one option per field."""
    options: list[inspect.Parameter] = []
    bundles: dict[str, Any] = {}
    for name, parameter in inspect.signature(verb, eval_str=True).parameters.items():
        if is_dataclass(parameter.annotation):
            bundles[name] = parameter.annotation
            options += inspect.signature(bundles[name], eval_str=True).parameters.values()
        else:
            options.append(parameter)
    options = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]

    @wraps(verb)
    def run(**chosen: Any) -> None:
        made = {
            name: kind(**{one.name: chosen.pop(one.name) for one in fields(kind)}) for name, kind in bundles.items()
        }
        verb(**chosen, **made)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # typer reads this and the types
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def decoding_choices(decoding: str | None, settings: list[str] | None) -> dict[str, Any]:
    """Read decoding settings from `--decoding` and `--set key=value`; values are YAML."""
    import yaml

    choices: dict[str, Any] = {} if decoding is None else {"strategy": decoding}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise DecodingError(f"--set {setting}: write it as key=value")
        if key == "strategy" and decoding is not None:
            raise DecodingError(f"--set {setting} repeats --decoding {decoding}; remove one of them")
        try:
            choices[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise DecodingError(f"--set {setting}: {value!r} is not a YAML value") from error
    return choices


def seedless_choices(decoding: str | None, settings: list[str] | None) -> dict[str, Any]:
    """Read decoding settings for a verb that has `--seed`."""
    choices = decoding_choices(decoding, settings)
    if "seed" in choices:
        raise DecodingError("--set seed: use --seed instead")
    return choices


def settings_of(
    context: typer.Context,
    decoding: str | None,
    chosen: list[str] | None,
    samples: int = 0,
    min_tokens_per_blank: int | None = None,
    max_tokens_per_blank: int | None = None,
) -> DecodingSettings:
    """Return the decoder's settings; samples use the default sampling unless it is set. Refuse a useless `--seed`."""
    from kermit.arguments import settings_from
    from kermit.decoding import Constraints

    settings = settings_from(seedless_choices(decoding, chosen), draws=samples > 0)
    if not settings.draws:
        refuse(context, ["--seed"], NO_DRAW)
    constraints = Constraints(min_tokens_per_blank=min_tokens_per_blank, max_tokens_per_blank=max_tokens_per_blank)
    return replace(settings, constraints=constraints)


def chosen_decoding(
    context: typer.Context, kermit: Kermit, decoding: str | None, chosen: list[str] | None
) -> ChosenDecoding:
    """Return the decoding settings for a model of any family; refuse `--seed` if nothing is sampled."""
    found = kermit.decoding(seedless_choices(decoding, chosen))
    if not getattr(found.settings(), "draws", False):
        refuse(context, ["--seed"], NO_DRAW)
    return found


def load_kermit(model: str | None, threads: int | None = None) -> Kermit:
    """Load a model of any family; show a status on stderr meanwhile, if it is a terminal."""
    status: AbstractContextManager[object] = nullcontext()
    if sys.stderr.isatty() and not logs.spoken.quiet:
        from rich.console import Console

        status = Console(stderr=True).status("loading the model")
    with status:
        from kermit.pipeline import Kermit

        return Kermit.from_pretrained(model, threads=threads)


@contextmanager
def progress_bar(total: int, title: str) -> Iterator[Callable[[int], Any]]:
    """Show a progress bar on stderr while the block runs, if it is a terminal; yield a function that advances it."""
    from tqdm import tqdm

    due = monotonic() + BAR_DELAY

    class Patient(tqdm):  # type: ignore[type-arg]
        """A bar that stays hidden for the first second, also while lines of results are printed."""

        def display(self, msg: str | None = None, pos: int | None = None) -> None:
            if monotonic() >= due:
                super().display(msg, pos)

    hidden = True if logs.spoken.quiet else None
    with Patient(total=total, desc=title, file=sys.stderr, disable=hidden, delay=BAR_DELAY, leave=False) as bar:
        yield bar.update
