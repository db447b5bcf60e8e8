"""The engine of a model's folder: ONNX Runtime if the model was exported, torch otherwise.

Both are imported only when they are used: neither is needed where the other runs.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from kermit.engines.engine import Engine
from kermit.errors import ModelError, UsageError
from kermit.loading import in_precision, load_whole, on_device

if TYPE_CHECKING:
    import torch

EngineName = Literal["auto", "onnx", "torch"]
OnnxPrecision = Literal["float32", "int8"]
ONNX_FILES: dict[OnnxPrecision, str] = {"int8": "onnx/model_int8.onnx", "float32": "onnx/model.onnx"}
"""Where a model's folder holds its exported files, the preferred one first."""


def load_engine(
    folder: Path,
    engine: EngineName = "auto",
    *,
    precision: OnnxPrecision | None = None,
    threads: int | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> Engine:
    """Load the engine of a model.

    Args:
        folder: the model's folder.
        engine: ``onnx`` or ``torch``; ``auto`` is ONNX Runtime if the folder has an exported file, and torch otherwise,
            or if a device or dtype is named.
        precision: of the exported file; int8 if there is one by default.
        threads: number of CPU threads; the engine's own choice by default.
        device: where torch computes; a GPU if there is one by default.
        dtype: what torch computes in; float32 by default.

    Raises:
        UsageError: an unknown engine or precision.
        ModelError: there is no exported file, or no model that can be read.
    """
    for name, value, known in (("engine", engine, EngineName), ("precision", precision or "int8", OnnxPrecision)):
        if value not in get_args(known):
            raise UsageError(f"{name} must be one of {', '.join(get_args(known))}, not {value!r}")
    wanted = [precision] if precision else list(ONNX_FILES)
    exported = [name for name in wanted if (folder / ONNX_FILES[name]).is_file()]
    if engine == "torch" or (engine == "auto" and (not exported or device is not None or dtype is not None)):
        return _load_torch(folder, device, dtype, threads)
    if not exported:
        kind = f"{precision} ONNX file" if precision else "ONNX file"
        raise ModelError(f"{folder} holds no {kind}; make one with `kermit export {folder}`")
    loaded: Engine = import_module("kermit.engines.onnx_engine").OnnxEngine.load(
        folder, precision=exported[0], threads=threads
    )
    return loaded


def _load_torch(
    folder: Path, device: str | torch.device | None, dtype: torch.dtype | None, threads: int | None
) -> Engine:
    import torch

    from kermit.engines.torch_engine import TorchEngine
    from kermit.modeling import KermitForInsertion

    if threads is not None:
        torch.set_num_threads(threads)
    model = load_whole(KermitForInsertion, folder)
    return TorchEngine(on_device(in_precision(model, dtype), device))
