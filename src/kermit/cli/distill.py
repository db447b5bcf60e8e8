"""`kermit distill`: write a teacher's translations of text as training data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kermit.cli.inputs import check_there
from kermit.cli.options import Json, Set, SkipBad, To
from kermit.cli.output import Results, check_folder
from kermit.errors import DecodingError, ModelError


def distill(
    teacher: Annotated[str, typer.Option(help="Folder of the teacher, or its name on the Hub.")],
    input_: Annotated[Path, typer.Option("--input", help="Text to translate, one text per line.")],
    to: To,
    output: Annotated[Path, typer.Option(help="Folder for the two line-aligned files.")],
    set_: Set = None,
    beams: Annotated[int | None, typer.Option(min=1, help="Number of beams.")] = None,
    backend: Annotated[
        Literal["transformers", "onnx", "ctranslate2"],
        typer.Option(
            help="Library that runs the teacher; faster: onnx for exported KERMIT models, ctranslate2 for Transformers."
        ),
    ] = "transformers",
    limit: Annotated[int | None, typer.Option(min=1, help="Translate only the first N texts.")] = None,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16", "int8"] | None,
        typer.Option(help="Precision; by default float32, with ctranslate2 int8, with onnx int8 if exported."),
    ] = None,
    filter_: Annotated[bool, typer.Option("--filter", help="Leave out pairs that are clearly wrong.")] = False,
    skip_bad: SkipBad = False,
    json_: Json = False,
) -> None:
    """Write a teacher's translations as training data; run again to resume.

    Example: kermit distill --teacher runs/transformer --input train.en --to de --output distilled
    """
    check_there("--input", input_)
    check_folder("--output", output)
    import torch

    from kermit.cli.options import decoding_choices, progress_bar
    from kermit.data.plain import OnBad, read_lines
    from kermit.pipeline import Kermit
    from kermit.tasks.ctranslate2_teacher import converted
    from kermit.tasks.distillation import counted, distill as run
    from kermit.tasks.translation import direction_to

    choices = decoding_choices(None, set_)
    if beams is not None:
        if "beams" in choices:
            raise DecodingError(
                f"--set beams={choices['beams']} and --beams both set the number of beams; leave one out"
            )
        choices["beams"] = beams
    if backend == "ctranslate2":
        kermit = converted(Kermit.from_pretrained(teacher, device="cpu"), precision or "int8")
    elif backend == "onnx":
        kermit = Kermit.from_pretrained(teacher, engine="onnx", precision=precision)
        if kermit.searcher is not None:
            raise ModelError(f"--backend onnx needs a KERMIT model, not one of type {kermit.model_type}; leave it out")
    elif precision == "int8":
        raise ModelError(
            "--precision int8 needs --backend ctranslate2 or onnx; add one of them, or choose another precision"
        )
    else:
        kermit = Kermit.from_pretrained(teacher, dtype=getattr(torch, precision or "float32"))
    lines = sum(1 for _ in read_lines(input_))
    with progress_bar(lines if limit is None else min(lines, limit), f"to {to}") as progress:
        result = run(
            kermit,
            teacher,
            input_,
            direction_to(kermit, to),
            kermit.decoding(choices),
            output,
            limit=limit,
            on_bad=OnBad.SKIP if skip_bad else OnBad.ERROR,
            filter_pairs=filter_,
            progress=progress,
        )
    if json_:
        files = {"source": str(result.source), "target": str(result.target)}
        counts = {"texts": result.texts, "unfinished": result.unfinished}
        Results().json(files | counts | ({"filtered": result.filtered} if filter_ else {}))
        return
    left_out = result.unfinished + sum(result.filtered.values())
    reasons = f" (unfinished {result.unfinished:,}, {counted(result.filtered)})" if filter_ else ""
    typer.echo(f"{result.source} and {result.target}: {result.texts:,} pairs, {left_out:,} left out{reasons}")
