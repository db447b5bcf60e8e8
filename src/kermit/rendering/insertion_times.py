"""When each token of the final text was inserted, and between which others: the insertion tree of a decode.

A token is inserted between two neighbours. Its parent is the one inserted more recently. Two neighbours are never
inserted in the same round, because a round inserts at most one token per slot and the token between two slots is older
than either; so the parent is unique. If both neighbours were given (or are [CLS] and [SEP]), the token is a root.
"""

from __future__ import annotations

from collections.abc import Sequence

from kermit.decoding.trace import Trace, TracedToken
from kermit.rendering.picture import Ink


def ink_in(number: int, token: TracedToken) -> Ink:
    """Return the ink of a token in round `number`: given, new, inserted before, or still to come."""
    if token.round == 0:
        return Ink.GIVEN
    if token.round == number:
        return Ink.NOW
    return Ink.TEXT if token.round < number else Ink.LATER


def content(trace: Trace) -> list[tuple[int, TracedToken]]:
    """Return the tokens of the final canvas without [CLS] and [SEP], each with its index in the canvas."""
    frame = (trace.start.specials.cls_id, trace.start.specials.sep_id)
    return [(index, token) for index, token in enumerate(trace.tokens()) if token.token_id not in frame]


def parents(tokens: Sequence[TracedToken]) -> list[int | None]:
    """Return the index of each token's parent in the final canvas; None for roots and given tokens.

    The neighbours of a token when it was inserted are the nearest tokens of earlier rounds on either side.
    """
    numbers = [token.round for token in tokens]
    left, right = _nearest_older(numbers), _nearest_older(numbers[::-1])[::-1]
    found: list[int | None] = []
    for number, before, after in zip(numbers, left, right, strict=True):
        if number == 0 or before is None or after is None:
            found.append(None)
            continue
        after = len(numbers) - 1 - after
        newer = before if numbers[before] > numbers[after] else after
        found.append(newer if numbers[newer] > 0 else None)
    return found


def _nearest_older(numbers: Sequence[int]) -> list[int | None]:
    """Return, for each round number, the index of the nearest smaller one on its left."""
    found: list[int | None] = []
    stack: list[int] = []
    for index, number in enumerate(numbers):
        while stack and numbers[stack[-1]] >= number:
            stack.pop()
        found.append(stack[-1] if stack else None)
        stack.append(index)
    return found
