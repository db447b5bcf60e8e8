"""`kermit translate --to de "text" ...`: translate texts with a model of any family."""

from __future__ import annotations

from typing import Annotated

import typer

from kermit.cli import logs
from kermit.cli.inputs import chunks, given_texts
from kermit.cli.options import (
    Decoding,
    Input,
    Json,
    Model,
    Output,
    SeedOption,
    Set,
    TraceFlag,
    chosen_decoding,
    load_any,
    progress_bar,
)
from kermit.cli.output import Results, generated, warn_if_cut
from kermit.errors import placed


def translate(
    context: typer.Context,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to translate.", show_default=False)] = None,
    to: Annotated[str, typer.Option("--to", help="Language to translate into.", show_default=False)] = ...,  # type: ignore[assignment]
    input_: Input = None,
    seed: SeedOption = 0,
    decoding: Decoding = None,
    set_: Set = None,
    model: Model = None,
    trace: TraceFlag = False,
    output: Output = None,
    json_: Json = False,
) -> None:
    """Translate texts.

    Example: kermit translate --to de "A dog sleeps in the sun."
    """
    logs.set_up()
    given = given_texts(texts, input_)
    facade = load_any(model)
    settings = chosen_decoding(context, facade, decoding, set_).settings()
    to_y = facade.segment(to) == facade.segment("y")
    done = 0
    with Results(output) as results, progress_bar(len(given), f"to {to}") as progress:
        for chunk in chunks(given):
            seeds = range(seed + done, seed + done + len(chunk))
            with placed([one.place for one in chunk]):
                found = facade.translate(
                    [one.x for one in chunk], to, settings=settings, seeds=seeds, trace=trace, on_progress=progress
                )
            done += len(chunk)
            for one, result in zip(chunk, found, strict=True):
                warn_if_cut(one.place, result.finish)
                text, readable = (result.y or "") if to_y else result.x, facade.readable(result.trace)
                if json_:
                    results.json({"source": one.x, "text": text} | generated(result, readable))
                    continue
                if readable is not None:
                    results.trace(readable)
                results.line(text)
