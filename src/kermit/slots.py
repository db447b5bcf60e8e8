"""What a model says of the open slots of a batch of canvases: the seam between models and everything that uses them.

The decoder, the likelihoods and the objective see a model through `InsertionModel` alone, so any network that scores
slots (a KERMIT, an Insertion Transformer, a table in a test) can be decoded and scored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from kermit.canvas import SpecialTokens
from kermit.canvas_batch import CanvasBatch

if TYPE_CHECKING:
    from kermit.texts import Texts


class Termination(StrEnum):
    """How a text is known to be finished: every slot says so, or one stop action beside the locations."""

    SLOT = "slot"
    SEQUENCE = "sequence"


@dataclass(frozen=True)
class SlotScores:
    """Scores of all open slots of a batch, one after the other, row by row; in float32, whatever the model computes in.

    Args:
        rows: (slots,) the canvas of each open slot, ascending.
        slots: (slots,) its number in that canvas.
        content: (slots, vocab) logits of the token to insert; -inf at what may never be inserted.
        location: (slots,) logits of the location.
        stop: (batch,) logit of stopping beside the locations; None with slot termination.
    """

    rows: Tensor
    slots: Tensor
    content: Tensor
    location: Tensor
    stop: Tensor | None

    def log_location(self) -> tuple[Tensor, Tensor | None]:
        """Log p(l), a softmax over the row's open slots and, with sequence termination, stopping.

        Returns:
            (slots,) for the slots and (batch,) for stopping, or None with slot termination.
        """
        batch = self.stop.shape[0] if self.stop is not None else int(self.rows[-1]) + 1 if len(self.rows) else 0
        normaliser = row_logsumexp(self.location, self.rows, batch)
        if self.stop is not None:
            normaliser = torch.logaddexp(normaliser, self.stop)
            return self.location - normaliser[self.rows], self.stop - normaliser
        return self.location - normaliser[self.rows], None


class InsertionModel(Protocol):
    """A network that scores slots."""

    @property
    def specials(self) -> SpecialTokens:
        """The ids that frame its canvases."""
        ...

    @property
    def termination(self) -> Termination:
        """How it ends a text."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        ...

    @property
    def max_segment_length(self) -> int | None:
        """The most content tokens that a segment can hold, or None if there is no limit."""
        ...

    @property
    def max_length(self) -> int | None:
        """The most tokens that a whole canvas can hold, or None if there is no limit."""
        ...

    @property
    def orders(self) -> frozenset[str] | None:
        """The names of the insertion orders that it was trained with; None where that is not known."""
        ...

    def score_slots(
        self, canvases: CanvasBatch, *, asked: Tensor | None = None, left_to_right: bool = False
    ) -> SlotScores:
        """Score the open slots, or those of them that are asked, (batch, length) bool.

        From left to right, those of later spans do not know yet what earlier ones hold, and are not to be asked.
        """
        ...


LEFT_TO_RIGHT = "left_to_right"
"""The name of the order in which spans are filled one after the other, each from left to right."""


def learned(model: InsertionModel, *, left_to_right: bool) -> bool:
    """Whether a model was trained to insert from left to right, or else in rounds; unknown counts as rounds."""
    orders = model.orders or frozenset({""})
    return LEFT_TO_RIGHT in orders if left_to_right else bool(orders - {LEFT_TO_RIGHT})


class LeftToRightModel(InsertionModel, Protocol):
    """A network that gives the exact log-probability of texts from left to right, in one pass."""

    def left_to_right_log_probs(self, texts: Texts) -> Tensor:
        """(batch,) the sum over the generated tokens and the end of each span, in nats."""
        ...


def row_logsumexp(values: Tensor, rows: Tensor, batch: int) -> Tensor:
    """Logsumexp of values by row.

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
    """Where items stand in a tensor that has a row for each canvas.

    Args:
        rows: (items,) the row of each, ascending.
        batch: the number of rows.

    Returns:
        The place of each item among those of its row, and how many the fullest row has.
    """
    counts = rows.bincount(minlength=batch)
    place = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    return place, int(counts.max()) if len(rows) else 0
