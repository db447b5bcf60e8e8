"""Rows of cached context in two parts: the given tokens, and what is read after them.

A row holds its given tokens first, perhaps padding, and then its block. NumPy only; no engine.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kermit.canvas.arrays import Booleans, Integers
from kermit.engines.engine import Asked, Cache, Rows


def given_rows(rows: Rows, pad_id: int) -> Rows:
    """Return the given parts of rows; of length 0 if nothing is given.

    Where all blocks start at the same place, they are what stands before it, padding included.
    """
    given = (rows.orders == 0) & (rows.token_ids != pad_id)
    starts = _starts(rows)
    width = int(given.sum(1).max())
    if width and (starts == starts[0]).all():
        width = int(starts[0])
    given = given[:, :width]
    mask = (given[:, None, :] & given[:, :, None]) | np.eye(width, dtype=bool)
    token_ids = np.where(given, rows.token_ids[:, :width], pad_id)
    return Rows(
        token_ids,
        np.ascontiguousarray(rows.segment_ids[:, :width]),
        np.ascontiguousarray(rows.positions[:, :width]),
        np.zeros_like(token_ids),
        mask,
    )


def after_given(rows: Rows, cache: Cache, valid: Booleans, asked: Asked, pad_id: int) -> tuple[Rows, Asked]:
    """Return the blocks of rows whose given tokens were read before, and the slots by their places after the cache.

    `valid` is (batch, cache.length) bool, False at the padding of the cache.
    """
    batch, length = rows.token_ids.shape
    of_block, past, starts = rows.orders > 0, cache.length, _starts(rows)
    width = max(1, int(of_block.sum(1).max()))
    place = np.arange(width) + starts[:, None]  # of the tokens of blocks in the rows
    at = (np.arange(batch)[:, None], np.minimum(place, length - 1))
    in_block = of_block[at] & (place < length)
    own = rows.mask[at[0][:, :, None], at[1][:, :, None], at[1][:, None, :]] & in_block[:, :, None] & in_block[:, None]
    own |= np.eye(width, dtype=bool)
    mask = np.concatenate([valid[:, None, :] & in_block[:, :, None], own], 2)
    token_ids = np.where(in_block, rows.token_ids[at], pad_id)
    segment_ids, positions, orders = (p[at] * in_block for p in (rows.segment_ids, rows.positions, rows.orders))

    def moved(index: Integers) -> Integers:
        row, old = index // length, index % length
        shift = np.where(old < starts[row], 0, past - starts[row])
        return np.asarray(row * (past + width) + old + shift)

    read = Rows(token_ids, segment_ids, positions, orders, mask, cache)
    return read, replace(asked, left=moved(asked.left), right=moved(asked.right))


def _starts(rows: Rows) -> Integers:
    """Return (batch,), the places where blocks start; the end of a row without a block."""
    of_block = rows.orders > 0
    return np.asarray(np.where(of_block.any(1), of_block.argmax(1), of_block.shape[1]))
