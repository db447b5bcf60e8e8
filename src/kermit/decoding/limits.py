"""How many more tokens fit: into a text, into a segment of the model's length, into a blank.

Limits are rooms of groups of slots. When more slots want a token than their group has room for, the surest get it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kermit.canvas_batch import CanvasBatch
from kermit.decoding.settings import DecodingSettings
from kermit.slots import InsertionModel

_PLENTY = 2**31


@dataclass
class Room:
    """What is left of every limit.

    Args:
        text: (batch,) tokens that may still be inserted into the text.
        segment: (batch, 2) tokens that the model still has positions for.
        blank: (batch, blanks) tokens that may still be inserted into the blank.
        need: (batch, blanks) tokens that must still be inserted into the blank.
        used: (batch,) tokens inserted so far.
    """

    text: Tensor
    segment: Tensor
    blank: Tensor
    need: Tensor
    used: Tensor

    @classmethod
    def of(
        cls, model: InsertionModel, settings: DecodingSettings, batch: CanvasBatch, limits: list[int], blanks: Tensor
    ) -> Room:
        """The rooms at the start.

        Args:
            model: what scores the slots.
            settings: how to decode.
            batch: the canvases.
            limits: the most tokens to insert into each text.
            blanks: (batch,) how many blanks each text has; they are numbered from 1.
        """
        rows, device = len(batch), batch.device
        number = torch.arange(int(blanks.max()) + 1, device=device)
        text = torch.tensor([min(limit, _PLENTY) for limit in limits], device=device)
        if model.max_length is not None:
            text = torch.minimum(text, model.max_length - batch.valid.sum(1))
        segment = torch.full((rows, 2), _PLENTY, device=device)
        if model.max_segment_length is not None:
            content = batch.valid & (batch.token_ids != model.specials.sep_id)
            content = content & (batch.token_ids != model.specials.cls_id)
            used = torch.stack([(content & (batch.segment_ids == s)).sum(1) for s in (0, 1)], 1)
            segment = model.max_segment_length - used
        constraints = settings.constraints
        most = constraints.max_tokens_per_blank
        blank = torch.full((rows, len(number)), _PLENTY if most is None else min(most, _PLENTY), device=device)
        exists = (number > 0) & (number <= blanks[:, None])
        need = torch.where(exists, min(constraints.min_tokens_per_blank or 0, _PLENTY), 0)
        return cls(text, segment, blank, need, torch.zeros_like(text))

    def select(self, rows: Tensor) -> Room:
        """The rooms of some of the texts."""
        return Room(self.text[rows], self.segment[rows], self.blank[rows], self.need[rows], self.used[rows])

    def needs(self, rows: Tensor, blanks: Tensor) -> Tensor:
        """(slots,) whether the slot's blank must still get a token."""
        return self.need[rows, blanks] > 0

    def left(self, rows: Tensor, segments: Tensor, blanks: Tensor) -> Tensor:
        """(slots,) whether one token more fits into the slot."""
        return (self.text[rows] > 0) & (self.segment[rows, segments] > 0) & (self.blank[rows, blanks] > 0)

    def reserved(self, rows: Tensor, blanks: Tensor) -> Tensor:
        """(slots,) how many tokens other blanks of the slot's text must still get."""
        need = self.need.clamp(min=0)
        return need.sum(1)[rows] - need[rows, blanks]

    def admit(self, wanting: Tensor, score: Tensor, rows: Tensor, segments: Tensor, blanks: Tensor) -> Tensor:
        """Which of the wanting slots get their token, the best scores first; (slots,) bool."""
        for room, group in (
            (self.blank.flatten(), rows * self.blank.shape[1] + blanks),
            (self.segment.flatten(), rows * 2 + segments),
            (self.text, rows),
        ):
            wanting = keep_best(wanting, score, group, room)
        return wanting

    def spend(self, rows: Tensor, segments: Tensor, blanks: Tensor) -> None:
        """Take the room of one token each at these slots."""
        one = torch.ones_like(rows)
        self.text.index_add_(0, rows, -one)
        self.used.index_add_(0, rows, one)
        self.segment.index_put_((rows, segments), -one, accumulate=True)
        self.blank.index_put_((rows, blanks), -one, accumulate=True)
        self.need.index_put_((rows, blanks), -one, accumulate=True)


def keep_best(wanting: Tensor, score: Tensor, group: Tensor, room: Tensor) -> Tensor:
    """Keep as many wanting items of each group as it has room for, the best scores first.

    Args:
        wanting: (items,) bool.
        score: (items,).
        group: (items,) the group of each.
        room: (groups,).

    Returns:
        (items,) bool.
    """
    if not bool((torch.zeros_like(room).index_add_(0, group, wanting.to(room.dtype)) > room).any()):
        return wanting
    order = score.masked_fill(~wanting, -torch.inf).argsort(descending=True, stable=True)
    order = order[group[order].argsort(stable=True)]
    grouped = group[order]
    first = torch.searchsorted(grouped, torch.arange(len(room), device=group.device))
    rank = torch.arange(len(order), device=group.device) - first[grouped]
    kept = torch.empty_like(wanting)
    kept[order] = rank < room[grouped]
    return wanting & kept


def best_of_group(score: Tensor, group: Tensor, groups: int) -> Tensor:
    """Mark the item with the best score in each group, the first where several are equal; -inf is never the best.

    Args:
        score: (items,).
        group: (items,) the group of each.
        groups: how many groups there are.

    Returns:
        (items,) bool.
    """
    room = torch.ones(groups, dtype=torch.long, device=group.device)
    return keep_best(score > -torch.inf, score, group, room)
