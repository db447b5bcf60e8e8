"""`kermit distill`: a trained teacher's translations of the training text, as training data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kermit.cli import logs
from kermit.cli.choices import Json
from kermit.cli.results import Results, check_folder
from kermit.cli.texts import check_there
from kermit.errors import DecodingError, ModelError


def distill(
    teacher: Annotated[Path, typer.Option(help="Folder of the teacher.", show_default=False)],
    input_: Annotated[Path, typer.Option("--input", help="The text to translate, a text a line.", show_default=False)],
    to: Annotated[str, typer.Option("--to", help="The language to translate into.", show_default=False)],
    output: Annotated[Path, typer.Option(help="Folder for the two line-aligned files.", show_default=False)],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A decoding setting, such as beams=5.")
    ] = None,
    beams: Annotated[int | None, typer.Option(min=1, help="Hypotheses of the beam search.", show_default=False)] = None,
    backend: Annotated[
        Literal["transformers", "ctranslate2"],
        typer.Option(help="What runs the teacher; ctranslate2 is faster, and for Transformers only."),
    ] = "transformers",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Translate the first so many texts alone.", show_default=False)
    ] = None,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16", "int8"] | None,
        typer.Option(
            help="Of the weights and the arithmetic; float32, or int8 with ctranslate2, unless given.",
            show_default=False,
        ),
    ] = None,
    filter_: Annotated[bool, typer.Option("--filter", help="Leave out pairs that are visibly wrong.")] = False,
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
    from kermit.tasks.ctranslate2_teacher import CTranslate2Teacher
    from kermit.tasks.distillation import distill as run
    from kermit.tasks.distillation import told
    from kermit.tasks.translator import Translator

    choices = decoding_choices(None, set_)
    if beams is not None:
        if "beams" in choices:
            raise DecodingError(f"--set beams={choices['beams']}: --beams says it already; leave one of them out")
        choices["beams"] = beams
    engine: Translator | CTranslate2Teacher
    if backend == "ctranslate2":
        translator = Translator.load(teacher, "cpu")
        engine = CTranslate2Teacher.convert(translator, precision or "int8")
    elif precision == "int8":
        raise ModelError("--precision int8 is for --backend ctranslate2; add that, or choose another precision")
    else:
        engine = translator = Translator.load(teacher, dtype=getattr(torch, precision or "float32"))
    lines = sum(1 for _ in read_lines(input_))
    with progress_bar(lines if limit is None else min(lines, limit), f"to {to}") as progress:
        result = run(
            engine,
            teacher,
            input_,
            translator.direction_to(to),
            translator.decoding(**choices),
            output,
            limit=limit,
            on_bad=OnBad.SKIP if skip_bad else OnBad.ERROR,
            filter_pairs=filter_,
            progress=progress,
        )
    if json_:
        files = {"source": str(result.source), "target": str(result.target)}
        counts = {"texts": result.texts, "unfinished": result.unfinished}
        Results(None).json(files | counts | ({"filtered": result.filtered} if filter_ else {}))
        return
    left_out = result.unfinished + sum(result.filtered.values())
    reasons = f" (unfinished {result.unfinished:,}, {told(result.filtered)})" if filter_ else ""
    typer.echo(f"{result.source} and {result.target}: {result.texts:,} pairs, {left_out:,} left out{reasons}")
