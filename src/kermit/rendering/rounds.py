"""A decode as its rounds see it: which tokens of the final text came now, before, later, or were given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from kermit.canvas import Segment
from kermit.decoding.trace import Trace, TracedToken


class Layout(StrEnum):
    """How a decode is laid out: its rounds from top to bottom, its insertion tree, or words that move."""

    ROUNDS = "rounds"
    TREE = "tree"
    ANIMATED = "animated"


class When(StrEnum):
    """When a token came, seen from a round."""

    GIVEN = "given"
    BEFORE = "before"
    NOW = "now"
    LATER = "later"


@dataclass(frozen=True, slots=True)
class Piece:
    """A token of the final text as a round sees it."""

    text: str
    when: When
    log_prob: float | None


def when(token: TracedToken, number: int) -> When:
    """When a token came, seen from round `number`."""
    if token.round == 0:
        return When.GIVEN
    if token.round == number:
        return When.NOW
    return When.BEFORE if token.round < number else When.LATER


def is_framing(trace: Trace, token: TracedToken) -> bool:
    """Whether a token is [CLS] or [SEP]."""
    return token.token_id in (trace.start.specials.cls_id, trace.start.specials.sep_id)


def rounds(trace: Trace, segment: Segment, text: Callable[[int], str]) -> Iterator[list[Piece]]:
    """The tokens of one segment of the final text, as each round that inserted something sees them.

    Args:
        trace: the decode.
        segment: which side to show.
        text: the text of a token.
    """
    tokens = [token for token in trace.tokens() if token.segment == segment and not is_framing(trace, token)]
    for number, insertions in enumerate(trace.rounds, start=1):
        if insertions:
            yield [Piece(text(token.token_id), when(token, number), token.log_prob) for token in tokens]
