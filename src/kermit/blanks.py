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


@dataclass(frozen=True)
class BlankedText:
    """A text with blanks, taken apart.

    Args:
        fragments: the given text before, between and after the blanks, one more than there are blanks. White space
            before a blank is not in them: it belongs to what will be inserted.
        spaces: the white space before each blank.
    """

    fragments: tuple[str, ...]
    spaces: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> BlankedText:
        """Take a text apart at its blanks."""
        fragments, spaces, end = [], [], 0
        for match in _PATTERN.finditer(text):
            fragments.append(text[end : match.start()])
            spaces.append(match.group(1))
            end = match.end()
        return cls((*fragments, text[end:]), tuple(spaces))

    @property
    def joined(self) -> tuple[bool, ...]:
        """For each blank, whether it touches the word on its left, as in ``un____able``."""
        pairs = zip(self.fragments, self.spaces, strict=False)
        return tuple(fragment != "" and space == "" for fragment, space in pairs)

    def fill(self, pieces: Sequence[str]) -> str:
        """Put a piece of text into each blank; an empty piece leaves the fragments, and two words stay two.

        Where a piece begins with white space, or with a word, it gets the white space that was written before the
        blank: a line break stays one.
        """
        text = self.fragments[0]
        for piece, space, fragment in zip(pieces, self.spaces, self.fragments[1:], strict=True):
            bare = piece.lstrip()
            if text == "":
                piece = bare
            elif bare != piece or bare[:1].isalnum():
                piece = (space or piece[: len(piece) - len(bare)]) + bare
            elif not piece and text[-1].isalnum() and fragment[:1].isalnum():
                piece = space
            text += piece + (fragment.lstrip() if text == piece == "" else fragment)
        return text
