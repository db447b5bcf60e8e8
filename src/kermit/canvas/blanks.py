"""Text with blanks: split it at the blanks, and join it again with the inserted text.

Given fragments are kept character for character, even where the tokenizer would normalise them. In a fragment to
complete, ``...`` is an open place too, and an empty fragment is open as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

BLANK = "____"
"""What a user writes where text is to be inserted: four or more underscores."""

_ELLIPSIS = re.compile(r"\.{3}|\u2026")
_PATTERN = re.compile(r"(\s*)_{4,}")
_BRACKETS = "([{¿¡\u201a\u201e"
_QUOTES = "\"'«»\u2018\u2019\u201c\u201d\u2039\u203a"
_OPENING = re.compile(rf"[{re.escape(_BRACKETS)}][{_QUOTES}]*$|(^|\s)[{_QUOTES}]+$")


@dataclass(frozen=True)
class BlankedText:
    """A text split at its blanks.

    Args:
        fragments: the given text before, between and after the blanks, one more than the number of blanks. White space
            before a blank is not included: it belongs to the inserted text.
        spaces: the white space before each blank.
        outer: the white space before and after the text, which is in no fragment.
    """

    fragments: tuple[str, ...]
    spaces: tuple[str, ...]
    outer: tuple[str, str] = ("", "")

    @classmethod
    def parse(cls, text: str) -> BlankedText:
        """Split a text at its blanks."""
        fragments, spaces, end = [], [], 0
        inner = text.strip()
        for match in _PATTERN.finditer(inner):
            fragments.append(inner[end : match.start()])
            spaces.append(match.group(1))
            end = match.end()
        before = text[: len(text) - len(text.lstrip())]
        return cls((*fragments, inner[end:]), tuple(spaces), (before, text[len(before) + len(inner) :]))

    @property
    def joined(self) -> tuple[bool, ...]:
        """For each blank, whether it touches the word on its left, as in ``un____able``."""
        pairs = zip(self.fragments, self.spaces, strict=False)
        return tuple(fragment != "" and space == "" for fragment, space in pairs)

    def fill(self, pieces: Sequence[str]) -> str:
        """Put a piece of text into each blank; around an empty piece, two words stay separate.

        A piece that begins with white space, a word or a bracket gets the white space that was written before the
        blank: a line break is kept, and a piece touches a bracket if its blank did.
        """
        text = self.fragments[0]
        for piece, space, fragment in zip(pieces, self.spaces, self.fragments[1:], strict=True):
            bare = piece.lstrip()
            if text == "" or (space == "" and opens(text)):
                piece = bare
            elif bare != piece or begins_apart(bare):
                piece = (space or piece[: len(piece) - len(bare)]) + bare
            elif not piece and text[-1].isalnum() and fragment[:1].isalnum():
                piece = space
            text += piece + (fragment.lstrip() if text == piece == "" else fragment)
        return self.outer[0] + text + self.outer[1]


def opens(text: str) -> bool:
    """Return whether a text ends in opening punctuation: a bracket, or a quote after white space or at the start."""
    return _OPENING.search(text) is not None


def begins_apart(text: str) -> bool:
    """Return whether a text begins with something that follows white space in prose: a word or an opening bracket."""
    return text[:1].isalnum() or text.startswith(tuple(_BRACKETS))


def as_blanks(text: str) -> str:
    """Replace every open place of a fragment by a blank.

    Unlike a blank, ``...`` is separated from words that it touches: ``A man...`` continues the text, not the word. An
    empty text becomes one blank.
    """
    if not text.strip():
        return BLANK
    found, *rest = _ELLIPSIS.split(text)
    for part in rest:
        touches = found[-1:].strip() and not opens(found)
        found += (" " if touches else "") + BLANK + (" " if begins_apart(part) else "") + part
    return found
