"""`kermit export`: write a model as ONNX files, which run without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kermit.cli.options import Json
from kermit.cli.output import Results, check_folder
from kermit.errors import UsageError


def export(
    model: Annotated[
        str | None, typer.Argument(help="Folder of the model; the bundled model by default, with --output.")
    ] = None,
    precision: Annotated[
        Literal["float32", "int8", "both"], typer.Option(help="Precision of the weights; int8 is smaller and faster.")
    ] = "both",
    output: Annotated[
        Path | None,
        typer.Option(help="Folder to write to, with the model's config and tokenizer; the model's folder by default."),
    ] = None,
    json_: Json = False,
) -> None:
    """Export a model to ONNX files, which run faster and without torch; they are checked against torch first.

    Example: kermit export runs/multi30k/kermit --precision int8
    """
    if output is not None:
        check_folder("--output", output)
    from kermit.loading import BUNDLED, find_model

    if (model is None or model == BUNDLED) and output is None:
        raise UsageError("the bundled model cannot be exported in place; give another folder with --output FOLDER")
    folder = find_model(model)
    from kermit.engines.exported_files import FilePrecision
    from kermit.engines.exporting import export_model

    precisions = tuple(FilePrecision) if precision == "both" else (FilePrecision(precision),)
    files = export_model(folder, output, precisions=precisions)
    with Results() as results:
        for file in files:
            apart = file.difference
            if json_:
                record = {"file": str(file.path), "precision": str(file.precision), "bytes": file.size}
                results.json(record | {"largest_difference": apart.largest, "best_difference": apart.best})
                continue
            results.line(
                f"{file.path}: {file.precision}, {file.size / 1e6:.1f} MB; difference from torch on random tokens: at"
                f" most {apart.largest:.1g}, on average {apart.best:.1g} in log-probabilities of best tokens"
            )
