"""Batches of canvases as arrays, padded on the right. Independent of models and tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kermit.canvas.arrays import Booleans, Integers
from kermit.canvas.canvas import Canvas, SpecialTokens
from kermit.canvas.context import given_part
from kermit.errors import CanvasError


@dataclass(frozen=True)
class CanvasBatch:
    """A batch of canvases.

    Args:
        token_ids: (batch, length), padded with ``pad_id``.
        segment_ids: (batch, length), 0 for X (and ``[CLS]``), 1 for Y.
        valid: (batch, length) bool, False at padding.
        open_slots: (batch, length) bool; entry k is slot k, left of token k.
        specials: the ids that frame the canvases.
        given: (batch, length) bool, tokens present at the start of the generation (`kermit.canvas.context`).
        marked: (batch, length) bool, the given tokens right of a blank. Both are None where they are not needed: only
            models with cached context use them.
    """

    token_ids: Integers
    segment_ids: Integers
    valid: Booleans
    open_slots: Booleans
    specials: SpecialTokens
    given: Booleans | None = None
    marked: Booleans | None = None

    @classmethod
    def from_canvases(
        cls, canvases: Sequence[Canvas], *, inserted: Sequence[Sequence[Sequence[bool]]] | None = None
    ) -> CanvasBatch:
        """Pad canvases to one length.

        Args:
            canvases: the canvases.
            inserted: for each segment of each canvas, whether each of its tokens was inserted; all are given by
                default.

        Raises:
            CanvasError: no canvas, or canvases that differ in their special tokens.
        """
        if not canvases:
            raise CanvasError("a batch needs at least one canvas")
        specials = canvases[0].specials
        if any(canvas.specials != specials for canvas in canvases):
            raise CanvasError("the canvases of a batch must share their special tokens")
        batch = cls.from_segments(specials, [canvas.segments for canvas in canvases])
        content = batch.valid & ~batch.framing
        for row, canvas in enumerate(canvases):
            batch.open_slots[row, list(canvas.open_slots)] = True
        for row, flags in enumerate(inserted or ()):
            new = [flag for segment in flags for flag in (*segment, False)]
            content[row, 1 : 1 + len(new)] &= ~np.array(new, dtype=bool)
        given = batch.valid & given_part(batch.token_ids, batch.segment_ids, content, batch.open_slots, specials)
        marked = given & batch.open_slots
        return cls(batch.token_ids, batch.segment_ids, batch.valid, batch.open_slots, specials, given, marked)

    @classmethod
    def from_segments(cls, specials: SpecialTokens, rows: Sequence[Sequence[Sequence[int]]]) -> CanvasBatch:
        """Build a batch of complete texts, one or two segments of content tokens each, with no slot open; unchecked."""
        width = 1 + max(sum(map(len, row)) + len(row) for row in rows)
        token_ids = np.full((len(rows), width), specials.pad_id, dtype=np.int64)
        segment_ids = np.zeros((len(rows), width), dtype=np.int64)
        token_ids[:, 0] = specials.cls_id
        lengths = np.empty(len(rows), dtype=np.int64)
        for index, row in enumerate(rows):
            start = 1
            for segment, tokens in enumerate(row):
                end = start + len(tokens)
                token_ids[index, start:end] = tokens
                token_ids[index, end] = specials.sep_id
                if segment:
                    segment_ids[index, start : end + 1] = segment
                start = end + 1
            lengths[index] = start
        valid = np.arange(width) < lengths[:, None]
        return cls(token_ids, segment_ids, valid, np.zeros_like(valid), specials)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def framing(self) -> Booleans:
        """(batch, length) bool, where ``[CLS]`` and ``[SEP]`` are."""
        return np.asarray((self.token_ids == self.specials.cls_id) | (self.token_ids == self.specials.sep_id))

    def select(self, rows: Integers) -> CanvasBatch:
        """Return the selected rows at the same length; a row may be repeated."""
        return CanvasBatch(
            self.token_ids[rows],
            self.segment_ids[rows],
            self.valid[rows],
            self.open_slots[rows],
            self.specials,
            None if self.given is None else self.given[rows],
            None if self.marked is None else self.marked[rows],
        )
