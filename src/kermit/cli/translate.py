"""`kermit translate --to de "text" ...`: translate texts with a model of any family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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
    To,
    TraceFlag,
    chosen_decoding,
    load_kermit,
    progress_bar,
)
from kermit.cli.output import Results, generated, warn_if_cut
from kermit.errors import placed

if TYPE_CHECKING:
    from kermit.pipeline import Kermit
    from kermit.results import Generation


def translate(
    context: typer.Context,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to translate.", show_default=False)] = None,
    to: To = ...,  # type: ignore[assignment]
    input_: Input = None,
    seed: SeedOption = 0,
    decoding: Decoding = None,
    set_: Set = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Translate texts whole instead of sentence by sentence.")
    ] = False,
    model: Model = None,
    trace: TraceFlag = False,
    output: Output = None,
    json_: Json = False,
) -> None:
    """Translate texts, those of several sentences sentence by sentence.

    Example: kermit translate --to de "A dog sleeps in the sun."
    """
    logs.set_up()
    given = given_texts(texts, input_)
    kermit = load_kermit(model)
    settings = chosen_decoding(context, kermit, decoding, set_).settings()
    to_y = kermit.segment(to) == kermit.segment("y")
    done = 0
    with Results(output) as results, progress_bar(len(given), f"to {to}") as progress:
        for chunk in chunks(given):
            seeds = range(seed + done, seed + done + len(chunk))
            with placed([one.place for one in chunk]):
                found = kermit.translate(
                    [one.x for one in chunk],
                    to,
                    split_sentences=not whole,
                    settings=settings,
                    seeds=seeds,
                    trace=trace,
                    on_progress=progress,
                )
            done += len(chunk)
            for one, result in zip(chunk, found, strict=True):
                warn_if_cut(one.place, result.finish)
                if json_:
                    results.json(record(kermit, result, to_y=to_y))
                    continue
                for part in result.sentences or [result]:
                    if (readable := kermit.readable(part.trace)) is not None:
                        results.trace(readable)
                results.line((result.y or "") if to_y else result.x)


def record(kermit: Kermit, result: Generation, *, to_y: bool) -> dict[str, Any]:
    """Return a translation as plain data; of several sentences, with those of each."""
    source, text = (result.x, result.y) if to_y else (result.y, result.x)
    found = {"source": source, "text": text} | generated(result, kermit.readable(result.trace))
    sentences = [record(kermit, sentence, to_y=to_y) for sentence in result.sentences]
    return found | ({"sentences": sentences} if sentences else {})
