"""A decode in the terminal, with colour or without."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from kermit.canvas import Segment
from kermit.decoding.trace import Trace
from kermit.rendering.rounds import When, is_framing, rounds
from kermit.rendering.tree import parents

STYLES = {When.GIVEN: "bold", When.BEFORE: "", When.NOW: "blue underline", When.LATER: "grey58"}
"""How each is shown in a terminal."""

HIDDEN = "·"
"""Stands for each character of a token still to come, where there is no colour to tell it by."""


def terminal_lines(trace: Trace, segment: Segment, text: Callable[[int], str], *, colour: bool = True) -> list[Text]:
    """A line of styled text a round; without colour, tokens still to come are dotted out and new ones in brackets."""
    lines = []
    numbers = [number for number, insertions in enumerate(trace.rounds, start=1) if insertions]
    for number, pieces in zip(numbers, rounds(trace, segment, text), strict=True):
        line = _numbered(number, colour)
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


def terminal_tree(trace: Trace, segment: Segment, text: Callable[[int], str], *, colour: bool = True) -> list[Text]:
    """A line a token, behind the number of its round and below its parent; children in the order of the text."""
    tokens = trace.tokens()
    children: dict[int | None, list[int]] = {}
    for index, parent in enumerate(parents(tokens)):
        token = tokens[index]
        if token.segment == segment and token.round > 0 and not is_framing(trace, token):
            children.setdefault(parent, []).append(index)
    lines: list[Text] = []
    waiting = [(index, "", "") for index in reversed(children.get(None, []))]
    while waiting:
        index, branch, indent = waiting.pop()
        line = _numbered(tokens[index].round, colour)
        line.append(branch, style="dim" if colour else "")
        line.append(text(tokens[index].token_id).strip(), style="")
        lines.append(line)
        below = children.get(index, [])
        for child in reversed(below):
            last = child == below[-1]
            waiting.append((child, indent + ("└─ " if last else "├─ "), indent + ("   " if last else "│  ")))
    return lines


def _numbered(number: int, colour: bool) -> Text:
    """The beginning of a line; its style is its own and not that of what follows."""
    return Text().append(f"{number:>3}  ", style="dim" if colour else "")
