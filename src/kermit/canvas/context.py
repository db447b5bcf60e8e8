"""Cached context: given tokens attend to given tokens only, inserted tokens to the whole canvas.

The *given* tokens are those that a canvas holds at the start of a generation: the source of a translation, the text
around blanks, a passage. Their states do not depend on the insertions, so all canvases of a generation share them. A
**row** holds the given tokens once, then one **block** per canvas with the tokens that are not given; a block attends
to the given part and to itself. A row with a single block is a canvas to decode; a row with a block per round trains a
whole generation.

Besides inserted tokens, a block holds:

- the ``[SEP]`` of an open segment without given tokens. If nothing at all is given, the whole canvas is the block, and
  this is the paper's model;
- a **marker** at the right end of each blank inside given text. It is read again in every round, so the slots of a
  blank know what the other blanks hold. The given part holds a copy of it, so the given tokens know where text is
  missing, and what is missing is predicted by all layers that read the given part.

In a **left-to-right** block, tokens see only those inserted before them: the spans in order, each from left to right.
The right end of a span (its ``[SEP]`` or marker) comes first and marks the span's beginning.

Positions restart in each segment. Given tokens are numbered in order, with room reserved at each marker (`BlankRoom`);
inserted tokens are numbered from their left given neighbour, closer together if they exceed the room. With nothing
given, these are the positions of the paper's model. This module knows no model and draws no random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kermit.canvas.arrays import Array, Booleans, Floats, Integers
from kermit.canvas.blank_room import BlankRoom
from kermit.canvas.canvas import SpecialTokens
from kermit.errors import CanvasError

if TYPE_CHECKING:
    from kermit.canvas.batch import CanvasBatch

PADDING, GIVEN = -1, 0
"""Block numbers of padding and of the given part; the blocks of canvases are numbered from 1."""

_FAR = 2**20
"""A number beyond all positions."""


def given_part(
    token_ids: Integers, segment_ids: Integers, given: Booleans, open_slots: Booleans, specials: SpecialTokens
) -> Booleans:
    """Add the frame tokens that belong to the given part to the given content.

    With nothing given, no frame token is given. Otherwise all are, except the ``[SEP]`` of an open segment without
    given content, which is read again with what is inserted before it.

    Args:
        given: (batch, tokens) bool, the given content; frame tokens do not count.
        open_slots: (batch, tokens) bool, whether the slot left of each token is open.
    """
    second = segment_ids == 1
    of_x, of_y = (given & ~second).any(1, keepdims=True), (given & second).any(1, keepdims=True)
    frame = (token_ids == specials.cls_id) | (token_ids == specials.sep_id)
    ends_open = open_slots & ~np.where(second, of_y, of_x)
    return np.asarray(given | (frame & (of_x | of_y) & ~ends_open))


@dataclass(frozen=True)
class Generations:
    """Texts, their given tokens, and the round in which each other token is inserted.

    Args:
        token_ids: (batch, tokens), of complete texts or of canvases.
        segment_ids: (batch, tokens).
        present: (batch, tokens) bool, False at padding and at tokens that the factorization leaves out.
        given: (batch, tokens) bool, the result of `given_part`.
        marked: (batch, tokens) bool, whether a marker stands left of the token, which must be given.
        open_slots: (batch, tokens) bool, whether the slot left of the token (and of its marker) is open.
        rounds: (batch, tokens), the round in which a token is inserted, from 1; 0 for tokens present at the start.
        left_to_right: (batch,) bool, whether the row has the left-to-right order; its rounds are ignored.
        specials: the ids that frame a canvas.
    """

    token_ids: Integers
    segment_ids: Integers
    present: Booleans
    given: Booleans
    marked: Booleans
    open_slots: Booleans
    rounds: Integers
    left_to_right: Booleans
    specials: SpecialTokens


def generations_of(canvases: CanvasBatch, *, left_to_right: bool = False) -> Generations:
    """Describe canvases as generations with nothing missing and a single block each."""
    if canvases.given is None or canvases.marked is None:
        raise CanvasError("cached context needs the given tokens of each canvas; build the batch with `from_canvases`")
    return Generations(
        canvases.token_ids,
        canvases.segment_ids,
        canvases.valid,
        canvases.given,
        canvases.marked,
        canvases.open_slots,
        np.zeros_like(canvases.token_ids),
        np.full(len(canvases), left_to_right),
        canvases.specials,
    )


@dataclass(frozen=True)
class ContextRows:
    """The input of a network: the given tokens, then the blocks, each in text order; (batch, length) each.

    `blocks` holds `PADDING`, `GIVEN` or the number of the block. A token sees the tokens of its block whose `times` are
    not later. `left_to_right`, (batch,) bool, is the order of the row's blocks.
    """

    token_ids: Integers
    segment_ids: Integers
    positions: Floats
    blocks: Integers
    times: Integers
    left_to_right: Booleans

    @property
    def valid(self) -> Booleans:
        """(batch, length) bool, False at padding."""
        return np.asarray(self.blocks != PADDING)

    @property
    def orders(self) -> Integers:
        """(batch, length), 0 for given tokens and padding, 1 for tokens of a tree block, 2 of a left-to-right block."""
        return (self.blocks > GIVEN) * (1 + self.left_to_right.astype(np.int64))[:, None]

    @property
    def mask(self) -> Booleans:
        """(batch, length, length) bool, which tokens each token sees; padding sees itself, so that no row is empty."""
        blocks, times = self.blocks.astype(np.int16), self.times.astype(np.int16)
        seen = blocks[:, :, None] == blocks[:, None, :]
        if self.left_to_right.any():
            ordered = np.flatnonzero(self.left_to_right)
            seen[ordered] &= times[ordered, None, :] <= times[ordered, :, None]
        seen |= (blocks == GIVEN)[:, None, :]
        seen &= (blocks != PADDING)[:, :, None]
        diagonal = np.arange(seen.shape[1])
        seen[:, diagonal, diagonal] = True
        return np.asarray(seen)


@dataclass(frozen=True)
class Slots:
    """The open slots of all canvases of the rows, in order of row, canvas and place.

    Args:
        rows: (slots,) the row of each.
        rounds: (slots,) number of rounds before its canvas; 0 in a left-to-right row.
        numbers: (slots,) the index in the text of the token on its right; a slot left of a marker has the index of the
            marker's token.
        left: (slots,) its left neighbour, as row * length + place in the row.
        right: (slots,) its right neighbour; in a left-to-right row, the right end of its span.
        fresh: (slots,) bool, False where both neighbours are given and an earlier round has asked the slot already.
    """

    rows: Integers
    rounds: Integers
    numbers: Integers
    left: Integers
    right: Integers
    fresh: Booleans


@dataclass(frozen=True)
class RowLayout:
    """Generations laid out as rows.

    Args:
        lookup: (batch, rounds, tokens) the index, among all open slots, of the slot where a token missing in that round
            belongs; -1 where none is open.
    """

    rows: ContextRows
    slots: Slots
    lookup: Integers


def lay_out(texts: Generations, blank_id: int, blank_room: BlankRoom) -> RowLayout:
    """Lay out one row per text, with one block per round, or a single block for a left-to-right text."""
    items = _Items.of(texts, blank_id)
    last = np.where(texts.left_to_right, 0, texts.rounds.max(1))
    number = np.arange(int(last.max()) + 1)[:, None]
    # (batch, rounds, items): what each canvas holds besides the given part
    come = (items.rounds[:, None] <= number) | texts.left_to_right[:, None, None]
    in_block = (items.exists & ~items.given)[:, None] & come & (number <= last[:, None, None])
    positions, times = _positions_and_times(items, in_block, texts.left_to_right, blank_room)
    held = np.concatenate([(items.given | items.marker)[:, None], in_block], 1)
    batch, _, width = held.shape
    flat = held.reshape(batch, -1)
    place = (flat.cumsum(1) - 1).reshape(held.shape)  # of each held item in its row
    counts = flat.sum(1)
    length = int(counts.max())
    row, source = flat.nonzero()
    target = row * length + place.reshape(batch, -1)[row, source]
    item, block = source % width, source // width

    def laid(values: Array, fill: int, dtype: type) -> Array:
        out = np.full(batch * length, fill, dtype=dtype)
        out[target] = values
        return out.reshape(batch, length)

    rows = ContextRows(
        laid(items.token_ids[row, item], texts.specials.pad_id, np.int64),
        laid(items.segment_ids[row, item], 0, np.int64),
        laid(positions[row, block, item], 0, np.float32),
        laid(block, PADDING, np.int64),
        laid(times[row, block, item], 0, np.int64),
        texts.left_to_right,
    )
    slots, lookup = _slots(items, in_block, place, length, texts.left_to_right)
    return RowLayout(rows, slots, lookup)


@dataclass(frozen=True)
class _Items:
    """The tokens of texts with a place for a marker left of each: (batch, 2 * tokens)."""

    token_ids: Integers
    segment_ids: Integers
    exists: Booleans
    given: Booleans
    marker: Booleans
    inserted: Booleans
    cls: Booleans
    open: Booleans
    rounds: Integers

    @classmethod
    def of(cls, texts: Generations, blank_id: int) -> _Items:
        no = np.zeros_like(texts.present)
        ids, specials = texts.token_ids, texts.specials
        given = texts.given & texts.present
        marked = texts.marked & given
        frame = (ids == specials.cls_id) | (ids == specials.sep_id)
        return cls(
            token_ids=_alternate(np.full_like(ids, blank_id), ids),
            segment_ids=_alternate(texts.segment_ids, texts.segment_ids),
            exists=_alternate(marked, texts.present),
            given=_alternate(no, given),
            marker=_alternate(marked, no),
            inserted=_alternate(no, texts.present & ~given & ~frame),
            cls=_alternate(no, ids == specials.cls_id),
            open=_alternate(texts.open_slots & marked, texts.open_slots & texts.present & ~marked),
            rounds=_alternate(np.zeros_like(ids), texts.rounds),
        )

    @property
    def boundary(self) -> Booleans:
        """The items that separate the spans: all that are not inserted."""
        return self.exists & ~self.inserted

    @property
    def span_end(self) -> Booleans:
        """The items of blocks that close a span: markers, and each ``[SEP]`` that belongs to a block."""
        return self.boundary & ~self.given & self.open


def _alternate(markers: Array, tokens: Array) -> Array:
    return np.stack([markers, tokens], 2).reshape(len(tokens), -1)


def _positions_and_times(
    items: _Items, in_block: Booleans, left_to_right: Booleans, blank_room: BlankRoom
) -> tuple[Floats, Integers]:
    """Compute positions and times of the given items and of every block's; both (batch, 1 + rounds, items)."""
    second = items.segment_ids == 1
    offset = second * _FAR  # keeps the segments apart in running maxima and minima
    given_x, markers_x = ((flags & ~second).sum(1, keepdims=True) for flags in (items.given, items.marker))
    given, markers = items.given.cumsum(1), items.marker.cumsum(1)
    step_x = blank_room.step(given_x, markers_x)
    step_y = blank_room.step(given[:, -1:] - given_x, markers[:, -1:] - markers_x)
    before = given - 1 - second * (given_x - 1)
    # only valid for given items and markers
    fixed = before + np.where(second, step_y, step_x) * (markers - second * markers_x)
    low = np.maximum.accumulate(np.where(items.given, fixed + offset, offset), 1) - offset
    is_fixed = items.given | items.marker
    boundary = items.boundary
    ends = np.where(is_fixed, fixed + offset, np.where(boundary, offset + _FAR // 2, 3 * _FAR))
    room = _running_minimum_from_right(ends) - offset - low  # up to the next fixed position on the right
    inserted = in_block & items.inserted[:, None]
    count = inserted.cumsum(2, dtype=np.int32)
    boundary = boundary[:, None]
    at_start = _shifted(np.maximum.accumulate(count * boundary, 2), 0)
    rank = count - at_start  # of an inserted item in its span, from 1; at the span's end, how many it holds
    total = _running_minimum_from_right(np.where(boundary, count, np.int32(_FAR))) - at_start
    ordered = left_to_right[:, None, None]
    step = np.minimum(room[:, None].astype(np.float32) / (total + 1).astype(np.float32), np.float32(1))
    step = np.where(ordered, np.float32(1), step)
    free = np.where(inserted, low[:, None] + rank * step, np.where(ordered, 0, rank + 1))
    free[np.broadcast_to(items.cls[:, None], free.shape)] = 0
    positions = blank_room.within(np.where(items.marker[:, None], fixed[:, None], free)).astype(np.float32)
    positions = np.concatenate([fixed[:, None].astype(np.float32), positions], 1)
    times = np.zeros(positions.shape, dtype=np.int64)
    if left_to_right.any():
        begun = items.span_end.cumsum(1)[:, None]
        ending = np.where(items.span_end[:, None], begun + at_start, 0)
        times[:, 1:] = np.where(inserted, 1 + begun + count, ending) * ordered
    return positions, times


def _slots(
    items: _Items, in_block: Booleans, place: Integers, length: int, left_to_right: Booleans
) -> tuple[Slots, Integers]:
    """Find the open slots, and for every token the slot where it belongs in each canvas that lacks it."""
    there = items.given[:, None] | in_block
    width = there.shape[2]
    index = np.arange(width, dtype=np.int32)
    previous = _shifted(np.maximum.accumulate(np.where(there, index, np.int32(-1)), 2), -1)
    ordered = left_to_right[:, None, None]
    real = np.asarray(in_block.any(2, keepdims=True))  # a canvas of that round exists
    real[:, 0] = True
    is_open = there & items.open[:, None] & real & ~(ordered & items.given[:, None])
    rows, rounds, item = is_open.nonzero()
    left_item, right_item = previous[rows, rounds, item], item
    if left_to_right.any():
        ends = _running_minimum_from_right(np.where(items.boundary, index, width))
        right_item = np.where(left_to_right[rows], ends[rows, item], item)
    left_given, right_given = items.given[rows, left_item], items.given[rows, right_item]
    slots = Slots(
        rows,
        rounds,
        item // 2,
        rows * length + place[rows, np.where(left_given, 0, rounds + 1), left_item],
        rows * length + place[rows, np.where(right_given, 0, rounds + 1), right_item],
        (rounds == 0) | ~(left_given & right_given),
    )
    number = np.full((*there.shape[:2], width + 1), -1)
    number[rows, rounds, item] = np.arange(len(rows))
    following = _running_minimum_from_right(np.where(there, index, np.int32(width)))
    lookup = np.take_along_axis(number, following[:, :, 1::2].astype(np.int64), 2)
    return slots, lookup


def _shifted(values: Array, first: int) -> Array:
    """Move values one place to the right along the last axis."""
    out = np.empty_like(values)
    out[..., 0] = first
    out[..., 1:] = values[..., :-1]
    return out


def _running_minimum_from_right(values: Array) -> Array:
    return np.minimum.accumulate(values[..., ::-1], -1)[..., ::-1]
