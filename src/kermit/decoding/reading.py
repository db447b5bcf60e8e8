"""What a batch reads in each round of decoding, and what its engine caches between rounds.

- A model with full attention reads whole canvases every round.
- With cached context, the first call reads given parts and blocks together. If the engine caches, later rounds read
  only the blocks.
- From left to right, tokens never see later ones, so the engine keeps inserted tokens too: every call reads one new
  token per row, the one that was inserted last or the end of the span that begins.

None of this changes what a text decodes to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from kermit.canvas.arrays import Array, Booleans, Floats, Integers
from kermit.decoding.asking import GivenCache
from kermit.decoding.growing_canvases import OPEN, PLACE, ROW, SEGMENT, SPAN, TOKEN, Given, Growing
from kermit.engines.engine import Answer, Asked, Cache, Engine, Rows

IN_ROUNDS, LEFT_TO_RIGHT = 1, 2
"""The orders of blocks, as `kermit.engines.engine.Rows` numbers them."""


class Reading(ABC):
    """Reads canvases through an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._first: tuple[Cache, Given] | None = None  # what the first round read
        self._last: tuple[Rows, Integers, Integers] | None = None
        self._shared: tuple[Integers, Integers] | None = None

    def ask(self, text: Growing, slots: Integers, *, top: int, full: bool) -> Answer:
        """Read what is to be read in this round, and ask about the slots left of these items, (slots,) ascending."""
        rows, left, right = self.rows(text, slots)
        self._last, self._shared = (rows, left, right), None
        answer = self.engine.ask(rows, Asked(left, right, top, full, keep=self.keeps))
        if answer.cache is not None:
            self._first = self._first or (answer.cache, text.given)
            self.keep(answer.cache)
        return answer

    @property
    def given(self) -> GivenCache | None:
        """The given parts of the first round's rows; None if nothing is given, or if the engine does not cache."""
        if self._first is None or not self._first[1].valid.size:
            return None
        cache, given = self._first
        return GivenCache(cache.first(given.valid.shape[1]), given.valid)

    @property
    def keeps(self) -> bool:
        """Whether what this round reads is needed in later ones."""
        return False

    def ask_fully(self) -> Answer:
        """Ask the last round's slots again, for the whole vocabulary."""
        assert self._last is not None
        rows, left, right = self._last
        answer = self.engine.ask(rows, Asked(left, right, full=True, keep=False))
        return answer if self._shared is None else _spread(answer, *self._shared)

    def share(self, answer: Answer, rows: Integers, slots: Integers) -> Answer:
        """Continue several rows from one each; return the answer of its slots, (new slots,) indices into `answer`."""
        self.select(rows)
        self._shared = rows, slots
        return _spread(answer, rows, slots)

    def keep(self, cache: Cache) -> None:
        """Cache what was read for later rounds; whole canvases are read again instead."""
        del cache

    def select(self, rows: Integers) -> None:
        """Keep some of the rows; a row may be repeated."""
        del rows

    @abstractmethod
    def rows(self, text: Growing, slots: Integers) -> tuple[Rows, Integers, Integers]:
        """Return what to read, and the left and right neighbours of the slots, as row * length + place."""


def _spread(answer: Answer, rows: Integers, slots: Integers) -> Answer:
    return Answer(
        answer.tokens[slots],
        answer.log_probs[slots],
        answer.end[slots],
        answer.location[slots],
        None if answer.stop is None else answer.stop[rows],
        None if answer.completion is None else answer.completion[slots],
        None if answer.content is None else answer.content[slots],
    )


def reading_of(engine: Engine, *, left_to_right: bool) -> Reading:
    """Return the way in which an engine's canvases are read."""
    if not engine.info.cached_context:
        return WholeCanvases(engine)
    return InOrder(engine) if left_to_right else Blocks(engine)


class WholeCanvases(Reading):
    """Every token of every canvas, every round."""

    def rows(self, text: Growing, slots: Integers) -> tuple[Rows, Integers, Integers]:
        """Return whole canvases."""
        planes, batch = text.planes, len(text)
        row, segment = planes[ROW], planes[SEGMENT]
        length = int(text.lengths.max())
        place = np.arange(planes.shape[1]) - text.starts[row]
        positions = place
        if self.engine.info.restarts:
            of_x = text.lengths - np.bincount(row, weights=segment, minlength=batch).astype(np.int64)
            positions = place - segment * (of_x[row] - 1)
        right = row[slots] * length + place[slots]
        if batch == 1:
            token_ids, segment_ids, where = planes[TOKEN][None], segment[None], positions[None].astype(np.float32)
            mask = np.full((1, length, length), True)
        else:
            at = (row, place, (batch, length))
            token_ids, segment_ids = _padded(planes[TOKEN], *at, text.specials.pad_id), _padded(segment, *at, 0)
            where = _padded(positions.astype(np.float32), *at, 0)
            valid = np.arange(length) < text.lengths[:, None]
            mask = _block_mask(np.zeros((batch, 0), dtype=bool), valid)
        return Rows(token_ids, segment_ids, where, np.zeros_like(token_ids), mask), right - 1, right


class Blocks(Reading):
    """The given parts once, or every round if the engine does not cache; the blocks every round."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._cache: Cache | None = None

    @property
    def keeps(self) -> bool:
        """Whether this is the first round."""
        return self._cache is None

    def keep(self, cache: Cache) -> None:
        """Keep the given parts."""
        assert self._first is not None
        self._cache = cache.first(self._first[1].valid.shape[1])

    def select(self, rows: Integers) -> None:
        """Keep some of the rows; a row may be repeated."""
        if self._cache is not None:
            self._cache = self._cache.select(rows)

    def rows(self, text: Growing, slots: Integers) -> tuple[Rows, Integers, Integers]:
        """Return blocks, after the given parts if those are not cached."""
        planes, given, batch = text.planes, text.given, len(text)
        past = given.token_ids.shape[1]
        in_block = planes[PLACE] < 0
        if text.has_markers:
            in_block |= planes[OPEN] > 0
        items = in_block.nonzero()[0]
        block = planes[:, items]
        row, token = block[ROW], block[TOKEN]
        marker = None
        if text.has_markers:
            marker = block[PLACE] >= 0
            token = np.where(marker, np.int64(text.blank_id or 0), token)
        place = np.arange(len(items))
        length = len(items)
        if batch > 1:
            counts = np.bincount(row, minlength=batch)
            place -= (counts.cumsum() - counts)[row]
            length = int(counts.max())
        width = past + length
        at = planes[PLACE].copy()  # of every canvas token in its row
        at[items] = own = past + place
        right = at[slots]
        if marker is not None:
            at[items] = np.where(marker, block[PLACE], own)
        left = at[slots - 1]
        if batch > 1:
            start = planes[ROW, slots] * width
            left, right = start + left, start + right
        positions = _positions(text, block[SPAN], marker)
        if batch == 1:
            part = (token[None], block[SEGMENT][None], positions[None])
            valid = np.full((1, length), True)
        else:
            where = (row, place, (batch, length))
            part = (
                _padded(token, *where, text.specials.pad_id),
                _padded(block[SEGMENT], *where, 0),
                _padded(positions, *where, 0),
            )
            valid = np.arange(length) < counts[:, None]
        mask = _block_mask(given.valid, valid)
        if self._cache is not None:
            return Rows(*part, valid.astype(np.int64), mask, self._cache), left, right
        return _after_given(given, part, valid, mask, IN_ROUNDS), left, right


class InOrder(Reading):
    """One new token per row and call, after all that was read before."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._read: Rows | None = None  # all of it, for an engine that does not cache
        self._cache: Cache | None = None
        self._seen: Booleans = np.zeros((0, 0), dtype=bool)  # (batch, length), what was read and is no padding
        self._end: Integers = np.zeros(0, dtype=np.int64)  # (batch,) the place of the end of the span being filled

    @property
    def keeps(self) -> bool:
        """Whether what was read is needed: always."""
        return True

    def keep(self, cache: Cache) -> None:
        """Keep everything that was read."""
        self._cache, self._read = cache, None

    def select(self, rows: Integers) -> None:
        """Keep some of the rows; a row may be repeated."""
        self._seen, self._end = self._seen[rows], self._end[rows]
        if self._cache is not None:
            self._cache = self._cache.select(rows)
        if (read := self._read) is not None:
            self._read = Rows(
                read.token_ids[rows], read.segment_ids[rows], read.positions[rows], read.orders[rows], read.mask[rows]
            )

    def rows(self, text: Growing, slots: Integers) -> tuple[Rows, Integers, Integers]:
        """Return the next token of every row; `slots` holds the end of one span per row."""
        planes, tables, batch = text.planes, text.spans, len(text)
        span, read = planes[SPAN, slots], self._read
        if not len(self._end):
            read = self._start(text)
            self._seen, self._end = read.token_ids != text.specials.pad_id, np.zeros(batch, dtype=np.int64)
        begins = planes[PLACE, slots - 1] >= 0  # else the token left of the slot came last
        past = self._seen.shape[1]
        items = np.where(begins, slots, slots - 1)
        marker = planes[PLACE, items] >= 0
        rank = slots - planes[SPAN].searchsorted(span)  # of the token that came last, from 1
        position = np.where(begins, np.where(marker, tables.fixed[span], 0), tables.low[span] + rank)
        token = np.where(marker, np.int64(text.blank_id or 0), planes[TOKEN, items])
        self._end = np.where(begins, past, self._end)
        planes[PLACE, items] = np.where(marker, planes[PLACE, items], past)
        position = text.blank_room.within(position).astype(np.float32)
        new = (token[:, None], planes[SEGMENT, items][:, None], position[:, None])
        self._seen = np.concatenate([self._seen, np.ones((batch, 1), dtype=bool)], 1)
        see, order = self._seen[:, None], np.full((batch, 1), LEFT_TO_RIGHT)
        row = np.arange(batch) * (past + 1)
        left, right = row + planes[PLACE, slots - 1], row + self._end
        if read is None:
            return Rows(*new, order, see, self._cache), left, right
        self._read = _appended(read, new, order, see)
        return self._read, left, right

    def _start(self, text: Growing) -> Rows:
        """Return what is there before the first span begins: given tokens, or the frame if nothing is given."""
        planes, given, batch = text.planes, text.given, len(text)
        items = np.flatnonzero((planes[PLACE] < 0) & (planes[OPEN] == 0))
        row = planes[ROW, items]
        counts = np.bincount(row, minlength=batch)
        past, length = given.token_ids.shape[1], int(counts.max())
        place = np.arange(len(items)) - (counts.cumsum() - counts)[row]
        where = (row, place, (batch, length))
        part = (
            _padded(planes[TOKEN, items], *where, text.specials.pad_id),
            _padded(planes[SEGMENT, items], *where, 0),
            np.zeros((batch, length), dtype=np.float32),
        )
        planes[PLACE, items] = past + place
        valid = np.arange(length) < counts[:, None]
        return _after_given(given, part, valid, _block_mask(given.valid, valid), LEFT_TO_RIGHT)


def _positions(text: Growing, span: Integers, marker: Booleans | None) -> Floats:
    """Return (items,), the positions of the items of blocks, numbered anew in each span; None for no markers."""
    tables = text.spans
    counts = np.bincount(span, minlength=len(tables.low))  # tokens of each span, its end included
    rank = np.arange(1, len(span) + 1) - (counts.cumsum() - counts)[span]
    if marker is None:
        return text.blank_room.within(tables.low[span] + rank).astype(np.float32)
    step = np.minimum(tables.room[span] / counts[span], 1)
    found = text.blank_room.within(tables.low[span] + rank * step)
    return np.where(marker, tables.fixed[span], found).astype(np.float32)


def _padded(values: Array, row: Integers, place: Integers, shape: tuple[int, int], fill: int) -> Array:
    """Return (batch, length) with values at these places."""
    out = np.full(shape, fill, dtype=values.dtype)
    out[row, place] = values
    return out


def _block_mask(given: Booleans, valid: Booleans) -> Booleans:
    """Return (batch, length, given + length) bool: blocks see given parts and themselves; padding sees itself."""
    batch, length = valid.shape
    past = given.shape[1]
    if batch == 1:  # the block is not padded, but what was given beside longer texts may be
        mask = np.empty((1, length, past + length), dtype=bool)
        mask[:, :, :past] = given
        mask[:, :, past:] = True
        return mask
    seen = np.concatenate([given, valid], 1)
    mask = seen[:, None, :] & valid[:, :, None]
    diagonal = np.arange(length)
    mask[:, diagonal, past + diagonal] = True
    return mask


def _after_given(
    given: Given, part: tuple[Integers, Integers, Floats], valid: Booleans, mask: Booleans, order: int
) -> Rows:
    """Return rows of given parts and blocks."""
    seen = (given.valid[:, None, :] & given.valid[:, :, None]) | np.eye(given.valid.shape[1], dtype=bool)
    read = Rows(given.token_ids, given.segment_ids, given.positions, np.zeros_like(given.token_ids), seen)
    return _appended(read, part, valid.astype(np.int64) * order, mask)


def _appended(read: Rows, new: tuple[Integers, Integers, Floats], orders: Integers, see: Booleans) -> Rows:
    """Return rows followed by new tokens, which see what `see`, (batch, new, length + new), says."""
    batch, length = read.token_ids.shape
    mask = np.zeros((batch, see.shape[2], see.shape[2]), dtype=bool)
    mask[:, :length, :length] = read.mask
    mask[:, length:] = see
    return Rows(
        np.concatenate([read.token_ids, new[0]], 1),
        np.concatenate([read.segment_ids, new[1]], 1),
        np.concatenate([read.positions, new[2]], 1),
        np.concatenate([read.orders, orders], 1),
        mask,
    )
