"""`kermit distill`: a trained teacher's translations of the training text, as training data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kermit.cli import logs
from kermit.cli.choices import Json, Precision
from kermit.cli.results import Results, check_folder
from kermit.cli.texts import check_there


def distill(
    teacher: Annotated[Path, typer.Option(help="Folder of the teacher.", show_default=False)],
    input_: Annotated[Path, typer.Option("--input", help="The text to translate, a text a line.", show_default=False)],
    to: Annotated[str, typer.Option("--to", help="The language to translate into.", show_default=False)],
    output: Annotated[Path, typer.Option(help="Folder for the two line-aligned files.", show_default=False)],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A decoding setting, such as beams=5.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Translate the first so many texts alone.", show_default=False)
    ] = None,
    precision: Precision = "float32",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip and count lines that are broken.")] = False,
    json_: Json = False,
) -> None:
    """Write a teacher's translations as training data; run again to go on after an interruption.

    Example: kermit distill --teacher runs/transformer --input train.en --to de --output distilled
    """
    check_there("--input", input_)
    check_folder("--output", output)
    logs.set_up()
    import torch

    from kermit.cli.choices import decoding_choices, progress_bar
    from kermit.data.plain import OnBad, read_lines
    from kermit.tasks.distillation import distill as run
    from kermit.tasks.translator import Translator

    translator = Translator.load(teacher, dtype=getattr(torch, precision))
    lines = sum(1 for _ in read_lines(input_))
    with progress_bar(lines if limit is None else min(lines, limit), f"to {to}") as progress:
        result = run(
            translator,
            teacher,
            input_,
            translator.direction_to(to),
            translator.decoding(**decoding_choices(None, set_)),
            output,
            limit=limit,
            on_bad=OnBad.SKIP if skip_bad else OnBad.ERROR,
            progress=progress,
        )
    if json_:
        files = {"source": str(result.source), "target": str(result.target)}
        Results(None).json(files | {"texts": result.texts, "unfinished": result.unfinished})
        return
    typer.echo(f"{result.source} and {result.target}: {result.texts:,} pairs, {result.unfinished:,} left out")
