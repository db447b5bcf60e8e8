"""Many canvases as tensors, and inserting into all of them at once.

Rows are padded on the right. A plane is any (batch, length) tensor that goes along with the tokens;
`CanvasBatch.insert` makes room in all of them with one cumulative sum. This module knows no model and no tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kermit.canvas import Canvas, SpecialTokens
from kermit.context import given_part
from kermit.errors import CanvasError

NOTHING = -1
"""Marks a slot into which nothing is inserted."""


@dataclass(frozen=True)
class CanvasBatch:
    """A batch of canvases.

    Args:
        token_ids: (batch, length), padded with ``pad_id``.
        segment_ids: (batch, length), 0 for X (and ``[CLS]``), 1 for Y.
        valid: (batch, length) bool, False at padding.
        open_slots: (batch, length) bool; entry k is slot k, left of token k.
        specials: the ids that frame the canvases.
        given: (batch, length) bool, what was there at the start of the generation (`kermit.context`).
        marked: (batch, length) bool, the given tokens right of a blank. Both are None where nobody asks for them: a
            model without cached context has no use for them.
    """

    token_ids: Tensor
    segment_ids: Tensor
    valid: Tensor
    open_slots: Tensor
    specials: SpecialTokens
    given: Tensor | None = None
    marked: Tensor | None = None

    @classmethod
    def from_canvases(
        cls,
        canvases: Sequence[Canvas],
        device: torch.device | str = "cpu",
        *,
        inserted: Sequence[Sequence[Sequence[bool]]] | None = None,
    ) -> CanvasBatch:
        """Pad canvases to one length.

        Args:
            canvases: the canvases.
            device: where the tensors are to live.
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
        length = max(map(len, canvases))
        token_ids = torch.full((len(canvases), length), specials.pad_id)
        segment_ids = torch.zeros(len(canvases), length, dtype=torch.long)
        valid = torch.zeros(len(canvases), length, dtype=torch.bool)
        open_slots = torch.zeros(len(canvases), length, dtype=torch.bool)
        for row, canvas in enumerate(canvases):
            token_ids[row, : len(canvas)] = torch.tensor(canvas.token_ids)
            segment_ids[row, : len(canvas)] = torch.tensor(canvas.segment_ids)
            valid[row, : len(canvas)] = True
            open_slots[row, sorted(canvas.open_slots)] = True
        content = valid & (token_ids != specials.cls_id) & (token_ids != specials.sep_id)
        for row, flags in enumerate(inserted or ()):
            new = [flag for segment in flags for flag in (*segment, False)]
            content[row, 1 : 1 + len(new)] &= ~torch.tensor(new, dtype=torch.bool)
        given = valid & given_part(token_ids, segment_ids, content, open_slots, specials)
        return cls(token_ids, segment_ids, valid, open_slots, specials, given, given & open_slots).to(device)

    @classmethod
    def from_segments(cls, specials: SpecialTokens, rows: Sequence[Sequence[Sequence[int]]]) -> CanvasBatch:
        """Complete texts, each one or two segments of content tokens, with no slot open: the fast way, unchecked."""
        lengths = [[len(segment) + 1 for segment in row] for row in rows]
        width = 1 + max(map(sum, lengths))
        token_ids = np.full((len(rows), width), specials.pad_id, dtype=np.int64)
        segment_ids = np.zeros((len(rows), width), dtype=np.int64)
        valid = np.zeros((len(rows), width), dtype=bool)
        token_ids[:, 0] = specials.cls_id
        for index, row in enumerate(rows):
            start = 1
            for segment, tokens in enumerate(row):
                end = start + len(tokens)
                token_ids[index, start:end] = tokens
                token_ids[index, end] = specials.sep_id
                segment_ids[index, start : end + 1] = segment
                start = end + 1
            valid[index, :start] = True
        return cls(
            torch.from_numpy(token_ids),
            torch.from_numpy(segment_ids),
            torch.from_numpy(valid),
            torch.zeros(valid.shape, dtype=torch.bool),
            specials,
        )

    def __len__(self) -> int:
        return self.token_ids.shape[0]

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.token_ids.device

    def to(self, device: torch.device | str) -> CanvasBatch:
        """The same batch on another device."""
        return CanvasBatch(
            self.token_ids.to(device),
            self.segment_ids.to(device),
            self.valid.to(device),
            self.open_slots.to(device),
            self.specials,
            None if self.given is None else self.given.to(device),
            None if self.marked is None else self.marked.to(device),
        )

    def select(self, rows: Tensor) -> CanvasBatch:
        """Some of the rows, cut to the longest of them."""
        valid = self.valid[rows]
        length = int(valid.sum(1).max()) if valid.numel() else 0
        return CanvasBatch(
            self.token_ids[rows, :length],
            self.segment_ids[rows, :length],
            valid[:, :length],
            self.open_slots[rows, :length],
            self.specials,
            None if self.given is None else self.given[rows, :length],
            None if self.marked is None else self.marked[rows, :length],
        )

    def canvas(self, row: int) -> Canvas:
        """One row as a checked `Canvas`."""
        length = int(self.valid[row].sum())
        tokens = self.token_ids[row, :length].tolist()
        segments = self.segment_ids[row, :length].tolist()
        content: list[list[int]] = [[] for _ in range(segments[-1] + 1)]
        for token_id, segment in zip(tokens, segments, strict=True):
            if token_id not in (self.specials.cls_id, self.specials.sep_id):
                content[segment].append(token_id)
        open_slots = self.open_slots[row, :length].nonzero().flatten().tolist()
        return Canvas(self.specials, tuple(map(tuple, content)), frozenset(open_slots))

    def insert(
        self, tokens: Tensor, planes: Sequence[tuple[Tensor, int | bool]] = ()
    ) -> tuple[CanvasBatch, list[Tensor]]:
        """Insert a token into each slot that names one, all at once; both sides of a new token are open.

        Args:
            tokens: (batch, length), the token for slot k at k, `NOTHING` for none. The caller answers for the slots
                being open; `Canvas.insert` is the checked way for one canvas.
            planes: further (batch, length) tensors to carry along, each with the value that new tokens get, or with
                `NOTHING` if they get that of the token on their right.

        Returns:
            The new batch and the new planes.
        """
        inserted = tokens != NOTHING
        rank = inserted.cumsum(1)
        length = int((self.valid.sum(1) + rank[:, -1]).max())
        index = torch.arange(tokens.shape[1], device=self.device)
        moved = (index + rank).clamp(max=length)
        target = (index + rank - 1).clamp(max=length)
        moved = torch.where(self.valid, moved, length)
        target = torch.where(inserted, target, length)

        def spread(plane: Tensor, new: Tensor, fill: int | bool) -> Tensor:
            out = plane.new_full((plane.shape[0], length + 1), fill)
            out.scatter_(1, moved, plane)
            out.scatter_(1, target, torch.where(inserted, new, out.new_full((), fill)))
            return out[:, :length]

        no = torch.zeros_like(inserted)
        carried = [spread(plane, plane if new == NOTHING else torch.full_like(plane, new), 0) for plane, new in planes]
        batch = CanvasBatch(
            spread(self.token_ids, tokens, self.specials.pad_id),
            spread(self.segment_ids, self.segment_ids, 0),
            spread(self.valid, inserted, False),
            spread(self.open_slots, inserted, False),
            self.specials,
            *(None if plane is None else spread(plane, no, False) for plane in (self.given, self.marked)),
        )
        return batch, carried
