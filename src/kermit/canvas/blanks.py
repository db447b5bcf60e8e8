"""Text with blanks: taking it apart at its blanks, and putting it together again with what was inserted.

The given fragments are kept as they were written, character for character, whatever the tokenizer makes of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

BLANK = "____"
"""What a user writes where text is to be inserted: four underscores, or more."""

_PATTERN = re.compile(r"(\s*)_{4,}")
_BRACKETS = "([{¿¡\u201a\u201e"
_QUOTES = "\"'«»\u2018\u2019\u201c\u201d\u2039\u203a"
_OPENING = re.compile(rf"[{re.escape(_BRACKETS)}][{_QUOTES}]*$|(^|\s)[{_QUOTES}]+$")


@dataclass(frozen=True)
class BlankedText:
    """A text with blanks, taken apart.

    Args:
        fragments: the given text before, between and after the blanks, one more than there are blanks. White space
            before a blank is not in them: it belongs to what will be inserted.
        spaces: the white space before each blank.
        outer: the white space before and after the whole, which is in no fragment: it means nothing.
    """

    fragments: tuple[str, ...]
    spaces: tuple[str, ...]
    outer: tuple[str, str] = ("", "")

    @classmethod
    def parse(cls, text: str) -> BlankedText:
        """Take a text apart at its blanks."""
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
        """Put a piece of text into each blank; an empty piece leaves the fragments, and two words stay two.

        Where a piece begins with white space, with a word or with a bracket, it gets the white space that was written
        before the blank: a line break stays one, and where a blank touches a bracket, so does what is put there.
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
    """Whether a text ends in opening punctuation: a bracket, or a quote with nothing or white space before it."""
    return _OPENING.search(text) is not None


def begins_apart(text: str) -> bool:
    """Whether what a text begins with has white space before it in running text: a word, or an opening bracket."""
    return text[:1].isalnum() or text.startswith(tuple(_BRACKETS))
