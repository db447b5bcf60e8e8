"""Recovery of dropped tokens by models of any family: the texts, the dropped tokens, and which were recovered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kermit.canvas import CanvasBatch, Factorization, SpecialTokens
from kermit.canvas.arrays import Booleans
from kermit.objectives.training_canvases import Texts

if TYPE_CHECKING:
    from kermit.data.encoding import Row


@dataclass(frozen=True)
class HeldOutBatch:
    """Complete texts, whose content is all generated, and the tokens dropped from them, (batch, tokens) bool."""

    texts: Texts
    dropped: Booleans

    @property
    def single(self) -> Booleans:
        """(batch, tokens) bool: the dropped tokens whose neighbours are both kept."""
        beside = np.pad(self.dropped, ((0, 0), (1, 1)))
        return self.dropped & ~beside[:, :-2] & ~beside[:, 2:]


@dataclass(frozen=True)
class Recovered:
    """The tokens of a batch that a model recovered.

    Args:
        correct: (batch, tokens) bool, whether a dropped token was recovered; False elsewhere.
        said_end: (slots,) bool, which slots predict end-of-slot; None for models without slots.
        empty: (slots,) bool, which slots lack no token.
    """

    correct: Booleans
    said_end: Booleans | None = None
    empty: Booleans | None = None


def complete_texts(specials: SpecialTokens, rows: Sequence[Row]) -> Texts:
    """Turn packed rows into complete texts whose content is all generated; a row without y has one segment."""
    segments = [(row["x"], row["y"]) if row["y"] else (row["x"],) for row in rows]
    batch = CanvasBatch.from_segments(specials, segments)
    return Texts.of(batch, [Factorization.JOINT] * len(rows))
