"""`kermit infill`, `kermit complete` and `kermit sample`: generating with a KERMIT model other than by translating."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kermit.cli import logs
from kermit.errors import DataError, ModelError

if TYPE_CHECKING:
    from kermit.decoding import DecodingSettings
    from kermit.pipeline import Kermit
    from kermit.results import Generation

Model = Annotated[Path | None, typer.Option(help="Folder of the model; the bundled one by default.")]
Decoding = Annotated[str | None, typer.Option(help="serial or parallel.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A decoding setting, such as top_p=0.9.")
]
Samples = Annotated[int, typer.Option(help="Draw so many instead of taking the best; 0 takes the best.")]
Seed = Annotated[int, typer.Option(help="The first draw's seed; the others follow.")]
Trace = Annotated[bool, typer.Option("--trace", help="Show the rounds.")]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")]
Text = Annotated[str | None, typer.Option(show_default=False)]


def infill(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts with blanks of four underscores.")] = None,
    x: Text = None,
    y: Text = None,
    side: Annotated[str, typer.Option(help="The language of the texts; the model's first by default.")] = "x",
    min_tokens_per_blank: Annotated[int, typer.Option(help="Insert at least so many tokens.")] = 0,
    max_tokens_per_blank: Annotated[int | None, typer.Option(help="Insert at most so many tokens.")] = None,
    samples: Samples = 0,
    seed: Seed = 0,
    model: Model = None,
    decoding: Decoding = None,
    set_: SetOption = None,
    trace: Trace = False,
    json_: Json = False,
) -> None:
    """Fill the blanks of texts, or of both sides of a pair (--x, --y); what is given stays as it is."""
    logs.set_up()
    if bool(texts) == (x is not None or y is not None):
        raise DataError("give texts with blanks, or a pair with --x and --y; one of the two")
    kermit = load(model)
    if texts:
        of_x = kermit.segment(side) == kermit.segment("x")
        pairs = [(text, None) if of_x else ("", text) for text in texts]
    else:
        pairs = [(x or "", y or "")]
    settings = settings_of(decoding, set_, samples, min_tokens_per_blank, max_tokens_per_blank)
    pairs = [pair for pair in pairs for _ in range(max(1, samples))]
    seeds = [seed + number % max(1, samples) for number in range(len(pairs))]
    two_sided = pairs[0][1] is not None
    found = kermit.infill(
        [first for first, _ in pairs],
        [second or "" for _, second in pairs] if two_sided else None,
        settings=settings,
        seeds=seeds,
        trace=trace,
    )
    show(kermit, found, json_)


def complete(
    x: Annotated[str, typer.Option(help="A fragment of the first side.")] = "",
    y: Annotated[str, typer.Option(help="A fragment of the second side.")] = "",
    samples: Samples = 1,
    seed: Seed = 0,
    model: Model = None,
    decoding: Decoding = None,
    set_: SetOption = None,
    trace: Trace = False,
    json_: Json = False,
) -> None:
    """Complete a pair from fragments on both sides, inserting anywhere."""
    logs.set_up()
    kermit = load(model)
    count = max(1, samples)
    settings = settings_of(decoding, set_, samples)
    found = kermit.complete([x] * count, [y] * count, settings=settings, seeds=range(seed, seed + count), trace=trace)
    show(kermit, found, json_)


def sample(
    segment: Annotated[str, typer.Option(help="both, or a language (x and y always work).")] = "both",
    count: Annotated[int, typer.Option("-n", "--count", help="How many.")] = 1,
    seed: Seed = 0,
    model: Model = None,
    decoding: Decoding = None,
    set_: SetOption = None,
    trace: Trace = False,
    json_: Json = False,
) -> None:
    """Draw texts from nothing: pairs, or one side alone."""
    logs.set_up()
    kermit = load(model)
    settings = settings_of(decoding, set_, 1)
    found = kermit.sample(count, segment=segment, seed=seed, settings=settings, trace=trace)
    show(kermit, found, json_, segment)


def load(model: Path | None) -> Kermit:
    """The pipeline of a model folder, or of the bundled model."""
    from kermit.pipeline import Kermit
    from kermit.tasks.translator import bundled_model, model_folder

    folder = bundled_model() if model is None else model_folder(model)
    if folder is None:
        raise ModelError("no model is bundled with this installation; name one with --model")
    return Kermit.from_pretrained(folder, progress=True)


def settings_of(
    decoding: str | None,
    chosen: list[str] | None,
    samples: int,
    min_tokens_per_blank: int = 0,
    max_tokens_per_blank: int | None = None,
) -> DecodingSettings:
    """The decoder's settings from the command line; with samples, tokens are drawn at temperature 1 unless said."""
    from dataclasses import replace

    from pydantic import ValidationError

    from kermit.cli.choices import decoding_choices
    from kermit.decoding import Constraints
    from kermit.errors import DecodingError
    from kermit.tasks.families import InsertionDecoding

    choices: dict[str, Any] = decoding_choices(decoding, chosen)
    if samples and not {"temperature", "top_k", "top_p"} & set(choices):
        choices["temperature"] = 1.0
    try:
        settings = InsertionDecoding(**choices).build()
    except ValidationError as error:
        problem = error.errors()[0]
        known = ", ".join(InsertionDecoding.model_fields)
        key = ".".join(str(part) for part in problem["loc"])
        raise DecodingError(f"decoding setting {key!r}: {problem['msg']}; known: {known}") from error
    constraints = Constraints(min_tokens_per_blank=min_tokens_per_blank, max_tokens_per_blank=max_tokens_per_blank)
    return replace(settings, constraints=constraints)


def show(kermit: Kermit, found: list[Generation], as_json: bool, segment: str = "both") -> None:
    """Print what came, a line each or a JSON object a line; a trace above the text it led to."""
    import json

    from kermit.cli.choices import print_trace

    one_side = None if segment == "both" else kermit.segment(segment)
    for result in found:
        if as_json:
            typer.echo(json.dumps(record(kermit, result, one_side), ensure_ascii=False))
            continue
        if (trace := kermit.readable(result.trace)) is not None:
            print_trace(trace)
        sides = [text for number, text in enumerate((result.x, result.y)) if one_side in (None, number) and text]
        typer.echo("\t".join(text.replace("\n", " ") for text in sides))


def record(kermit: Kermit, result: Generation, one_side: int | None) -> dict[str, Any]:
    """A result as plain data; a side that was not asked for is left out."""
    out: dict[str, Any] = {}
    for number, name in enumerate(("x", "y")):
        if one_side in (None, number) and getattr(result, name) is not None:
            out[name] = getattr(result, name)
    out |= {"rounds": result.rounds, "tokens": result.tokens, "log_prob": result.log_prob, "finish": str(result.finish)}
    if (trace := kermit.readable(result.trace)) is not None:
        out["trace"] = trace.to_json()
    return out
