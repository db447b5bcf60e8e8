"""How many more tokens fit: into a text, into a segment of the model's length, into a blank, into a run of one token.

Limits are rooms of groups of slots. When more slots want a token than their group has room for, the surest get it.

A weak model repeats a token where it does not know what to say. A slot may not extend a run of the allowed length, and
if several insertions of a round together make too long a run, the last of them are withdrawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kermit.canvas.arrays import Array, Booleans, Integers
from kermit.decoding.growing_canvases import OPEN, ROW, SEGMENT, SPAN, TOKEN, Growing
from kermit.decoding.settings import Constraints
from kermit.engines.engine import ModelInfo

_PLENTY = 2**31


@dataclass
class Room:
    """What is left of every limit; None where there is no such limit.

    Args:
        text: (batch,) tokens that may still be inserted into the text.
        segment: (batch, 2) tokens that the model still has positions for.
        blank: (spans,) tokens that may still be inserted into the blank.
        need: (spans,) tokens that must still be inserted into the blank.
        owed: (batch,) tokens that the blanks of a text must still get together.
        used: (batch,) tokens inserted so far.
    """

    text: Integers
    segment: Integers | None
    blank: Integers | None
    need: Integers | None
    owed: Integers
    used: Integers

    @classmethod
    def of(cls, info: ModelInfo, constraints: Constraints, growing: Growing, limits: list[int]) -> Room:
        """Return the rooms at the start."""
        planes, batch = growing.planes, len(growing)
        text = np.array([min(limit, _PLENTY) for limit in limits], dtype=np.int64)
        if info.max_length is not None:
            text = np.minimum(text, info.max_length - growing.lengths)
        segment = None
        if info.max_segment_length is not None:
            framing = (planes[TOKEN] == info.specials.cls_id) | (planes[TOKEN] == info.specials.sep_id)
            group = (2 * planes[ROW] + planes[SEGMENT])[~framing]
            segment = info.max_segment_length - np.bincount(group, minlength=2 * batch).reshape(batch, 2)
        most, least = constraints.max_tokens_per_blank, constraints.min_tokens_per_blank or 0
        spans = len(growing.spans.low)
        blank = None if most is None else np.full(spans, min(most, _PLENTY))
        need, owed = None, np.zeros(batch, dtype=np.int64)
        if least:
            need = np.zeros(spans, dtype=np.int64)
            need[planes[SPAN]] = min(least, _PLENTY) * planes[OPEN]
            owed = np.bincount(planes[ROW], min(least, _PLENTY) * planes[OPEN], batch).astype(np.int64)
        return cls(text, segment, blank, need, owed, np.zeros(batch, dtype=np.int64))

    def take(self, rows: Integers, spans: Integers) -> None:
        """Keep the rooms of these texts and spans, in this order; both may be repeated."""
        self.text, self.owed, self.used = self.text[rows], self.owed[rows], self.used[rows]
        self.segment = None if self.segment is None else self.segment[rows]
        self.blank = None if self.blank is None else self.blank[spans]
        self.need = None if self.need is None else self.need[spans]

    def needs(self, spans: Integers) -> Booleans:
        """Return (slots,), whether the slot's blank must still get a token."""
        return np.zeros(len(spans), dtype=bool) if self.need is None else self.need[spans] > 0

    def left(self, rows: Integers, segments: Integers, spans: Integers) -> Booleans:
        """Return (slots,), whether one more token fits into the slot."""
        fits = self.text[rows] > 0
        if self.segment is not None:
            fits &= self.segment[rows, segments] > 0
        if self.blank is not None:
            fits &= self.blank[spans] > 0
        return fits

    def reserved(self, rows: Integers, spans: Integers) -> Integers:
        """Return (slots,), how many tokens other blanks of the slot's text must still get."""
        if self.need is None:
            return np.zeros(len(rows), dtype=np.int64)
        return self.owed[rows] - np.maximum(self.need[spans], 0)

    def admit(self, wanting: Booleans, score: Array, rows: Integers, segments: Integers, spans: Integers) -> Booleans:
        """Return which slots that predict a token get it, the best scores first; (slots,) bool."""
        if self.blank is not None:
            wanting = keep_best(wanting, score, spans, self.blank)
        if self.segment is not None:
            wanting = keep_best(wanting, score, 2 * rows + segments, self.segment.ravel())
        return keep_best(wanting, score, rows, self.text)

    def spend(self, rows: Integers, segments: Integers, spans: Integers) -> None:
        """Take the room of one token each at these slots."""
        count = np.bincount(rows, minlength=len(self.text))
        self.text = self.text - count
        self.used = self.used + count
        if self.segment is not None:
            self.segment = self.segment - np.bincount(2 * rows + segments, minlength=self.segment.size).reshape(-1, 2)
        if self.blank is not None:
            self.blank = self.blank - np.bincount(spans, minlength=len(self.blank))
        if self.need is not None:
            filled, first, taken = np.unique(spans, return_index=True, return_counts=True)
            paid = np.minimum(np.maximum(self.need[filled], 0), taken)
            self.owed = self.owed - np.bincount(rows[first], paid, len(self.owed)).astype(np.int64)
            self.need[filled] -= taken


def keep_best(wanting: Booleans, score: Array, group: Integers, room: Integers) -> Booleans:
    """Keep as many wanting items (items,) of each group as it has `room` (groups,) for, the best scores first."""
    if not np.count_nonzero(np.bincount(group[wanting], minlength=len(room)) > room):
        return wanting
    order = np.lexsort((-np.where(wanting, score, -np.inf), group))  # by group, the best first
    grouped = group[order]
    rank = np.arange(len(order)) - np.searchsorted(grouped, grouped)
    kept = np.empty_like(wanting)
    kept[order] = rank < room[grouped]
    return wanting & kept


def best_of_group(score: Array, group: Integers, groups: int) -> Booleans:
    """Mark the best item (items,) of each group, the first of several equal ones; -inf is never the best."""
    return keep_best(score > -np.inf, score, group, np.ones(groups, dtype=np.int64))


def allowed_runs(text: Growing, most: int) -> Integers:
    """Return the allowed length of a run: that of the longest run on the canvas, but at least `most`; (batch,)."""
    tokens, specials = text.planes[TOKEN], text.specials
    content = (tokens != specials.cls_id) & (tokens != specials.sep_id)
    allowed = np.full(len(text), most)
    np.maximum.at(allowed, text.planes[ROW], _runs(text)[0] * content)
    return allowed


def full_runs(text: Growing, slots: Integers, allowed: Integers) -> tuple[Booleans, Booleans] | None:
    """Return whether the runs left and right of slots, (slots,) bool each, are as long as they may be.

    None if none is. The token on that side may then not be inserted; `allowed` is (batch,).
    """
    if not _has_runs(text, allowed):
        return None
    tokens, most = text.planes[TOKEN], allowed[text.planes[ROW, slots]]
    ending, beginning = _runs(text)
    before, after = ending[slots - 1], beginning[slots]
    same = tokens[slots - 1] == tokens[slots]
    left, right = before + after * same >= most, after + before * same >= most
    return (left, right) if left.any() or right.any() else None


def too_many(text: Growing, allowed: Integers, came: Integers) -> Booleans | None:
    """Return which of the items that just came make too long a run, the rightmost first; None if none do."""
    if not _has_runs(text, allowed):
        return None
    ending, beginning = _runs(text)
    excess = ending + beginning - 1 - allowed[text.planes[ROW]]
    if not (excess[came] > 0).any():
        return None
    new = np.zeros(text.planes.shape[1], dtype=np.int64)
    new[came] = 1
    from_right = new[::-1].cumsum()[::-1]  # new tokens from an item on
    last = np.arange(len(new)) + beginning - 1  # the last item of its run
    behind = from_right[last] - new[last]
    gone: Booleans = ((excess > 0) & (from_right - behind <= excess))[came]
    return gone


def _has_runs(text: Growing, allowed: Integers) -> bool:
    """Return whether equal neighbours are enough for a run of the allowed length: a quick check before others."""
    tokens = text.planes[TOKEN]
    return bool(np.count_nonzero(tokens[1:] == tokens[:-1]) >= allowed.min() - 1)


def _runs(text: Growing) -> tuple[Integers, Integers]:
    """Return (items,) each, how many tokens of a token's run end at it, and how many begin at it."""
    tokens = text.planes[TOKEN]
    index = np.arange(len(tokens))
    changes = np.ones(len(tokens), dtype=bool)
    changes[1:] = tokens[1:] != tokens[:-1]  # a row ends with [SEP], and the next begins with [CLS]
    starts = np.flatnonzero(changes)
    lengths = np.diff(starts, append=len(tokens))
    ending = index - np.repeat(starts, lengths) + 1
    return ending, np.repeat(lengths, lengths) - ending + 1
