"""Where text may be inserted into a fragment: ``...`` as well as a blank, and anywhere in an empty one."""

from __future__ import annotations

import re

from kermit.canvas.blanks import BLANK, begins_apart, opens

_OPEN = re.compile(r"\.{3}|\u2026")


def as_blanks(text: str) -> str:
    """Return a fragment with a blank for every open place.

    Unlike a blank, ``...`` is set apart from the words beside it even where it touches them: ``A man...`` continues
    the text, not the word. A text that is empty becomes one blank.
    """
    if not text.strip():
        return BLANK
    first, *rest = _OPEN.split(text)
    found = first
    for part in rest:
        touches = found[-1:].strip() and not opens(found)
        found += (" " if touches else "") + BLANK + (" " if begins_apart(part) else "") + part
    return found
