"""`kermit trace`: show a decode as a picture, still or moving, a web page, text or JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kermit.cli import completion, logs
from kermit.cli.inputs import InputText, given_lines, given_texts, sides
from kermit.cli.options import (
    NO_DRAW,
    Decoding,
    Input,
    Model,
    Output,
    Set,
    Side,
    X,
    Y,
    chosen_decoding,
    load_kermit,
    progress_bar,
    refuse,
    settings_of,
)
from kermit.cli.output import Results
from kermit.errors import DataError, Place, placed

if TYPE_CHECKING:
    from kermit.decoding import DecodingSettings
    from kermit.rendering import Layout, ReadableTrace

FORMATS = {
    ".html": "html",
    ".htm": "html",
    ".svg": "svg",
    ".png": "png",
    ".pdf": "pdf",
    ".gif": "gif",
    ".json": "json",
    ".jsonl": "json",
    ".txt": "text",
}
"""The format of an output file by its suffix, unless --format is given."""

BINARY = ("png", "pdf", "gif")
"""Formats that need a file: they are not written to stdout."""


def trace(
    context: typer.Context,
    texts: Annotated[list[str] | None, typer.Argument(help="What to translate.", show_default=False)] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="Language to translate into.", show_default=False, autocompletion=completion.languages
        ),
    ] = None,
    input_: Input = None,
    infill: Annotated[str | None, typer.Option(help="Fill the blanks of this text.", show_default=False)] = None,
    side: Side = "x",
    x: X = None,
    y: Y = None,
    from_: Annotated[
        Path | None,
        typer.Option("--from", help="Show what --json --trace of another verb wrote; - for stdin.", show_default=False),
    ] = None,
    format_: Annotated[
        Literal["html", "svg", "png", "pdf", "gif", "json", "text"] | None,
        typer.Option("--format", "-f", help="By the suffix of the output by default, else text.", show_default=False),
    ] = None,
    layout: Annotated[
        Literal["rounds", "tree", "animated"] | None,
        typer.Option(
            help="Rounds from top to bottom, the insertion tree, or moving words (SVG, HTML, GIF).",
            show_default="rounds",
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Title of the picture; by default what was done.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed: of a completed pair, or of anything sampled.")] = 0,
    decoding: Decoding = None,
    set_: Set = None,
    model: Model = None,
    output: Output = None,
) -> None:
    """Show a decode round by round: a translation (--to), an infilling (--infill) or a completed pair (--x, --y).

    Example: kermit trace --to de "A dog sleeps in the sun." --layout tree --output decode.svg
    """
    asked = {"--to": to, "--infill": infill, "--x or --y": x if x is not None else y, "--from": from_}
    named = [name for name, value in asked.items() if value is not None]
    if len(named) != 1:
        raise DataError(f"say what to trace: one of {', '.join(asked)}, not {' and '.join(named) or 'none of them'}")
    if to is None and (texts or input_ is not None):
        raise DataError("texts need --to LANGUAGE; add it, or leave them out")
    if infill is None:
        refuse(context, ["--side"], "applies only to --infill; leave it out")
    chosen = format_ or format_of(output)
    logs.set_up()
    if from_ is not None:
        decided = ["--model", "--decoding", "--set", "--seed"]
        refuse(context, decided, "has no effect with --from, which shows a finished decode; leave it out")
        traces = read_traces(from_)
    else:
        draws = x is not None or y is not None
        settings = settings_of(
            decoding, set_, samples=1 if draws else 0, min_tokens_per_blank=0 if infill is None else 1
        )
        if not settings.draws:
            refuse(context, ["--seed"], f"{NO_DRAW} with --set temperature=0.7")
        if to is not None:
            traces = translations(context, texts, input_, to, seed, decoding, set_, model)
        else:
            traces = generations(infill, side, x, y, seed, settings, model)
    write(traces, chosen, layout, title, output)


def format_of(output: Path | None) -> str:
    """Return the format for the name of an output file; text if the name has no suffix."""
    suffix = "" if output is None else Path(output.name.removesuffix(".gz")).suffix.lower()
    if suffix and suffix not in FORMATS:
        raise DataError(f"--output {output}: unknown suffix; known: {', '.join(FORMATS)}; or give --format")
    return FORMATS.get(suffix, "text")


def translations(
    context: typer.Context,
    texts: list[str] | None,
    input_: Path | None,
    to: str,
    seed: int,
    decoding: str | None,
    set_: list[str] | None,
    model: str | None,
) -> list[ReadableTrace]:
    """Trace translations."""
    given = given_texts(texts, input_)
    kermit = load_kermit(model)
    settings, seeds = chosen_decoding(context, kermit, decoding, set_).settings(), range(seed, seed + len(given))
    texts = [one.x for one in given]
    with progress_bar(len(given), f"to {to}") as progress, placed([one.place for one in given]):
        found = kermit.translate(
            texts, to, split_sentences=False, settings=settings, seeds=seeds, trace=True, on_progress=progress
        )
    readable = [kermit.readable(result.trace) for result in found]
    return [trace for trace in readable if trace is not None]


def generations(
    infill: str | None,
    side: str,
    x: str | None,
    y: str | None,
    seed: int,
    settings: DecodingSettings,
    model: str | None,
) -> list[ReadableTrace]:
    """Trace an infilling, or a pair that is completed from fragments."""
    if infill is None:
        given = [InputText(x or "", y or "", Place("the pair"))]
    else:
        given = [InputText(infill, None, Place("--infill"))]
    kermit = load_kermit(model)
    on_y = kermit.segment(side) == kermit.segment("y")
    with placed([one.place for one in given]):
        if infill is None:
            found = kermit.complete([x or ""], [y or ""], settings=settings, seeds=[seed], trace=True)
        else:
            found = kermit.infill(*sides(given, on_y=on_y), settings=settings, seeds=[seed], trace=True)
    readable = [kermit.readable(result.trace) for result in found]
    return [trace for trace in readable if trace is not None]


def read_traces(path: Path) -> list[ReadableTrace]:
    """Read traces from JSON lines, each a result with its trace, or a trace."""
    from kermit.rendering import ReadableTrace

    traces = []
    for line in given_lines(path, "--from"):
        if not line.x.strip():
            continue
        try:
            record = json.loads(line.x)
        except ValueError as error:
            raise DataError(f"not a JSON object: {error}", place=line.place) from error
        if not isinstance(record, dict):
            raise DataError(f"not a JSON object, but a {type(record).__name__}", place=line.place)
        try:
            traces.append(ReadableTrace.from_json(record.get("trace", record)))
        except DataError as error:
            error.place = line.place
            raise
    return traces


def write(traces: list[ReadableTrace], chosen: str, layout: str | None, title: str | None, output: Path | None) -> None:
    """Write decodes in a format; a picture holds only one."""
    from kermit.rendering import Layout, page

    laid_out = Layout(layout or ("animated" if chosen == "gif" else "rounds"))
    check(traces, chosen, laid_out, title, output)
    if chosen in BINARY:
        assert output is not None
        drawn = {
            "png": lambda: traces[0].png(laid_out, title=title),
            "pdf": lambda: traces[0].pdf(laid_out, title=title),
            "gif": lambda: traces[0].gif(title=title),
        }[chosen]()
        try:
            output.write_bytes(drawn)
        except OSError as error:
            raise DataError(f"--output {output}: {error.strerror}") from error
        return
    with Results(output) as results:
        match chosen:
            case "svg":
                results.write(traces[0].svg(laid_out, title=title))
            case "html":
                results.write(page(traces, laid_out, title=title))
            case "json":
                for trace in traces:
                    results.json({"trace": trace.to_json(laid_out)})
            case _:
                for trace in traces:
                    results.trace(trace, laid_out)


def check(traces: list[ReadableTrace], chosen: str, layout: Layout, title: str | None, output: Path | None) -> None:
    """Raise if what was asked for cannot be written."""
    animated = layout == "animated"
    if not traces:
        raise DataError("no text to trace; give one")
    if chosen in ("svg", *BINARY) and len(traces) > 1:
        raise DataError(f"a picture holds one decode, not {len(traces)}; choose --format html for several")
    if chosen in BINARY and (output is None or output.suffix == ".gz"):
        raise DataError(f"{chosen.upper()} is binary; name a file with --output decode.{chosen}")
    if animated and chosen not in ("svg", "html", "gif"):
        raise DataError(f"--layout animated applies only to SVG, HTML and GIF, not to {chosen}; choose rounds or tree")
    if chosen == "gif" and not animated:
        raise DataError("a GIF is animated; leave --layout out, or choose another format")
    if title is not None and chosen in ("json", "text"):
        raise DataError(f"--title applies only to pictures and web pages, not to {chosen}; leave it out")
