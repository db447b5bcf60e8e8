"""A decode in the terminal, with or without colour."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from kermit.canvas import Segment
from kermit.decoding.trace import Trace
from kermit.rendering.insertion_times import content, ink_in, parents
from kermit.rendering.picture import Ink

STYLES = {Ink.GIVEN: "bold", Ink.TEXT: "", Ink.NOW: "blue underline", Ink.LATER: "grey58"}
"""The style of a token in a terminal with colours."""

HIDDEN = "·"
"""Replaces each character of a token still to come in a terminal without colours."""


def terminal_lines(trace: Trace, segment: Segment, text: Callable[[int], str], *, colour: bool = True) -> list[Text]:
    """Return one line per round; without colour, new tokens are in brackets and tokens still to come are dotted."""
    tokens = [token for _, token in content(trace) if token.segment == segment]
    lines = []
    for number in (number for number, insertions in enumerate(trace.rounds, start=1) if insertions):
        line = _numbered(number, colour)
        for token in tokens:
            ink, word = ink_in(number, token), text(token.token_id)
            line.append(word if colour else _plain(word, ink), style=STYLES[ink] if colour else "")
        lines.append(line)
    return lines


def _plain(word: str, ink: Ink) -> str:
    if ink is Ink.LATER:
        return "".join(symbol if symbol.isspace() else HIDDEN for symbol in word)
    bare = word.lstrip()
    return f"{word[: len(word) - len(bare)]}[{bare}]" if ink is Ink.NOW else word


def terminal_tree(trace: Trace, segment: Segment, text: Callable[[int], str], *, colour: bool = True) -> list[Text]:
    """Return one line per token, with its round number, below its parent; children are in text order."""
    above = parents(trace.tokens())
    tokens = {index: token for index, token in content(trace) if token.segment == segment and token.round > 0}
    children: dict[int | None, list[int]] = {}
    for index in tokens:
        children.setdefault(above[index], []).append(index)
    lines: list[Text] = []
    waiting = [(index, "", "") for index in reversed(children.get(None, []))]  # a left-to-right tree is deep
    while waiting:
        index, branch, indent = waiting.pop()
        line = _numbered(tokens[index].round, colour).append(branch, style="dim" if colour else "")
        lines.append(line.append(text(tokens[index].token_id).strip()))
        below = children.get(index, [])
        for child in reversed(below):
            last = child == below[-1]
            waiting.append((child, indent + ("└─ " if last else "├─ "), indent + ("   " if last else "│  ")))
    return lines


def _numbered(number: int, colour: bool) -> Text:
    """Begin a line with a number; its style does not extend to what follows."""
    return Text().append(f"{number:>3}  ", style="dim" if colour else "")
