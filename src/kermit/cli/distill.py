"""`kermit distill`: a trained teacher's translations of the training text, as training data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kermit.cli import logs


def distill(
    teacher: Annotated[Path, typer.Option(help="Folder of the teacher.", show_default=False)],
    input_: Annotated[Path, typer.Option("--input", help="The text to translate, a text a line.", show_default=False)],
    to: Annotated[str, typer.Option("--to", help="The language to translate into.", show_default=False)],
    output: Annotated[Path, typer.Option(help="Folder for the two line-aligned files.", show_default=False)],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A decoding setting, such as beams=5.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip and count lines that are broken.")] = False,
) -> None:
    """Write a teacher's translations as training data; run again to go on after an interruption."""
    logs.set_up()
    from kermit.cli.choices import decoding_choices, progress_bar
    from kermit.data.plain import OnBad, read_lines
    from kermit.tasks.distillation import distill as run
    from kermit.tasks.translator import Translator

    translator = Translator.load(teacher)
    with progress_bar(sum(1 for _ in read_lines(input_)), f"to {to}") as progress:
        result = run(
            translator,
            teacher,
            input_,
            translator.direction_to(to),
            translator.decoding(**decoding_choices(None, set_)),
            output,
            on_bad=OnBad.SKIP if skip_bad else OnBad.ERROR,
            progress=progress,
        )
    typer.echo(f"{result.source} and {result.target}: {result.texts:,} pairs, {result.unfinished:,} left out")
