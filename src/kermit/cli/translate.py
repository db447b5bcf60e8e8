"""`kermit translate --to de "text" ...`: translate texts with a model of any family."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kermit.cli import logs
from kermit.errors import DataError, ModelError


def translate(
    texts: Annotated[list[str] | None, typer.Argument(help="What to translate.", show_default=False)] = None,
    to: Annotated[str, typer.Option("--to", help="The language to translate into.", show_default=False)] = ...,  # type: ignore[assignment]
    model: Annotated[Path | None, typer.Option(help="Folder of the model; the bundled one by default.")] = None,
    input_: Annotated[
        Path | None, typer.Option("--input", help="A file with a text a line, or .gz; - for stdin.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write there instead of printing.")] = None,
    decoding: Annotated[str | None, typer.Option(help="serial or parallel, for insertion models.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A decoding setting of the model's family.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show the rounds, for insertion models.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Translate texts."""
    logs.set_up()
    import json

    from kermit.cli.choices import decoding_choices, print_trace, progress_bar
    from kermit.tasks.translator import Translator, bundled_model

    if bool(texts) == (input_ is not None):
        raise DataError("give the texts to translate, or --input FILE; one of the two")
    found = texts or _read(input_)
    folder = model or bundled_model()
    if folder is None:
        raise ModelError("no model is bundled with this installation; name one with --model")
    translator = Translator.load(folder)
    settings = translator.decoding(**decoding_choices(decoding, set_))
    with progress_bar(len(found), f"to {to}") as progress:
        results = translator.translate(found, translator.direction_to(to), settings, trace=trace, progress=progress)
    lines = [
        json.dumps(result.to_json(), ensure_ascii=False) if json_ else result.text.replace("\n", " ")
        for result in results
    ]
    if output is None:
        for result, line in zip(results, lines, strict=True):
            if result.trace is not None and not json_:
                print_trace(result.trace)
            typer.echo(line)
    else:
        output.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _read(path: Path | None) -> list[str]:
    """The lines of a file, blank ones too: line n of the output is for line n of the input."""
    import sys

    from kermit.data.plain import read_lines

    assert path is not None
    if str(path) == "-":
        return [line.rstrip("\n") for line in sys.stdin]
    lines = []
    for line in read_lines(path):
        if line.text is None:
            raise DataError(f"{line.place}: invalid UTF-8")
        lines.append(line.text)
    return lines
