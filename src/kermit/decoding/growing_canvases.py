"""Canvases being decoded: one flat list of all tokens, row after row, and inserting into it.

A flat list needs no padding, so inserting is one `repeat` over a handful of planes, however long the texts of a batch
are. Every token that was there at the start has a *span*: it, and what is inserted into the slot left of it. So the
limits of blanks and the positions of inserted tokens are tables with one entry per token at the start.

What is *given* counts only for models with cached context (`kermit.canvas.context`). There the block holds all tokens
that are not given, and both parts hold a marker for every open slot left of a given token. This module knows no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from kermit.canvas import Canvas, CanvasBatch, SpecialTokens
from kermit.canvas.arrays import Array, Booleans, Floats, Integers
from kermit.canvas.blank_room import NO_ROOM, BlankRoom

ROW, TOKEN, SEGMENT, OPEN, SPAN, JOINED, INSERTED, PLACE = range(8)
"""Planes: the row; the token; its segment; whether the slot left of it is open; its span; whether its blank touches the
word on the left; whether it was inserted; its place in the given part, or -1 if it is read with the block."""

_FAR = 2**20
"""Beyond all positions."""


@dataclass(frozen=True)
class OpenSpans:
    """What does not change about the spans of canvases; (tokens at the start,) each.

    Args:
        low: the position that inserted tokens are numbered from.
        room: number of positions up to the span's end; infinite if that moves along.
        fixed: the position of the given token, or of the marker left of it.
    """

    low: Floats
    room: Floats
    fixed: Floats


@dataclass(frozen=True)
class Given:
    """The given parts of canvases, (batch, length) each, padded on the right; `valid` is False at padding."""

    token_ids: Integers
    segment_ids: Integers
    positions: Floats
    valid: Booleans

    def select(self, rows: Integers) -> Given:
        """Return the given parts of some rows, in that order; a row may be repeated."""
        return Given(self.token_ids[rows], self.segment_ids[rows], self.positions[rows], self.valid[rows])


class Growing:
    """Canvases being decoded.

    Args:
        canvases: the canvases at the start.
        blank_id: the token that marks a blank inside given text; None for a model without cached context, which reads
            given tokens together with the others.
        blank_room: the positions that each blank reserves.
    """

    def __init__(self, canvases: Sequence[Canvas], *, blank_id: int | None, blank_room: BlankRoom = NO_ROOM) -> None:
        batch = CanvasBatch.from_canvases(canvases)
        self.specials: SpecialTokens = batch.specials
        rows, places = batch.valid.nonzero()
        given = batch.given
        assert given is not None
        if blank_id is None:
            given = np.zeros_like(given)
        marked = given & batch.open_slots
        joined = np.zeros_like(batch.valid)
        for row, canvas in enumerate(canvases):
            joined[row, list(canvas.joined_slots)] = True
        rank = (given.astype(np.int64) + marked).cumsum(1) - 1  # of a given token in the given part, after its marker
        planes = (
            rows,
            batch.token_ids[rows, places],
            batch.segment_ids[rows, places],
            batch.open_slots[rows, places],
            np.arange(len(rows)),
            joined[rows, places],
            np.zeros_like(rows),
            np.where(given, rank, -1)[rows, places],
        )
        self.planes: Integers = np.stack(planes).astype(np.int64)
        self.lengths: Integers = np.array([len(canvas) for canvas in canvases])
        self.starts: Integers = self.lengths.cumsum() - self.lengths
        self.blank_id = blank_id
        self.blank_room = blank_room
        low, room, fixed = _numbered(batch, given, blank_room)
        self.spans = OpenSpans(low[rows, places], room[rows, places], fixed[rows, places])
        self.has_markers = bool(np.count_nonzero(marked))
        self.given: Given = _given_part(batch, given, marked, rank, fixed, blank_id or 0)
        self.segments: list[int] = [len(canvas.segments) for canvas in canvases]

    def __len__(self) -> int:
        return len(self.lengths)

    def grown(self, slots: Integers, tokens: Integers) -> Growing:
        """Return the canvases with a token left of each of these items, (slots,) ascending; its slots are open."""
        times = np.ones(self.planes.shape[1], dtype=np.int64)
        times[slots] = 2
        planes = self.planes.repeat(times, axis=1)
        new = slots + np.arange(len(slots))
        planes[TOKEN, new] = tokens
        planes[INSERTED, new] = 1
        planes[PLACE, new] = -1
        after = copy(self)
        after.planes = planes
        if len(self) == 1:
            after.lengths = self.lengths + len(slots)
        else:
            after.lengths = self.lengths + np.bincount(planes[ROW, new], minlength=len(self))
            after.starts = after.lengths.cumsum() - after.lengths
        return after

    def take(self, rows: Integers) -> tuple[Integers, Integers]:
        """Keep these rows, in this order; a row may be repeated.

        Spans are numbered anew: returns (spans,) the former number of each, and (rows,) what is added to the numbers
        of a row's spans.
        """
        first, last = (self.planes[SPAN, ends] for ends in (self.starts, self.starts + self.lengths - 1))
        items = ranges(self.starts[rows], self.lengths[rows])
        counts = (last - first + 1)[rows]
        shift = counts.cumsum() - counts - first[rows]
        spans = ranges(first[rows], counts)
        self.lengths = self.lengths[rows]
        self.starts = self.lengths.cumsum() - self.lengths
        self.planes = self.planes[:, items]
        self.planes[ROW] = np.repeat(np.arange(len(rows)), self.lengths)
        self.planes[SPAN] += np.repeat(shift, self.lengths)
        tables = self.spans
        self.spans = OpenSpans(tables.low[spans], tables.room[spans], tables.fixed[spans])
        self.given = self.given.select(rows)
        self.segments = [self.segments[number] for number in rows.tolist()]
        return spans, shift

    def canvas(self, row: int) -> tuple[Canvas, tuple[tuple[bool, ...], ...]]:
        """Return one row as a canvas, and for each segment whether each of its tokens was inserted."""
        start = int(self.starts[row])
        planes = self.planes[:, start : start + int(self.lengths[row])]
        tokens, flags = planes[TOKEN].tolist(), planes[INSERTED].tolist()
        content: list[tuple[int, ...]] = []
        inserted: list[tuple[bool, ...]] = []
        first = 1
        for segment in range(self.segments[row]):
            end = first + int(np.count_nonzero(planes[SEGMENT, first:] == segment)) - 1
            content.append(tuple(tokens[first:end]))
            inserted.append(tuple(map(bool, flags[first:end])))
            first = end + 1
        open_slots = frozenset(planes[OPEN].nonzero()[0].tolist())
        return Canvas(self.specials, tuple(content), open_slots), tuple(inserted)


def ranges(starts: Integers, lengths: Integers) -> Integers:
    """Concatenate the ranges that start at these numbers and have these lengths."""
    return np.asarray(np.repeat(starts - (lengths.cumsum() - lengths), lengths) + np.arange(int(lengths.sum())))


def _numbered(batch: CanvasBatch, given: Booleans, blank_room: BlankRoom) -> tuple[Floats, Floats, Floats]:
    """Return low, room and fixed positions of spans, as in `kermit.canvas.context`; (batch, length) each."""
    second = batch.segment_ids == 1
    marked = given & batch.open_slots

    def counted(flags: Booleans) -> Integers:
        """Count the marked tokens of a segment up to each token, itself included."""
        return np.asarray(flags.cumsum(1) - second * (flags & ~second).sum(1, keepdims=True))

    numbers = counted(given) - ~second  # [CLS] is at 0, the first token of Y at 1
    steps = [blank_room.step((given & part).sum(1), (marked & part).sum(1))[:, None] for part in (~second, second)]
    fixed = numbers + np.where(second, steps[1], steps[0]) * counted(marked)
    apart = second * _FAR  # keeps the segments apart in the running maximum
    before = np.zeros_like(fixed)
    before[:, 1:] = np.maximum.accumulate(np.where(given, fixed + apart, 0), 1)[:, :-1]
    low = (np.maximum(before, apart) - apart).astype(np.float32)
    low[:, 0] = np.where(given[:, 0], 0, -1)  # so that [CLS] is at 0
    room = np.where(marked, fixed - 1 - low, np.inf).astype(np.float32)
    return low, room, (fixed - marked).astype(np.float32)


def _given_part(
    batch: CanvasBatch, given: Booleans, marked: Booleans, rank: Integers, fixed: Array, blank_id: int
) -> Given:
    counts = given.sum(1) + marked.sum(1)
    shape = (len(batch), int(counts.max()))
    token_ids = np.full(shape, batch.specials.pad_id)
    segment_ids = np.zeros(shape, dtype=np.int64)
    positions = np.zeros(shape, dtype=np.float32)
    for chosen, is_marker in ((given, 0), (marked, 1)):
        rows, places = chosen.nonzero()
        target = (rows, rank[rows, places] - is_marker)
        token_ids[target] = blank_id if is_marker else batch.token_ids[rows, places]
        segment_ids[target] = batch.segment_ids[rows, places]
        # a token comes right after its marker, to which `fixed` refers
        positions[target] = fixed[rows, places] + (0 if is_marker else marked[rows, places])
    return Given(token_ids, segment_ids, positions, np.arange(shape[1]) < counts[:, None])
