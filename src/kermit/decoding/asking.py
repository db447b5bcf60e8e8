"""Query an engine about whole canvases: for likelihoods, ranking and inspecting a model.

Decoding itself reads canvases as they grow (`kermit.decoding.reading`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kermit.canvas import CanvasBatch
from kermit.canvas.arrays import Booleans, Integers
from kermit.canvas.context import ContextRows, Generations, RowLayout, generations_of, lay_out
from kermit.engines.engine import Answer, Asked, Cache, Engine, ModelInfo, Rows
from kermit.engines.given_rows import after_given


@dataclass(frozen=True)
class SlotAnswer:
    """An engine's predictions for open slots: the canvas of each, ascending, and its number there, (slots,)."""

    rows: Integers
    slots: Integers
    answer: Answer


@dataclass(frozen=True)
class GivenCache:
    """The given parts of canvases as an engine cached them; `valid` is (batch, length), False at padding."""

    cache: Cache
    valid: Booleans

    def select(self, rows: Integers) -> GivenCache:
        """Return the given parts of some rows, in that order; a row may be repeated."""
        return GivenCache(self.cache.select(rows), self.valid[rows])


def by_length(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield the numbers of texts with these lengths in batches of about the same length, the shortest first."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


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
        asked: (batch, length) bool, which of the open slots to ask about; all by default.
        wanted: (batch, length) for each asked slot the token whose log-probability to return.
        given: the given parts of the canvases, if they were read before.
        left_to_right: whether the spans are filled in order, each from left to right. Do not ask about
            later spans: they do not know yet what earlier ones hold.
    """
    chosen = canvases.open_slots if asked is None else canvases.open_slots & asked
    if not engine.info.cached_context:
        rows, slots = chosen.nonzero()
        right = rows * chosen.shape[1] + slots
        read = whole_rows(engine.info, canvases)
        tokens = None if wanted is None else wanted[rows, slots]
        answer = engine.ask(read, Asked(right - 1, right, top, full, tokens, keep=False))
    else:
        layout = lay_out_for(engine.info, generations_of(canvases, left_to_right=left_to_right))
        some = chosen[layout.slots.rows, layout.slots.numbers]
        rows, slots = layout.slots.rows[some], layout.slots.numbers[some]
        tokens = None if wanted is None else wanted[rows, slots]
        beside = layout.slots.left[some], layout.slots.right[some]
        answer = ask_rows(engine, layout.rows, Asked(*beside, top, full, tokens, keep=False), given)
    return SlotAnswer(rows, slots, answer)


def ask_rows(engine: Engine, rows: ContextRows, asked: Asked, given: GivenCache | None = None) -> Answer:
    """Ask about rows of cached context, without reading their given parts again if those were read before."""
    read = context_rows(rows)
    if given is not None:
        read, asked = after_given(read, given.cache, given.valid, asked, engine.info.specials.pad_id)
    return engine.ask(read, asked)


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
