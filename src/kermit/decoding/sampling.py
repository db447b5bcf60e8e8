"""Draw tokens so that a draw depends only on the text's seed, the round and the slot.

A draw needs one uniform number per slot. It is hashed from the text's seed, the round and the slot, so what a text
decodes to does not depend on which other texts share its batch. From it every token gets a waiting time, hashed too,
and the first to arrive is drawn, so rounding, which differs between batches, matters only where two nearly tie. A
token's waiting time does not depend on which others can be drawn, so a draw from the k best is the same whether an
engine returned only those or the whole vocabulary.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from kermit.canvas.arrays import Array, Integers
from kermit.decoding.settings import Sampling

_CONTENT, _LOCATION = 0, 1
_LIMITS = np.finfo(np.float32)


def uniform(seeds: Integers, number: int, slots: Integers | None = None) -> Array:
    """Return (items,) uniform numbers in (0, 1), hashed from seed, round and slot with splitmix64's finaliser.

    Without slots, they are for a location of each text.
    """
    purpose = _LOCATION if slots is None else _CONTENT
    state: Any = seeds.astype(np.uint64)
    for value in (np.uint64(number), np.uint64(purpose), np.uint64(0) if slots is None else slots.astype(np.uint64)):
        state = state * np.uint64(0x9E3779B97F4A7C15) + (value + np.uint64(0x632BE59BD9B4E019))
        state = _mixed(state)
    return np.asarray(((state >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53)


def draw(scores: Array, sampling: Sampling, noise: Array, ids: Integers | None = None) -> Integers:
    """Draw a column, (items,), from each row of log-probabilities, (items, choices), of any constant sum.

    It never has the score -inf, if another has not. `ids` is what each column stands for; its number by default.
    """
    if sampling.top_k is not None and sampling.top_k < scores.shape[1]:
        kept = _best(scores, sampling.top_k, ids)
        ids = kept if ids is None else np.take_along_axis(ids, kept, 1)
        column = draw(
            np.take_along_axis(scores, kept, 1), Sampling(sampling.temperature, None, sampling.top_p), noise, ids
        )
        return np.asarray(kept[np.arange(len(kept)), column])
    top = scores.max(1, keepdims=True)
    temperature = min(max(sampling.temperature, float(_LIMITS.tiny)), float(_LIMITS.max))
    with np.errstate(over="ignore"):
        rates = np.exp((scores - np.where(np.isfinite(top), top, 0)) / np.float64(temperature))
    if sampling.top_p is not None and sampling.top_p < 1:
        order = np.argsort(-rates, axis=1, kind="stable")
        ordered = np.take_along_axis(rates, order, 1)
        reached = ordered.cumsum(1)
        beyond = reached - ordered >= sampling.top_p * reached[:, -1:]
        beyond[:, 0] = False  # however little is asked for
        np.put_along_axis(rates, order, np.where(beyond, 0, ordered), 1)
    return np.asarray((rates / _waiting_times(noise, scores.shape[1], ids)).argmax(1))


def _best(scores: Array, count: int, ids: Integers | None) -> Integers:
    """Return (items, count), the columns with the best scores, descending; ties go to the smaller id."""
    if ids is not None:
        return np.asarray(np.lexsort((ids, -scores), axis=1)[:, :count])
    least = np.partition(scores, scores.shape[1] - count, axis=1)[:, -count, None]
    kept, equal = scores > least, scores == least
    kept |= equal & (equal.cumsum(1) <= count - kept.sum(1, keepdims=True))
    columns = kept.nonzero()[1].reshape(len(scores), count)
    order = np.argsort(-np.take_along_axis(scores, columns, 1), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(columns, order, 1))


def _waiting_times(noise: Array, choices: int, ids: Integers | None) -> Array:
    """Return (items, choices), exponential times at rate 1, hashed in 32 bits from the item's number and the choice."""
    items: Any = _mixed(noise.astype(np.float64).view(np.uint64)).astype(np.uint32)
    keys = _keys(choices) if ids is None else _keys(_table_size(int(ids.max()) + 1))[ids]
    state = items[:, None] ^ keys
    for factor, shift in ((0x85EBCA6B, 13), (0xC2B2AE35, 16)):  # as murmur3 ends
        state = state * np.uint32(factor)
        state ^= state >> np.uint32(shift)
    below_one = np.float32(2.0**-31 * (1 - 2.0**-23))  # 31 bits to a number that float32 does not round to 1
    shares = ((state & np.uint32(0x7FFFFFFF)).astype(np.float32) + np.float32(0.5)) * below_one
    return np.asarray(-np.log1p(-shares))


def _table_size(least: int) -> int:
    """Return the next power of two, so that few tables of keys are made."""
    return 1 << (least - 1).bit_length()


@lru_cache(maxsize=8)
def _keys(choices: int) -> Any:
    """Return (choices,), 32 random bits for each."""
    return _mixed(np.arange(1, choices + 1, dtype=np.uint64)).astype(np.uint32)


def _mixed(state: Any) -> Any:
    """Splitmix64's finaliser."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
