"""`kermit trace`: show a decode as a picture, a web page, text or JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kermit.cli import completion, options
from kermit.cli.inputs import given_lines, given_texts
from kermit.cli.output import Results
from kermit.errors import DataError, Place, placed

if TYPE_CHECKING:
    from kermit.rendering import Layout, ReadableTrace

FORMATS = {
    ".html": "html",
    ".htm": "html",
    ".svg": "svg",
    ".png": "png",
    ".pdf": "pdf",
    ".json": "json",
    ".jsonl": "json",
    ".txt": "text",
}
"""The format of an output file by its suffix, unless --format is given."""

BINARY = ("png", "pdf")
"""Formats that need a file: they are not written to stdout."""


def trace(
    context: typer.Context,
    texts: options.TextArguments = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Language to translate into.", autocompletion=completion.languages)
    ] = None,
    input_: options.Input = None,
    infill: Annotated[str | None, typer.Option(help="Fill the blanks of this text.")] = None,
    side: options.Side = "x",
    x: options.X = None,
    y: options.Y = None,
    from_: Annotated[
        Path | None,
        typer.Option("--from", help="Show traces written by another command with --json --trace; - for stdin."),
    ] = None,
    format_: Annotated[
        Literal["html", "svg", "png", "pdf", "json", "text"] | None,
        typer.Option("--format", "-f", help="Output format; by default from the suffix of --output, or text."),
    ] = None,
    layout: Annotated[
        Literal["rounds", "tree", "animated"],
        typer.Option(help="Rounds from top to bottom, the insertion tree, or moving words (SVG, HTML)."),
    ] = "rounds",
    title: Annotated[
        str | None, typer.Option(help="Title of the picture; by default the languages and the number of rounds.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed for --x and --y, or for sampling.")] = 0,
    decoding: options.Decoding = None,
    set_: options.Set = None,
    model: options.Model = None,
    output: options.Output = None,
) -> None:
    """Show a decode round by round: a translation (--to), an infilling (--infill) or a completed pair (--x, --y).

    Example: kermit trace --to de "A dog sleeps in the sun." --layout tree --output decode.svg
    """
    asked = {"--to": to, "--infill": infill, "--x or --y": x if x is not None else y, "--from": from_}
    named = [name for name, value in asked.items() if value is not None]
    if len(named) != 1:
        raise DataError(f"give exactly one of {', '.join(asked)}; got {' and '.join(named) or 'none'}")
    if to is None and (texts or input_ is not None):
        raise DataError("texts need --to LANGUAGE; add it, or remove them")
    if infill is None:
        options.refuse(context, ["--side"], "applies only to --infill; remove it")
    chosen = format_ or format_of(output)
    if from_ is not None:
        decided = ["--model", "--decoding", "--set", "--seed"]
        options.refuse(context, decided, "has no effect with --from, which shows a finished decode; remove it")
        write(read_traces(from_), chosen, layout, title, output)
        return
    if to is not None:
        given = given_texts(texts, input_)
        kermit = options.load_kermit(model)
        how: dict[str, Any] = {"settings": options.chosen_decoding(context, kermit, decoding, set_).settings()}
        how |= {"seeds": range(seed, seed + len(given)), "trace": True, "split_sentences": False}
        with options.progress_bar(len(given), f"to {to}") as progress, placed([one.place for one in given]):
            results = kermit.translate([one.x for one in given], to, on_progress=progress, **how)
    else:
        settings = options.settings_of(context, decoding, set_, samples=0 if infill is not None else 1)
        kermit = options.load_kermit(model)
        how = {"settings": settings, "seeds": [seed], "trace": True}
        with placed([Place("the pair" if infill is None else "--infill")]):
            if infill is None:
                results = kermit.complete([x or ""], [y or ""], **how)
            else:
                results = kermit.infill([infill], side=side, **how)
    traces = [trace for result in results if (trace := kermit.readable(result.trace)) is not None]
    write(traces, chosen, layout, title, output)


def format_of(output: Path | None) -> str:
    """Return the format of an output file by its suffix; text without a suffix."""
    suffix = "" if output is None else Path(output.name.removesuffix(".gz")).suffix.lower()
    if suffix and suffix not in FORMATS:
        raise DataError(f"--output {output}: unknown suffix; known: {', '.join(FORMATS)}; or give --format")
    return FORMATS.get(suffix, "text")


def read_traces(path: Path) -> list[ReadableTrace]:
    """Read traces from JSON lines, each a result with a trace, or a trace."""
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


def write(traces: list[ReadableTrace], chosen: str, layout: str, title: str | None, output: Path | None) -> None:
    """Write decodes in the chosen format; a picture holds only one."""
    from kermit.rendering import Layout, page

    laid_out = Layout(layout)
    check(traces, chosen, laid_out, title, output)
    if chosen in BINARY and output is not None:
        draw = traces[0].png if chosen == "png" else traces[0].pdf
        try:
            output.write_bytes(draw(laid_out, title=title))
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
    """Raise if the traces cannot be written as requested."""
    if not traces:
        raise DataError("no text to trace; give at least one")
    if chosen in ("svg", *BINARY) and len(traces) > 1:
        raise DataError(f"a picture holds one decode, not {len(traces)}; choose --format html for several")
    if chosen in BINARY and (output is None or output.suffix == ".gz"):
        raise DataError(f"{chosen.upper()} cannot be written to stdout; give a file with --output decode.{chosen}")
    if layout == "animated" and chosen not in ("svg", "html"):
        raise DataError(f"--layout animated applies only to SVG and HTML, not to {chosen}; choose rounds or tree")
    if title is not None and chosen in ("json", "text"):
        raise DataError(f"--title applies only to pictures and web pages, not to {chosen}; remove it")
