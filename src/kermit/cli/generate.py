"""`kermit infill`, `kermit complete` and `kermit sample`: generate with a KERMIT model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kermit.cli import logs
from kermit.cli.inputs import InputText, asked_apart, chunks, drawn, given_pairs, sides
from kermit.cli.options import (
    NO_DRAW,
    Decoding,
    Json,
    Model,
    Output,
    PairInput,
    Samples,
    SeedOption,
    Set,
    Side,
    TraceFlag,
    X,
    Y,
    is_second_side,
    load_kermit,
    progress_bar,
    refuse,
    settings_of,
)
from kermit.cli.output import Results, generated, warn_if_cut
from kermit.errors import Place

if TYPE_CHECKING:
    from kermit.pipeline import Kermit
    from kermit.results import Generation

Ask = Callable[[Sequence[InputText], Callable[[int], None]], "list[Generation]"]
"""Asks the model about some of the inputs, and reports progress."""


def infill(
    context: typer.Context,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts with blanks of four underscores.")] = None,
    x: X = None,
    y: Y = None,
    input_: PairInput = None,
    side: Side = "x",
    min_tokens_per_blank: Annotated[int, typer.Option(help="Minimum number of tokens per blank.")] = 1,
    max_tokens_per_blank: Annotated[
        int | None, typer.Option(help="Maximum number of tokens per blank.", show_default=False)
    ] = None,
    samples: Samples = 0,
    seed: SeedOption = 0,
    decoding: Decoding = None,
    set_: Set = None,
    model: Model = None,
    trace: TraceFlag = False,
    output: Output = None,
    json_: Json = False,
) -> None:
    """Fill the blanks of texts, or of both sides of a pair; given text is not changed.

    Example: kermit infill "A man ____ a red ____." --samples 3
    """
    logs.set_up()
    settings = settings_of(decoding, set_, samples, min_tokens_per_blank, max_tokens_per_blank)
    if not settings.draws:
        refuse(context, ["--seed"], f"{NO_DRAW} with --samples 1")
    given = drawn(given_pairs(texts, x, y, input_), samples, seed)
    kermit = load_kermit(model)
    on_y = is_second_side(context, kermit, x, y)

    def ask(chunk: Sequence[InputText], advance: Callable[[int], None]) -> list[Generation]:
        seeds = [one.seed for one in chunk]
        return kermit.infill(*sides(chunk, on_y=on_y), settings=settings, seeds=seeds, trace=trace, on_progress=advance)

    produce(kermit, given, ask, output, json_, one_side="y" if on_y else "x", seeded=samples > 0)


def complete(
    context: typer.Context,
    x: X = None,
    y: Y = None,
    input_: PairInput = None,
    samples: Samples = 1,
    seed: SeedOption = 0,
    decoding: Decoding = None,
    set_: Set = None,
    model: Model = None,
    trace: TraceFlag = False,
    output: Output = None,
    json_: Json = False,
) -> None:
    """Complete pairs from fragments: text is inserted at ... or ____, and a side that is left out is written whole.

    Example: kermit complete --x "A man ..." --y "... Fahrrad." --samples 3
    """
    logs.set_up()
    settings = settings_of(decoding, set_, samples)
    if not settings.draws:
        refuse(context, ["--seed"], f"{NO_DRAW} with --samples 1")
    given = drawn(given_pairs(None, x, y, input_, alone=False), samples, seed)
    kermit = load_kermit(model)

    def ask(chunk: Sequence[InputText], advance: Callable[[int], None]) -> list[Generation]:
        seeds = [one.seed for one in chunk]
        pairs = sides(chunk, on_y=False)
        return kermit.complete(*pairs, settings=settings, seeds=seeds, trace=trace, on_progress=advance)

    produce(kermit, given, ask, output, json_, seeded=samples > 0)


def sample(
    context: typer.Context,
    segment: Annotated[str, typer.Option(help="Both, or a language; x and y always work.")] = "both",
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="Number of samples.")] = 1,
    seed: SeedOption = 0,
    decoding: Decoding = None,
    set_: Set = None,
    model: Model = None,
    trace: TraceFlag = False,
    output: Output = None,
    json_: Json = False,
) -> None:
    """Sample texts: pairs, or one side only.

    Example: kermit sample -n 5 --set temperature=0.8
    """
    logs.set_up()
    settings = settings_of(decoding, set_, count)
    if not settings.draws:
        refuse(context, ["--seed"], f"{NO_DRAW} with --set temperature=0.7")
        if count > 1:
            refuse(context, ["--count"], f"{NO_DRAW} with --set temperature=0.7")
    kermit = load_kermit(model)
    one_side = None if segment == "both" else "xy"[kermit.segment(segment)]
    given = drawn([InputText("", "" if one_side is None else None, Place("the sample"))], count, seed)

    def ask(chunk: Sequence[InputText], advance: Callable[[int], None]) -> list[Generation]:
        return kermit.sample(
            len(chunk), segment=segment, seed=chunk[0].seed, settings=settings, trace=trace, on_progress=advance
        )

    produce(kermit, given, ask, output, json_, one_side=one_side, seeded=True)


def produce(
    kermit: Kermit,
    given: Sequence[InputText],
    ask: Ask,
    output: Any,
    as_json: bool,
    *,
    one_side: str | None = None,
    seeded: bool,
) -> None:
    """Generate for all inputs with `ask`, and write one line or JSON object per result as it comes.

    Single texts show only `one_side`, x or y; `seeded` adds the seed to JSON.
    """
    with Results(output) as results, progress_bar(len(given), "generating") as advance:
        for chunk in chunks(given):
            found = asked_apart(chunk, lambda part: ask(part, advance))
            for one, result in zip(chunk, found, strict=True):
                warn_if_cut(one.place, result.finish)
                names = ("x", "y") if one.y is not None or one_side is None else (one_side,)
                trace = kermit.readable(result.trace)
                if as_json:
                    sides_of = {name: getattr(result, name) for name in names}
                    drawn_with = {"seed": one.seed} if seeded else {}
                    results.json(sides_of | generated(result, trace) | drawn_with)
                    continue
                if trace is not None:
                    results.trace(trace)
                texts = [getattr(result, name) or "" for name in names]
                results.pair(*texts) if len(texts) == 2 else results.line(*texts)
