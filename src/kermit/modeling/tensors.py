"""Arrays as tensors: the rows that a trunk reads, and the inputs of a training step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kermit.canvas.arrays import Array
from kermit.canvas.context import ContextRows
from kermit.engines.engine import Rows


@dataclass(frozen=True)
class RowTensors:
    """Rows of cached context as tensors, with the shapes of `kermit.engines.engine.Rows`."""

    token_ids: Tensor
    segment_ids: Tensor
    positions: Tensor
    orders: Tensor
    mask: Tensor

    @classmethod
    def of(cls, rows: Rows | ContextRows, device: torch.device | str = "cpu") -> RowTensors:
        """Copy rows to a device."""
        planes = (rows.token_ids, rows.segment_ids, rows.positions, rows.orders, rows.mask)
        return cls(*(torch.as_tensor(plane, device=device) for plane in planes))


def as_tensors(arrays: Mapping[str, Array], device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Return named arrays as tensors, such as the `model_inputs` of an objective."""
    return {name: torch.as_tensor(array, device=device) for name, array in arrays.items()}
