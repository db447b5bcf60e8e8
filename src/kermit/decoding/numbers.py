"""Finish numbers as the given text has them: which digits may come next, from left to right.

A small model loses count inside a number, and 2022 becomes 20222. Once the digits written so far begin a number of the
given text, only such a number is finished. Digits that begin none are free: half past two may become 14:30.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from kermit.canvas.arrays import Booleans, Integers
from kermit.decoding.growing_canvases import INSERTED, ROW, TOKEN, Growing

NO_DIGIT = 10
"""The column of `next_digits` for tokens that are not digits."""


def next_digits(text: Growing, slots: Integers, digit_of: Integers) -> Booleans | None:
    """Return which digits may be inserted at slots, and, in the last column, whether anything else may.

    Args:
        slots: (slots,) items, each the end of the span that is being filled.
        digit_of: (vocab,) the digit that a token writes, -1 for other tokens.

    Returns:
        (slots, 11) bool; None if everything may be inserted everywhere.
    """
    tokens, inserted = text.planes[TOKEN], text.planes[INSERTED] > 0
    allowed: Booleans | None = None
    for at in (inserted[slots - 1] & (digit_of[tokens[slots - 1]] >= 0)).nonzero()[0].tolist():
        begun, place = "", int(slots[at]) - 1
        while inserted[place] and digit_of[tokens[place]] >= 0:
            begun, place = f"{digit_of[tokens[place]]}{begun}", place - 1
        given = ~inserted & (text.planes[ROW] == text.planes[ROW, slots[at]])
        meant = [number for number in _numbers(digit_of[tokens[given]]) if number.startswith(begun)]
        if meant:
            allowed = np.ones((len(slots), NO_DIGIT + 1), dtype=bool) if allowed is None else allowed
            allowed[at] = False
            allowed[at, [int(number[len(begun)]) if number != begun else NO_DIGIT for number in meant]] = True
    return allowed


def _numbers(digits: Integers) -> list[str]:
    """Return the runs of digits, (tokens,) with -1 between them, as strings."""
    runs = groupby(digits.tolist(), key=lambda digit: digit >= 0)
    return ["".join(map(str, run)) for is_number, run in runs if is_number]
