"""Ask about canvases as they are, all at once: for likelihoods, ranking and inspecting a model.

Decoding itself reads canvases as they grow (`kermit.decoding.reading`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kermit.canvas import CanvasBatch
from kermit.canvas.arrays import Booleans, Floats, Integers
from kermit.canvas.context import GIVEN, ContextRows, Generations, RowLayout, generations_of, lay_out
from kermit.engines.engine import Answer, Asked, Cache, Engine, ModelInfo, Rows


@dataclass(frozen=True)
class SlotAnswer:
    """What an engine says about open slots of canvases, row by row.

    Args:
        rows: (slots,) the canvas of each, ascending.
        slots: (slots,) its number in that canvas.
        answer: what the engine says about them.
    """

    rows: Integers
    slots: Integers
    answer: Answer


@dataclass(frozen=True)
class GivenCache:
    """The given parts of canvases as an engine cached them.

    Args:
        cache: one row per canvas.
        valid: (batch, cache.length) bool, False at padding.
    """

    cache: Cache
    valid: Booleans

    def select(self, rows: Integers) -> GivenCache:
        """Return the given parts of some rows, in that order; a row may be repeated."""
        return GivenCache(self.cache.select(rows), self.valid[rows])


def ask_canvases(
    engine: Engine,
    canvases: CanvasBatch,
    *,
    asked: Booleans | None = None,
    wanted: Integers | None = None,
    given: GivenCache | None = None,
    left_to_right: bool = False,
    top: int = 1,
    full: bool = False,
) -> SlotAnswer:
    """Ask about open slots of canvases.

    Args:
        engine: the network.
        canvases: the canvases; with cached context, with what is given of them.
        asked: (batch, length) bool, which of the open slots to ask about; all by default.
        wanted: (batch, length) for each asked slot the token whose log-probability to return.
        given: the given parts of the canvases, if they were read before.
        left_to_right: whether the spans are filled in order, each from left to right. Do not ask about
            later spans: they do not know yet what earlier ones hold.
        top: number of best tokens to return.
        full: whether to return the log-probabilities of the whole vocabulary.
    """
    chosen = canvases.open_slots if asked is None else canvases.open_slots & asked
    if not engine.info.cached_context:
        rows, slots = chosen.nonzero()
        right = rows * chosen.shape[1] + slots
        left, read = right - 1, whole_rows(engine.info, canvases)
    else:
        layout = lay_out_for(engine.info, generations_of(canvases, left_to_right=left_to_right))
        some = chosen[layout.slots.rows, layout.slots.numbers]
        rows, slots = layout.slots.rows[some], layout.slots.numbers[some]
        beside = layout.slots.left[some], layout.slots.right[some]
        read, left, right = after_given(layout.rows, given, *beside, engine.info.specials.pad_id)
    tokens = None if wanted is None else wanted[rows, slots]
    return SlotAnswer(rows, slots, engine.ask(read, Asked(left, right, top, full, tokens, keep=False)))


def states_of(engine: Engine, canvases: CanvasBatch) -> Floats:
    """Return the final states of what a network reads of canvases, (batch, length, hidden); [CLS] comes first."""
    if not engine.info.cached_context:
        return engine.hidden(whole_rows(engine.info, canvases))
    return engine.hidden(context_rows(lay_out_for(engine.info, generations_of(canvases)).rows))


def whole_rows(info: ModelInfo, canvases: CanvasBatch) -> Rows:
    """Return canvases as rows of which every token sees every other."""
    length = canvases.token_ids.shape[1]
    positions = np.broadcast_to(np.arange(length), canvases.token_ids.shape)
    if info.restarts:
        of_x = (canvases.valid & (canvases.segment_ids == 0)).sum(1, keepdims=True)
        positions = positions - canvases.segment_ids * (of_x - 1)
    mask = canvases.valid[:, None, :] & canvases.valid[:, :, None]
    diagonal = np.arange(length)
    mask[:, diagonal, diagonal] = True
    return Rows(
        canvases.token_ids,
        canvases.segment_ids,
        (positions * canvases.valid).astype(np.float32),
        np.zeros_like(canvases.token_ids),
        mask,
    )


def context_rows(rows: ContextRows) -> Rows:
    """Return rows of cached context as an engine takes them."""
    return Rows(rows.token_ids, rows.segment_ids, rows.positions, rows.orders, rows.mask)


def after_given(
    rows: ContextRows, given: GivenCache | None, left: Integers, right: Integers, pad_id: int
) -> tuple[Rows, Integers, Integers]:
    """Leave out the given parts of rows if they were read before.

    Args:
        rows: given parts and blocks.
        given: the given parts; None to read them with the rows.
        left: (slots,) the left neighbours, as row * length + place.
        right: (slots,) the right neighbours.
        pad_id: the id of padding.

    Returns:
        What to read, and the neighbours by their places after those of the cache.
    """
    if given is None:
        return context_rows(rows), left, right
    batch, length = rows.token_ids.shape
    past = given.cache.length
    counts = (rows.blocks == GIVEN).sum(1)
    width = int(((rows.blocks > GIVEN).sum(1)).max())
    place = np.arange(width) + counts[:, None]  # of the tokens of blocks in the rows
    there = place < length
    at = (np.arange(batch)[:, None], np.minimum(place, length - 1))
    own = rows.mask[at[0][:, :, None], at[1][:, :, None], at[1][:, None, :]] & there[:, :, None] & there[:, None, :]
    own |= np.eye(width, dtype=bool)
    in_block = there & (rows.blocks[at] > GIVEN)
    mask = np.concatenate([given.valid[:, None, :] & in_block[:, :, None], own], 2)
    token_ids = np.where(in_block, rows.token_ids[at], pad_id)
    segment_ids, positions, orders = (p[at] * in_block for p in (rows.segment_ids, rows.positions, rows.orders))

    def moved(index: Integers) -> Integers:
        row, old = index // length, index % length
        shift = np.where(old < counts[row], 0, past - counts[row])
        return np.asarray(row * (past + width) + old + shift)

    return Rows(token_ids, segment_ids, positions, orders, mask, given.cache), moved(left), moved(right)


def lay_out_for(info: ModelInfo, texts: Generations) -> RowLayout:
    """Lay out generations as rows of a model's cached context."""
    assert info.blank_id is not None
    return lay_out(texts, info.blank_id, info.blank_room)
