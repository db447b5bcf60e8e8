"""Choose the engine of a model: ONNX Runtime if it was exported, torch otherwise.

Each is imported only when it is used.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from kermit.engines.engine import Engine
from kermit.engines.exported_files import FilePrecision, StaleFileError, exported_files
from kermit.errors import UsageError, member_of
from kermit.loading import in_precision, load_whole, on_device

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

EngineName = Literal["auto", "onnx", "torch"]


def load_engine(
    folder: Path,
    engine: EngineName = "auto",
    *,
    precision: FilePrecision | str | None = None,
    threads: int | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> Engine:
    """Load the engine of a model; the options are those of `Kermit.from_pretrained`."""
    if engine not in get_args(EngineName):
        raise UsageError(f"engine must be one of {', '.join(get_args(EngineName))}, not {engine!r}")
    kind = None if precision is None else member_of(FilePrecision, precision, "precision", UsageError)
    exported = kind is not None or exported_files(folder)
    if engine == "torch" or (engine == "auto" and (not exported or device is not None or dtype is not None)):
        return _load_torch(folder, device, dtype, threads)
    from kermit.engines.onnx_engine import OnnxEngine

    try:
        return OnnxEngine.load(folder, precision=kind or "auto", threads=threads or 1)
    except StaleFileError as error:
        if engine == "onnx" or find_spec("torch") is None:
            raise
        logger.warning("%s; using torch until then", error)
        return _load_torch(folder, device, dtype, threads)


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
