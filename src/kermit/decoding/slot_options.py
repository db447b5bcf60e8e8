"""What can be inserted at the slots of a round: columns of tokens with their scores, end-of-slot among them.

An engine answers with the best tokens of each slot, or with the whole vocabulary; both look the same from here.
"""

from __future__ import annotations

import numpy as np

from kermit.canvas.arrays import Array, Booleans, Integers
from kermit.engines.engine import Answer


class Options:
    """What can be inserted at slots: columns of tokens with their log-probabilities, end-of-slot's among them.

    Args:
        ids: (slots, columns) the token of each column, that of end-of-slot last; None for the whole vocabulary.
        scores: (slots, columns), with the termination penalty taken off.
    """

    def __init__(self, ids: Integers | None, scores: Array, end: int) -> None:
        self.ids, self.scores, self.end = ids, scores, end
        self.index = np.arange(len(scores))

    @classmethod
    def of(cls, answer: Answer, end: int, penalty: np.float32) -> Options:
        """Build the options of an answer, with the penalty taken off the scores of end-of-slot."""
        penalised = answer.end - penalty if penalty else answer.end
        if answer.content is not None:
            scores = answer.content.copy()
            scores[:, end] = penalised
            return cls(None, scores, end)
        count, top = answer.tokens.shape
        ids = np.empty((count, top + 1), dtype=np.int64)
        ids[:, :top], ids[:, top] = answer.tokens, end
        scores = np.empty((count, top + 1), dtype=np.float32)
        scores[:, :top], scores[:, top] = answer.log_probs, penalised
        return cls(ids, scores, end)

    @property
    def full(self) -> bool:
        """Whether it is the whole vocabulary."""
        return self.ids is None

    @property
    def columns(self) -> int:
        """Number of columns."""
        return int(self.scores.shape[1])

    def of_table(self, table: Array) -> Array:
        """Return (slots, columns), the entries of a table with one per token."""
        return np.broadcast_to(table, self.scores.shape) if self.ids is None else table[self.ids]

    def equal(self, tokens: Integers) -> Booleans:
        """Return (slots, columns) bool, whether a column is the slot's token, (slots,)."""
        ids = np.arange(self.columns) if self.ids is None else self.ids
        return np.asarray(ids == tokens[:, None])

    def ends(self) -> Booleans:
        """(slots, columns) bool, the columns of end-of-slot."""
        found = np.zeros(self.scores.shape, dtype=bool)
        found[:, -1 if self.ids is not None else self.end] = True
        return found

    def tokens(self) -> Integers:
        """(slots, columns) the tokens of all columns."""
        return np.broadcast_to(np.arange(self.columns), self.scores.shape) if self.ids is None else self.ids

    def bar(self, barred: Booleans) -> None:
        """Bar (slots, columns)."""
        self.scores[barred] = -np.inf

    def bar_end(self, slots: Booleans) -> None:
        """Bar end-of-slot at (slots,) bool."""
        self.scores[slots, -1 if self.ids is not None else self.end] = -np.inf

    def best(self) -> Integers:
        """Return (slots,), the best column; end-of-slot wins ties."""
        found = self.scores.argmax(1)
        end = self.columns - 1 if self.ids is not None else self.end
        return np.where(self.scores[self.index, found] > self.scores[:, end], found, end)

    def at(self, columns: Integers) -> tuple[Integers, Array]:
        """Return (slots,) each, the tokens of columns and their log-probabilities."""
        tokens = columns if self.ids is None else self.ids[self.index, columns]
        return tokens, self.scores[self.index, columns]
