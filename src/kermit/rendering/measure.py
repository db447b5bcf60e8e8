"""How wide a text is before anyone has drawn it, and how to show what has no width.

The font that a reader has is not known, so a text is given the room it would need in a wide one (DejaVu Sans; Arial,
Helvetica and the like are narrower). Too much room is a gap, too little would be an overlap.
"""

from __future__ import annotations

import unicodedata

_WIDTHS = {
    **dict.fromkeys(" .,:;'|/\\-!()[]ijlftrIJ·", 0.43),
    **dict.fromkeys('abcdeghknopqsuvxyz0123456789EFLPSTY$?*_`{}"«»', 0.65),
    **dict.fromkeys("ABCDGHKNOQRUVXZ&", 0.80),
}
_LOWER, _OTHER = 1.05, 1.35

_SHOWN = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\x7f": "␡"}
_JOINERS = "\u00ad\u200c\u200d"  # unseen, but they shape the letters around them

NOTHING = "▯"
"""Stands for a token without text, such as an unknown word."""


def width(text: str) -> float:
    """The width of a text in ems, at least; what is stacked on a letter takes no room."""
    return sum(map(_width, unicodedata.normalize("NFD", text)))


def _width(symbol: str) -> float:
    if symbol in _WIDTHS:
        return _WIDTHS[symbol]
    if "\u2010" <= symbol <= "\u201f" and symbol not in "\u2014\u2015":  # short dashes and curly quotes
        return 0.65
    if unicodedata.category(symbol) in ("Mn", "Me", "Cf"):
        return 0.0
    return _LOWER if symbol.islower() else _OTHER


def visible(text: str) -> str:
    """A token as it is shown: without the spaces around it, and with a sign for what cannot be seen or be in XML."""
    kept = text.strip(" ") or text
    if kept.isspace() or not kept.isprintable():
        kept = "".join(_shown(symbol, alone=kept.isspace()) for symbol in kept)
    return kept or NOTHING


def _shown(symbol: str, *, alone: bool) -> str:
    if (symbol.isprintable() or symbol in _JOINERS) and not (alone and symbol == " "):
        return symbol
    if symbol in _SHOWN:
        return _SHOWN[symbol]
    if symbol.isspace() and ord(symbol) > 0x20:
        return _SHOWN[" "]
    return chr(0x2400 + ord(symbol)) if ord(symbol) < 0x20 else "\ufffd"
