"""`kermit infill`, `kermit complete` and `kermit sample`: generating with a KERMIT model other than by translating."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kermit.cli import logs
from kermit.cli.choices import (
    NO_DRAW,
    Decoding,
    Json,
    Model,
    Output,
    PairInput,
    Samples,
    Seed,
    Set,
    Side,
    Trace,
    X,
    Y,
    is_second_side,
    load_kermit,
    progress_bar,
    refuse,
    settings_of,
)
from kermit.cli.results import Results, warn_if_cut
from kermit.cli.texts import Given, asked_apart, check_blanks, chunks, drawn, read_pairs, sides
from kermit.errors import Place

if TYPE_CHECKING:
    from kermit.pipeline import Kermit
    from kermit.results import Generation

Ask = Callable[[Sequence[Given], Callable[[int], None]], "list[Generation]"]
"""Asks the pipeline about some of what was given, and tells how many are done."""


def infill(
    context: typer.Context,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts with blanks of four underscores.")] = None,
    x: X = None,
    y: Y = None,
    input_: PairInput = None,
    side: Side = "x",
    min_tokens_per_blank: Annotated[int, typer.Option(help="Insert at least so many tokens.")] = 1,
    max_tokens_per_blank: Annotated[
        int | None, typer.Option(help="Insert at most so many tokens.", show_default=False)
    ] = None,
    samples: Samples = 0,
    seed: Seed = 0,
    decoding: Decoding = None,
    set_: Set = None,
    model: Model = None,
    trace: Trace = False,
    output: Output = None,
    json_: Json = False,
) -> None:
    """Fill the blanks of texts, or of both sides of a pair; what is given stays as it is.

    Example: kermit infill "A man ____ a red ____." --samples 3
    """
    logs.set_up()
    settings = settings_of(decoding, set_, samples, min_tokens_per_blank, max_tokens_per_blank)
    if not settings.draws:
        refuse(context, ["--seed"], f"{NO_DRAW} with --samples 1")
    given = drawn(read_pairs(texts, x, y, input_), samples, seed)
    check_blanks(given)
    kermit = load_kermit(model)
    on_y = is_second_side(context, kermit, x, y)

    def ask(chunk: Sequence[Given], advance: Callable[[int], None]) -> list[Generation]:
        seeds = [one.seed for one in chunk]
        return kermit.infill(*sides(chunk, on_y=on_y), settings=settings, seeds=seeds, trace=trace, on_progress=advance)

    produce(kermit, given, ask, output, json_, one_side="y" if on_y else "x", seeded=samples > 0)


def complete(
    context: typer.Context,
    x: X = None,
    y: Y = None,
    input_: PairInput = None,
    samples: Samples = 1,
    seed: Seed = 0,
    decoding: Decoding = None,
    set_: Set = None,
    model: Model = None,
    trace: Trace = False,
    output: Output = None,
    json_: Json = False,
) -> None:
    """Complete pairs from fragments on both sides, inserting anywhere.

    Example: kermit complete --x "A man" --y "Fahrrad." --samples 3
    """
    logs.set_up()
    settings = settings_of(decoding, set_, samples)
    if not settings.draws:
        refuse(context, ["--seed"], f"{NO_DRAW} with --samples 1")
    given = drawn(read_pairs(None, x, y, input_, alone=False), samples, seed)
    kermit = load_kermit(model)

    def ask(chunk: Sequence[Given], advance: Callable[[int], None]) -> list[Generation]:
        firsts, seconds = [one.x for one in chunk], [one.y or "" for one in chunk]
        seeds = [one.seed for one in chunk]
        return kermit.complete(firsts, seconds, settings=settings, seeds=seeds, trace=trace, on_progress=advance)

    produce(kermit, given, ask, output, json_, seeded=samples > 0)


def sample(
    context: typer.Context,
    segment: Annotated[str, typer.Option(help="both, or a language (x and y always work).")] = "both",
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many.")] = 1,
    seed: Seed = 0,
    decoding: Decoding = None,
    set_: Set = None,
    model: Model = None,
    trace: Trace = False,
    output: Output = None,
    json_: Json = False,
) -> None:
    """Draw texts from nothing: pairs, or one side alone.

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
    given = drawn([Given("", "" if one_side is None else None, Place("the sample"))], count, seed)

    def ask(chunk: Sequence[Given], advance: Callable[[int], None]) -> list[Generation]:
        return kermit.sample(
            len(chunk), segment=segment, seed=chunk[0].seed, settings=settings, trace=trace, on_progress=advance
        )

    produce(kermit, given, ask, output, json_, one_side=one_side, seeded=True)


def produce(
    kermit: Kermit,
    given: Sequence[Given],
    ask: Ask,
    output: Any,
    as_json: bool,
    *,
    one_side: str | None = None,
    seeded: bool,
) -> None:
    """Ask about everything that was given and write what comes, a line or a JSON object each, as it comes.

    Args:
        kermit: the pipeline.
        given: what to ask about.
        ask: how.
        output: the file for the results.
        as_json: whether to write JSON.
        one_side: the side to show, x or y, of what is no pair.
        seeded: whether something is drawn, so that the seed is worth knowing.
    """
    with Results(output) as results, progress_bar(len(given), "generating") as advance:
        for chunk in chunks(given):
            found = asked_apart(chunk, lambda part: ask(part, advance))
            for one, result in zip(chunk, found, strict=True):
                warn_if_cut(one.place, result.finish)
                names = ("x", "y") if one.y is not None or one_side is None else (one_side,)
                if as_json:
                    results.json(record(kermit, result, names) | ({"seed": one.seed} if seeded else {}))
                    continue
                if (trace := kermit.readable(result.trace)) is not None:
                    results.trace(trace)
                texts = [getattr(result, name) or "" for name in names]
                results.pair(*texts) if len(texts) == 2 else results.line(*texts)


def record(kermit: Kermit, result: Generation, names: Sequence[str]) -> dict[str, Any]:
    """A result as plain data, with the sides that were asked for."""
    out: dict[str, Any] = {name: getattr(result, name) for name in names}
    out |= {"rounds": result.rounds, "tokens": result.tokens, "log_prob": result.log_prob, "finish": str(result.finish)}
    if (trace := kermit.readable(result.trace)) is not None:
        out["trace"] = trace.to_json()
    return out
