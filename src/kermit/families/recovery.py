"""Asking models of any family for tokens that they are not shown: complete texts, what is dropped, what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kermit.canvas import Factorization, SpecialTokens
from kermit.canvas_batch import CanvasBatch
from kermit.modeling.next_sentence import NOT_ASKED
from kermit.texts import Texts

if TYPE_CHECKING:
    from kermit.data.encoding import Row


@dataclass(frozen=True)
class HeldOutBatch:
    """Complete texts and what is dropped from them.

    Args:
        texts: the complete texts; their content is all generated.
        dropped: (batch, tokens) bool.
        follows: (batch,) whether y continues x: 1, 0, or `NOT_ASKED`.
    """

    texts: Texts
    dropped: Tensor
    follows: Tensor

    @property
    def single(self) -> Tensor:
        """(batch, tokens) bool: the dropped tokens between two that are not."""
        beside = torch.nn.functional.pad(self.dropped, (1, 1))
        return self.dropped & ~beside[:, :-2] & ~beside[:, 2:]


@dataclass(frozen=True)
class Recovered:
    """What a model recovered of a batch.

    Args:
        correct: (batch, tokens) bool, whether a dropped token was recovered; False elsewhere.
        said_end: (slots,) bool, which slots predict end-of-slot; None for models without slots.
        empty: (slots,) bool, which slots have nothing missing.
        follows: (batch,) bool, whether y is predicted to continue x; None for models without that head.
    """

    correct: Tensor
    said_end: Tensor | None = None
    empty: Tensor | None = None
    follows: Tensor | None = None


def complete_texts(specials: SpecialTokens, rows: Sequence[Row], device: torch.device | str = "cpu") -> Texts:
    """Return packed rows as complete texts whose content is all generated; a row without y has one segment."""
    segments = [(row["x"], row["y"]) if row["y"] else (row["x"],) for row in rows]
    batch = CanvasBatch.from_segments(specials, segments).to(device)
    return Texts.of(batch, [Factorization.JOINT] * len(rows))


def labels_of(rows: Sequence[Row]) -> Tensor:
    """(rows,) whether y continues x: 1, 0, or `NOT_ASKED`."""
    return torch.tensor([int(row["follows"]) if "follows" in row else NOT_ASKED for row in rows])
