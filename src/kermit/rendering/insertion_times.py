"""When each token of the final text was inserted, relative to a round."""

from __future__ import annotations

from enum import StrEnum

from kermit.decoding.trace import Trace, TracedToken


class Layout(StrEnum):
    """The layout of a decode: its rounds from top to bottom, its insertion tree, or moving words."""

    ROUNDS = "rounds"
    TREE = "tree"
    ANIMATED = "animated"


class When(StrEnum):
    """When a token was inserted, relative to a round."""

    GIVEN = "given"
    BEFORE = "before"
    NOW = "now"
    LATER = "later"


def when(token: TracedToken, number: int) -> When:
    """Return when a token was inserted, relative to round `number`."""
    if token.round == 0:
        return When.GIVEN
    if token.round == number:
        return When.NOW
    return When.BEFORE if token.round < number else When.LATER


def content(trace: Trace) -> list[tuple[int, TracedToken]]:
    """Return the tokens of the final canvas without [CLS] and [SEP], each with its index in the canvas."""
    frame = (trace.start.specials.cls_id, trace.start.specials.sep_id)
    return [(index, token) for index, token in enumerate(trace.tokens()) if token.token_id not in frame]
