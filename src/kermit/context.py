"""Cached context: given tokens attend to given tokens only, inserted tokens to the whole canvas.

*Given* is what a canvas holds at the start of a generation: the source of a translation, the text around blanks, a
passage. The states of given tokens do not depend on what is inserted, so all canvases of a generation share them. A
**row** holds the given tokens once and then one **block** for each canvas, its tokens that are not given; a block
attends to the given part and to itself. A row of a single block is a canvas to decode, a row with a block per round
trains a whole generation.

What a block holds beside inserted tokens:

- the ``[SEP]`` of a segment that is open and has nothing given. With nothing given at all, the whole canvas is the
  block, and this is the paper's model;
- a **marker** at the right end of each blank inside given text. It is read again in every round, so the slots of a
  blank know what the others hold.

In a **left-to-right** block tokens see what was inserted before them: the spans in order, each from left to right. The
right end of a span (its ``[SEP]`` or marker) comes first, and says that the span begins.

Positions restart in each segment. Given tokens are numbered in order, with room for `blank_width` tokens at each
marker; inserted tokens are numbered from their left given neighbour on, closer together where they are more than the
room. With nothing given these are the positions of the paper's model. This module knows no model and draws nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kermit.canvas import SpecialTokens
from kermit.errors import CanvasError

if TYPE_CHECKING:
    from kermit.canvas_batch import CanvasBatch

PADDING, GIVEN = -1, 0
"""Numbers of blocks: what is padded, and the given part; the blocks of canvases count from 1."""

_FAR = 2**20
"""Beyond all positions."""


def given_part(
    token_ids: Tensor, segment_ids: Tensor, given: Tensor, open_slots: Tensor, specials: SpecialTokens
) -> Tensor:
    """Add to given content the frame that belongs to it.

    With nothing given, nothing of the frame is. Otherwise all of it is but for the ``[SEP]`` of an open segment without
    given content, which is read again with what is inserted before it.

    Args:
        token_ids: (batch, tokens).
        segment_ids: (batch, tokens).
        given: (batch, tokens) bool, the given content; frame tokens do not count.
        open_slots: (batch, tokens) bool, whether the slot left of each token is open.
        specials: the ids that frame a canvas.

    Returns:
        (batch, tokens) bool.
    """
    by_segment = torch.stack([(given & (segment_ids == segment)).any(1) for segment in (0, 1)], 1)
    frame = (token_ids == specials.cls_id) | (token_ids == specials.sep_id)
    ends_open = open_slots & ~by_segment.gather(1, segment_ids)
    return given | (frame & given.any(1, keepdim=True) & ~ends_open)


@dataclass(frozen=True)
class Generations:
    """Texts, what of them is given, and in which round each other token is inserted.

    Args:
        token_ids: (batch, tokens), of complete texts, or of canvases as they are.
        segment_ids: (batch, tokens).
        present: (batch, tokens) bool, False at padding and at what the factorization leaves out.
        given: (batch, tokens) bool, of `given_part` and the content that is given.
        marked: (batch, tokens) bool, whether a marker stands left of the token, which must be given.
        open_slots: (batch, tokens) bool, whether the slot left of the token (and of its marker) is open.
        rounds: (batch, tokens), the round in which a token is inserted, from 1; 0 for what is there at the start.
        left_to_right: (batch,) bool, whether the row is of the left-to-right order; its rounds do not matter.
        specials: the ids that frame a canvas.
    """

    token_ids: Tensor
    segment_ids: Tensor
    present: Tensor
    given: Tensor
    marked: Tensor
    open_slots: Tensor
    rounds: Tensor
    left_to_right: Tensor
    specials: SpecialTokens


def generations_of(canvases: CanvasBatch, *, left_to_right: bool = False) -> Generations:
    """Canvases as they are: nothing is missing, and each has a single block.

    Args:
        canvases: the canvases, with what is given of them.
        left_to_right: whether they are of the left-to-right order.
    """
    if canvases.given is None or canvases.marked is None:
        raise CanvasError("cached context needs to know what of a canvas is given; make batches with `from_canvases`")
    return Generations(
        canvases.token_ids,
        canvases.segment_ids,
        canvases.valid,
        canvases.given,
        canvases.marked,
        canvases.open_slots,
        torch.zeros_like(canvases.token_ids),
        torch.full((len(canvases),), left_to_right, device=canvases.device),
        canvases.specials,
    )


@dataclass(frozen=True)
class ContextRows:
    """What a network reads: the given tokens, then the blocks, each in the order of the text.

    Args:
        token_ids: (batch, length).
        segment_ids: (batch, length).
        positions: (batch, length) float.
        blocks: (batch, length) `PADDING`, `GIVEN`, or the number of the block.
        times: (batch, length) a token sees those of its block that are no later.
        left_to_right: (batch,) bool, the order of the row's blocks.
    """

    token_ids: Tensor
    segment_ids: Tensor
    positions: Tensor
    blocks: Tensor
    times: Tensor
    left_to_right: Tensor

    @property
    def valid(self) -> Tensor:
        """(batch, length) bool, False at padding."""
        return self.blocks != PADDING

    def mask(self) -> Tensor:
        """(batch, 1, length, length) bool, what each token sees; padding sees itself, so that no row is empty."""
        own, other = self.blocks[:, :, None], self.blocks[:, None, :]
        seen = (other == GIVEN) | ((own == other) & (self.times[:, None, :] <= self.times[:, :, None]))
        seen = seen & (own != PADDING) | torch.eye(own.shape[1], dtype=torch.bool, device=own.device)
        return seen[:, None]


@dataclass(frozen=True)
class Slots:
    """The open slots of all canvases of the rows, by row, canvas and place.

    Args:
        rows: (slots,) the row of each.
        rounds: (slots,) how many rounds its canvas has had; 0 in a left-to-right row.
        numbers: (slots,) the token that it is left of, by its number in the text; a marker's counts as its token's.
        left: (slots,) the left neighbour that it is read from, as row * length + place in the row.
        right: (slots,) the right neighbour; the right end of its span in a left-to-right row.
        fresh: (slots,) bool, False where both neighbours are given and the slot was asked in an earlier round already.
    """

    rows: Tensor
    rounds: Tensor
    numbers: Tensor
    left: Tensor
    right: Tensor
    fresh: Tensor


@dataclass(frozen=True)
class RowLayout:
    """Generations laid out as rows.

    Args:
        rows: what the network reads.
        slots: the open slots.
        lookup: (batch, rounds, tokens) the number, among all open slots, of the slot that a token missing in that round
            belongs in; -1 where none is open.
    """

    rows: ContextRows
    slots: Slots
    lookup: Tensor


def lay_out(texts: Generations, blank_id: int, blank_width: int) -> RowLayout:
    """Lay out one row per text, with one block per round (of a left-to-right text: one block).

    Args:
        texts: the texts and what happens to them.
        blank_id: the token that marks a blank.
        blank_width: how many positions a blank has room for.
    """
    items = _Items.of(texts, blank_id)
    last = torch.where(texts.left_to_right, 0, texts.rounds.amax(1))
    number = torch.arange(int(last.max()) + 1, device=last.device)[:, None]
    # (batch, rounds, items): what each canvas holds beside the given part
    come = (items.rounds[:, None] <= number) | texts.left_to_right[:, None, None]
    in_block = (items.exists & ~items.given)[:, None] & come & (number <= last[:, None, None])
    positions, times = _positions_and_times(items, in_block, texts.left_to_right, blank_width)
    held = torch.cat([items.given[:, None], in_block], 1)
    flat = held.flatten(1)
    place = (flat.cumsum(1) - 1).view(held.shape)  # of each held item in its row
    length = int(flat.sum(1).max())
    source = place.new_zeros(len(flat), length + 1)
    numbers = torch.arange(flat.shape[1], device=flat.device).expand_as(flat)
    source = source.scatter_(1, torch.where(flat, place.flatten(1), length), numbers)[:, :length]
    item, block = source % held.shape[2], source // held.shape[2]
    blocks = torch.where(torch.arange(length, device=flat.device) < flat.sum(1, keepdim=True), block, PADDING)
    rows = ContextRows(
        items.token_ids.gather(1, item).where(blocks != PADDING, texts.specials.pad_id),
        items.segment_ids.gather(1, item).where(blocks != PADDING, 0),
        positions.flatten(1).gather(1, source).where(blocks != PADDING, 0),
        blocks,
        times.flatten(1).gather(1, source).where(blocks != PADDING, 0),
        texts.left_to_right,
    )
    slots, lookup = _slots(items, in_block, place, length, texts.left_to_right)
    return RowLayout(rows, slots, lookup)


@dataclass(frozen=True)
class _Items:
    """The tokens of texts with a place for a marker left of each: (batch, 2 * tokens)."""

    token_ids: Tensor
    segment_ids: Tensor
    exists: Tensor
    given: Tensor
    marker: Tensor
    inserted: Tensor
    cls: Tensor
    open: Tensor
    rounds: Tensor

    @classmethod
    def of(cls, texts: Generations, blank_id: int) -> _Items:
        no = torch.zeros_like(texts.present)
        ids, specials = texts.token_ids, texts.specials
        given = texts.given & texts.present
        marked = texts.marked & given
        frame = (ids == specials.cls_id) | (ids == specials.sep_id)
        return cls(
            token_ids=_alternate(torch.full_like(ids, blank_id), ids),
            segment_ids=_alternate(texts.segment_ids, texts.segment_ids),
            exists=_alternate(marked, texts.present),
            given=_alternate(no, given),
            marker=_alternate(marked, no),
            inserted=_alternate(no, texts.present & ~given & ~frame),
            cls=_alternate(no, ids == specials.cls_id),
            open=_alternate(texts.open_slots & marked, texts.open_slots & texts.present & ~marked),
            rounds=_alternate(torch.zeros_like(ids), texts.rounds),
        )

    @property
    def boundary(self) -> Tensor:
        """What parts the spans: all that is not inserted."""
        return self.exists & ~self.inserted

    @property
    def span_end(self) -> Tensor:
        """The items of blocks that close a span: markers, and each ``[SEP]`` that is read with what comes before it."""
        return self.boundary & ~self.given & self.open


def _alternate(markers: Tensor, tokens: Tensor) -> Tensor:
    return torch.stack([markers, tokens], 2).flatten(1)


def _positions_and_times(
    items: _Items, in_block: Tensor, left_to_right: Tensor, blank_width: int
) -> tuple[Tensor, Tensor]:
    """Positions and times of the given items and of every block's; both (batch, 1 + rounds, items)."""
    second = items.segment_ids == 1
    offset = second * _FAR  # keeps the segments apart in running maxima and minima
    before = items.given.cumsum(1) - 1 - second * ((items.given & ~second).sum(1, keepdim=True) - 1)
    markers = items.marker.cumsum(1) - second * (items.marker & ~second).sum(1, keepdim=True)
    fixed = before + (blank_width + 1) * markers  # right for given items and for markers
    low = torch.where(items.given, fixed + offset, offset).cummax(1).values - offset
    is_fixed = items.given | items.marker
    ends = torch.where(is_fixed, fixed + offset, torch.where(items.boundary, offset + _FAR // 2, 3 * _FAR))
    room = _running_minimum_from_right(ends) - offset - low  # up to the next fixed position on the right
    inserted = in_block & items.inserted[:, None]
    count = inserted.cumsum(2)
    boundary = items.boundary[:, None]
    at_start = torch.nn.functional.pad(count.where(boundary, 0).cummax(2).values[:, :, :-1], (1, 0))
    rank = count - at_start  # of an inserted item in its span, from 1; at the span's end, how many it holds
    total = _running_minimum_from_right(count.where(boundary, _FAR)) - at_start
    ordered = left_to_right[:, None, None]
    step = torch.where(ordered, 1.0, (room[:, None] / (total + 1)).clamp(max=1.0))
    free = torch.where(inserted, low[:, None] + rank * step, torch.where(ordered, 0.0, rank + 1.0))
    positions = torch.where(items.marker[:, None], fixed[:, None].float(), free.masked_fill(items.cls[:, None], 0.0))
    begun = items.span_end.cumsum(1)[:, None]
    times = torch.where(inserted, 1 + begun + count, torch.where(items.span_end[:, None], begun + at_start, 0))
    positions = torch.cat([fixed[:, None].float(), positions], 1)
    times = torch.cat([torch.zeros_like(fixed)[:, None], times.where(ordered, 0)], 1)
    return positions, times


def _slots(items: _Items, in_block: Tensor, place: Tensor, length: int, left_to_right: Tensor) -> tuple[Slots, Tensor]:
    """The open slots, and the slot that an item missing from each canvas belongs in, by its token."""
    there = items.given[:, None] | in_block
    index = torch.arange(there.shape[2], device=there.device).expand(there.shape)
    previous = torch.nn.functional.pad(index.where(there, -1).cummax(2).values[:, :, :-1], (1, 0), value=-1)
    ordered = left_to_right[:, None, None]
    real = in_block.any(2, keepdim=True)  # a canvas of that round exists
    real[:, 0] = True
    is_open = there & items.open[:, None] & real & ~(ordered & items.given[:, None])
    rows, rounds, item = is_open.nonzero(as_tuple=True)
    ends = _running_minimum_from_right(index.where(items.boundary[:, None], there.shape[2]))
    left_item, right_item = previous[is_open], torch.where(ordered, ends, index)[is_open]

    def located(item: Tensor) -> Tensor:
        block = torch.where(items.given[rows, item], 0, rounds + 1)
        return rows * length + place[rows, block, item]

    fresh = (rounds == 0) | ~(items.given[rows, left_item] & items.given[rows, right_item])
    slots = Slots(rows, rounds, item // 2, located(left_item), located(right_item), fresh)
    number = torch.full(there.shape, -1, device=there.device)
    number[is_open] = torch.arange(len(rows), device=there.device)
    following = _running_minimum_from_right(index.where(there, there.shape[2]))
    lookup = torch.nn.functional.pad(number, (0, 1), value=-1).gather(2, following)
    return slots, lookup[:, :, 1::2]


def _running_minimum_from_right(values: Tensor) -> Tensor:
    return values.flip(-1).cummin(-1).values.flip(-1)
