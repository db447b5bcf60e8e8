"""Widths of texts, and visible substitutes for invisible characters.

Widths are those of DejaVu Sans, which comes with matplotlib. Pictures prefer that font and fix the width of every text,
so that words do not overlap in another font.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any

from kermit.errors import UsageError

_SHOWN = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\x7f": "␡"}
_JOINERS = "\u00ad\u200c\u200d"  # invisible, but they shape the letters around them

NOTHING = "▯"
"""Stands for a token without text, such as an unknown word."""


def width(text: str, *, bold: bool = False) -> float:
    """Return the width of a text in ems."""
    return sum(_advance(symbol, bold) for symbol in text)


@lru_cache(maxsize=10_000)
def _advance(symbol: str, bold: bool) -> float:
    font = _font(bold)
    if ord(symbol) in font.get_charmap():
        from matplotlib.ft2font import LoadFlags

        glyph = font.load_char(ord(symbol), flags=LoadFlags.NO_HINTING)
        return float(glyph.linearHoriAdvance) / 65536 / _SIZE
    if unicodedata.category(symbol) in ("Mn", "Me", "Cf"):
        return 0.0
    return 1.0 if unicodedata.east_asian_width(symbol) in ("W", "F") else 0.8


_SIZE = 64


@lru_cache(maxsize=2)
def _font(bold: bool) -> Any:
    try:
        import matplotlib
        from matplotlib.ft2font import FT2Font
    except ModuleNotFoundError as error:
        raise UsageError(
            "pictures need matplotlib; install it with: pip install 'kermit-insertion[pictures]'"
        ) from error
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    font = FT2Font(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name)
    font.set_size(_SIZE, 72)
    return font


def visible(text: str) -> str:
    """Return a token for display: without outer spaces, and with symbols for invisible and invalid characters."""
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
