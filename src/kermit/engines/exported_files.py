"""Paths of a model's exported files. Imports neither ONNX Runtime nor torch."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from kermit.errors import ModelError, member_of


class StaleFileError(ModelError):
    """Exported file that does not match the weights in its folder."""


class FilePrecision(StrEnum):
    """Precision of the weights and matrix products of a file."""

    FLOAT32 = "float32"
    INT8 = "int8"

    def file_in(self, folder: Path) -> Path:
        """Return the path of a model's file of this precision."""
        return folder / "onnx" / ("model.onnx" if self is FilePrecision.FLOAT32 else f"model_{self}.onnx")


def context_file(file: Path) -> Path:
    """Return the path of the file that reads given tokens, for models with `given_layers`."""
    return file.with_name(file.name.replace("model", "context", 1))


def exported_files(folder: Path) -> list[Path]:
    """Return the exported files in a model's folder."""
    return [file for kind in FilePrecision if (file := kind.file_in(folder)).is_file()]


def find_file(folder: Path, precision: FilePrecision | str = "auto") -> Path:
    """Return the exported file of a model; `auto` prefers int8."""
    choices = [FilePrecision.INT8, FilePrecision.FLOAT32]
    if precision != "auto":
        choices = [member_of(FilePrecision, precision, "precision", ModelError)]
    files = [choice.file_in(folder) for choice in choices]
    for file in files:
        if file.is_file():
            return file
    option = "" if precision == "auto" else f" --precision {precision}"
    raise ModelError(f"{files[-1]} does not exist; create it with `kermit export {folder}{option}`")
