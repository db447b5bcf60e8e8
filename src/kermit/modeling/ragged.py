"""Values of several rows in one list: the logsumexp of each row's, and where they stand in a padded tensor."""

from __future__ import annotations

import torch
from torch import Tensor


def logsumexp_by_row(values: Tensor, rows: Tensor, batch: int) -> Tensor:
    """Return the logsumexp of values by row.

    Args:
        values: (items,).
        rows: (items,) the row of each.
        batch: the number of rows.

    Returns:
        (batch,), -inf for a row without items.
    """
    peak = values.new_full((batch,), -torch.inf).scatter_reduce_(0, rows, values.detach(), "amax")
    base = torch.where(peak.isfinite(), peak, 0)
    total = values.new_zeros(batch).scatter_add_(0, rows, (values - base[rows]).exp())
    return total.log() + base


def places_in_rows(rows: Tensor, batch: int) -> tuple[Tensor, int]:
    """Return where items stand in a tensor that has a row for each canvas.

    Args:
        rows: (items,) the row of each, ascending.
        batch: the number of rows.

    Returns:
        The place of each item among those of its row, and how many the fullest row has.
    """
    counts = rows.bincount(minlength=batch)
    place = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    return place, int(counts.max()) if len(rows) else 0
