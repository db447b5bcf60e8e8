"""Limit runs of one token.

A weak model repeats a token where it does not know what to say. A slot may not extend a run of the allowed length, and
if several insertions of a round together make too long a run, the last of them are withdrawn.
"""

from __future__ import annotations

import numpy as np

from kermit.canvas.arrays import Booleans, Integers
from kermit.decoding.growing_canvases import ROW, TOKEN, Growing


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
