"""A trace for the eye: the rounds of a decode from top to bottom, as in the paper's Figure 3.

Each line is the final text after one more round: tokens inserted now, tokens already there, and in grey those still to
come. This module knows traces and the text of tokens, no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from rich.text import Text

from kermit.canvas import Segment
from kermit.decoding.trace import Trace


class When(StrEnum):
    """When a token came, seen from a round."""

    GIVEN = "given"
    BEFORE = "before"
    NOW = "now"
    LATER = "later"


STYLES = {When.GIVEN: "bold", When.BEFORE: "", When.NOW: "blue underline", When.LATER: "grey58"}
"""How each is shown in a terminal."""

HIDDEN = "·"
"""Stands for each character of a token still to come, where there is no colour to tell it by."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A token of the final text as a round sees it."""

    text: str
    when: When
    log_prob: float | None


@dataclass(frozen=True)
class ReadableTrace:
    """A trace with the text of its tokens.

    Args:
        trace: the decode.
        text: the text of a token.
        names: what the sides are called.
    """

    trace: Trace
    text: Callable[[int], str]
    names: tuple[str, str]

    def to_json(self) -> dict[str, object]:
        """The record as plain JSON values, each insertion with its token's text."""
        return self.trace.to_json(self.text)

    def terminal_lines(self, *, colour: bool) -> list[Text]:
        """The sides into which something was inserted: their name, then a line a round."""
        lines: list[Text] = []
        for segment in sorted({token.segment for token in self.trace.tokens() if token.round > 0}):
            lines.append(Text(self.names[segment], style="bold" if colour else ""))
            lines += terminal_lines(self.trace, Segment(segment), self.text, colour=colour)
        return lines


def rounds(trace: Trace, segment: Segment, text: Callable[[int], str]) -> Iterator[list[Piece]]:
    """The tokens of one segment of the final text, as each round that inserted something sees them.

    Args:
        trace: the decode.
        segment: which side to show.
        text: the text of a token.
    """
    framing = {trace.start.specials.cls_id, trace.start.specials.sep_id}
    tokens = [t for t in trace.tokens() if t.segment == segment and t.token_id not in framing]
    for number, insertions in enumerate(trace.rounds, start=1):
        if not insertions:
            continue
        pieces = []
        for token in tokens:
            if token.round == 0:
                when = When.GIVEN
            elif token.round == number:
                when = When.NOW
            else:
                when = When.BEFORE if token.round < number else When.LATER
            pieces.append(Piece(text(token.token_id), when, token.log_prob))
        yield pieces


def terminal_lines(trace: Trace, segment: Segment, text: Callable[[int], str], *, colour: bool = True) -> list[Text]:
    """A line of styled text a round; without colour, tokens still to come are dotted out and new ones in brackets."""
    lines = []
    for number, pieces in enumerate(rounds(trace, segment, text), start=1):
        line = Text(f"{number:>3}  ", style="dim" if colour else "")
        for piece in pieces:
            if colour:
                line.append(piece.text, style=STYLES[piece.when])
            elif piece.when is When.LATER:
                line.append("".join(c if c.isspace() else HIDDEN for c in piece.text))
            elif piece.when is When.NOW:
                blank = piece.text[: len(piece.text) - len(piece.text.lstrip())]
                line.append(f"{blank}[{piece.text.lstrip()}]")
            else:
                line.append(piece.text)
        lines.append(line)
    return lines
