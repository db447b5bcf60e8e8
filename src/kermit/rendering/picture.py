"""The parts of a picture, independent of the output format: texts, boxes and lines, coloured by meaning.

Lengths are in pixels of an SVG, which are points of a PDF; y grows downwards. `layouts` makes pictures, `svg` and
`figure` draw them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kermit.rendering.text_width import width

SIZE, ROW, MARGIN = 16, 30, 22
"""The size of the type, the height of a row and the margin."""

FONTS = ("DejaVu Sans", "Verdana", "Bitstream Vera Sans", "sans-serif")


class Ink(StrEnum):
    """What a colour means."""

    PAPER = "paper"
    TEXT = "text"
    GIVEN = "given"
    NOW = "now"
    LATER = "later"
    NOTE = "note"
    DOUBT = "doubt"


LIGHT = {
    Ink.PAPER: "#ffffff",
    Ink.TEXT: "#1b1f24",
    Ink.GIVEN: "#7a4100",
    Ink.NOW: "#0b5a2d",
    Ink.LATER: "#8d939a",
    Ink.NOTE: "#5a6169",
    Ink.DOUBT: "#ffd766",
}
DARK = {
    Ink.PAPER: "#14171c",
    Ink.TEXT: "#e8eaed",
    Ink.GIVEN: "#f2b866",
    Ink.NOW: "#93dcac",
    Ink.LATER: "#767c86",
    Ink.NOTE: "#a2a9b2",
    Ink.DOUBT: "#6b5200",
}
"""The colours on light and on dark screens."""


@dataclass(frozen=True)
class Label:
    """A text at its left end and baseline; `hover` is its tooltip, empty for none."""

    x: float
    y: float
    text: str
    ink: Ink
    bold: bool = False
    hover: str = ""

    @property
    def width(self) -> float:
        """Its width."""
        return SIZE * width(self.text, bold=self.bold)

    @property
    def right(self) -> float:
        """Its right end."""
        return self.x + self.width


@dataclass(frozen=True)
class Box:
    """A filled rectangle with round corners."""

    x: float
    y: float
    width: float
    height: float
    ink: Ink
    opacity: float = 1.0

    @property
    def right(self) -> float:
        """Its right end."""
        return self.x + self.width


@dataclass(frozen=True)
class Stroke:
    """A line, straight or curved."""

    start: tuple[float, float]
    end: tuple[float, float]
    ink: Ink
    thickness: float = 1.0

    @property
    def points(self) -> list[tuple[float, float]]:
        """Two ends, or the four points of a Bézier curve if the line is neither horizontal nor vertical."""
        (x, y), (end, below) = self.start, self.end
        middle = (y + below) / 2
        straight = x == end or y == below
        return [self.start, self.end] if straight else [self.start, (x, middle), (end, middle), self.end]

    @property
    def right(self) -> float:
        """Its right end."""
        return max(self.start[0], self.end[0])


@dataclass(frozen=True)
class Picture:
    """A picture, with its items in drawing order."""

    width: float
    height: float
    items: tuple[Label | Box | Stroke, ...]
    title: str


def row_box(x: float, middle: float, room: float, ink: Ink, opacity: float) -> Box:
    """Return the box behind a text of width `room`, in the row centred on `middle`."""
    return Box(x - 2, middle - 0.75 * SIZE, room + 4, 1.5 * SIZE, ink, opacity)


def underline(x: float, middle: float, room: float) -> Stroke:
    """Return the line under a new text of width `room`, in the row centred on `middle`."""
    return Stroke((x, middle + 0.55 * SIZE), (x + room, middle + 0.55 * SIZE), Ink.NOW, 2)


def baseline(middle: float) -> float:
    """Return the baseline of a text in the row centred on `middle`."""
    return middle + 0.35 * SIZE
