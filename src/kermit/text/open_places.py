"""The open places of a fragment: ``...`` and blanks; an empty fragment is open as a whole."""

from __future__ import annotations

import re

from kermit.canvas.blanks import BLANK, begins_apart, opens

_OPEN = re.compile(r"\.{3}|\u2026")


def as_blanks(text: str) -> str:
    """Replace every open place of a fragment by a blank.

    Unlike a blank, ``...`` is separated from words that it touches: ``A man...`` continues the text, not the word. An
    empty text becomes one blank.
    """
    if not text.strip():
        return BLANK
    first, *rest = _OPEN.split(text)
    found = first
    for part in rest:
        touches = found[-1:].strip() and not opens(found)
        found += (" " if touches else "") + BLANK + (" " if begins_apart(part) else "") + part
    return found
