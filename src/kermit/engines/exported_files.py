"""Where the exported files of a model are. Knows neither ONNX Runtime nor torch."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from kermit.errors import ModelError, member_of


class StaleFileError(ModelError):
    """Exported file of other weights than its folder holds."""


class FilePrecision(StrEnum):
    """Of the weights and matrix products of a file."""

    FLOAT32 = "float32"
    INT8 = "int8"

    def file_in(self, folder: Path) -> Path:
        """Return where the file of a model of this precision is."""
        return folder / "onnx" / ("model.onnx" if self is FilePrecision.FLOAT32 else f"model_{self}.onnx")


def context_file(file: Path) -> Path:
    """Return the file beside a model's file that reads given text, for models with layers of its own for it."""
    return file.with_name(file.name.replace("model", "context", 1))


def exported_files(folder: Path) -> list[Path]:
    """Return the exported files that a model's folder holds."""
    return [file for kind in FilePrecision if (file := kind.file_in(folder)).is_file()]


def find_file(folder: Path, precision: FilePrecision | str = "auto") -> Path:
    """Return the exported file of a model; for `auto` the int8 one if it is there.

    Raises:
        ModelError: the model was not exported.
    """
    choices = [FilePrecision.INT8, FilePrecision.FLOAT32]
    if precision != "auto":
        choices = [member_of(FilePrecision, precision, "precision", ModelError)]
    files = [choice.file_in(folder) for choice in choices]
    for file in files:
        if file.is_file():
            return file
    option = "" if precision == "auto" else f" --precision {precision}"
    raise ModelError(f"{files[-1]} does not exist; write it with `kermit export {folder}{option}`")
