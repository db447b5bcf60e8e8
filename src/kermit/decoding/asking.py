"""Asking about canvases as they are, all at once: likelihoods and ranking do, and whoever wants to look at a model.

Decoding itself reads canvases as they grow (`kermit.decoding.reading`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kermit.canvas import CanvasBatch
from kermit.canvas.arrays import Booleans, Floats, Integers
from kermit.canvas.context import ContextRows, Generations, RowLayout, generations_of, lay_out
from kermit.engines.engine import Answer, Asked, Engine, ModelInfo, Rows


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


def ask_canvases(
    engine: Engine,
    canvases: CanvasBatch,
    *,
    asked: Booleans | None = None,
    left_to_right: bool = False,
    top: int = 1,
    full: bool = False,
) -> SlotAnswer:
    """Ask about open slots of canvases.

    Args:
        engine: the network.
        canvases: the canvases; with cached context, with what is given of them.
        asked: (batch, length) bool, which of the open slots to ask about; all by default.
        left_to_right: whether the spans are filled in order, each from left to right. Slots of later spans do not know
            yet what earlier ones hold, and are not to be asked.
        top: number of best tokens to return.
        full: whether to return the log-probabilities of the whole vocabulary.
    """
    wanted = canvases.open_slots if asked is None else canvases.open_slots & asked
    if not engine.info.cached_context:
        rows, slots = wanted.nonzero()
        right = rows * wanted.shape[1] + slots
        answer = engine.ask(whole_rows(engine.info, canvases), Asked(right - 1, right, top, full))
        return SlotAnswer(rows, slots, answer)
    layout = lay_out_for(engine.info, generations_of(canvases, left_to_right=left_to_right))
    chosen = wanted[layout.slots.rows, layout.slots.numbers]
    question = Asked(layout.slots.left[chosen], layout.slots.right[chosen], top, full)
    answer = engine.ask(context_rows(layout.rows), question)
    return SlotAnswer(layout.slots.rows[chosen], layout.slots.numbers[chosen], answer)


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


def lay_out_for(info: ModelInfo, texts: Generations) -> RowLayout:
    """Lay out generations as rows of a model's cached context."""
    assert info.blank_id is not None
    return lay_out(texts, info.blank_id, info.blank_room)
