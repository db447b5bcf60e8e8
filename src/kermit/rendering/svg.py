"""A decode as a picture in SVG, for papers, slides and pages.

The picture is one file without scripts, links or fonts of its own, readable on light and dark screens: it brings its
own background and follows the reader's colour scheme. Colour never stands alone, for what is new is underlined too.
The styles are plain CSS classes, so that converters to PDF understand them. A token's probability is its title, which
browsers show on hover.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from kermit.decoding.trace import TracedToken
from kermit.rendering.measure import visible, width
from kermit.rendering.rounds import When, is_framing, when
from kermit.rendering.tree import parents

if TYPE_CHECKING:
    from kermit.rendering.readable import ReadableTrace

SIZE, ROW, MARGIN, GUTTER = 15, 27, 16, 40
"""The size of the type, the height of a row, the margin, and the room for the numbers of the rounds, in pixels."""

WORD_GAP, JOINT_GAP = 0.32, 0.04
"""The gaps before a token that begins a word and before one that continues it, in ems."""

LIGHT = {"paper": "#ffffff", "before": "#1b1f24", "now": "#0b57d0", "given": "#7a4100", "later": "#868c94"}
DARK = {"paper": "#14171c", "before": "#e8eaed", "now": "#8ab4f8", "given": "#f2b866", "later": "#80868f"}
"""The colours by class, on light and on dark screens."""


def _rules(colours: dict[str, str]) -> str:
    rules = "".join(f".{name}{{fill:{colour}}}" for name, colour in colours.items())
    return f"{rules}.note{{fill:{colours['later']}}}.edge{{stroke:{colours['later']}}}"


STYLE = (
    f"text{{font:{SIZE}px 'Helvetica Neue',Helvetica,Arial,'DejaVu Sans',sans-serif}}"
    ".now{text-decoration:underline}.side{font-weight:bold}.edge{fill:none;stroke-width:1}"
    f"{_rules(LIGHT)}@media (prefers-color-scheme:dark){{{_rules(DARK)}}}"
)


@dataclass(frozen=True)
class Column:
    """A token of one side of the final text, with its place across the picture.

    Args:
        index: its index in the final canvas.
        token: the token.
        text: its text, as shown.
        x: its middle.
        room: its width.
    """

    index: int
    token: TracedToken
    text: str
    x: float
    room: float


def rounds_svg(trace: ReadableTrace) -> str:
    """The rounds from top to bottom, each the final text as that round sees it."""
    picture = _Picture()
    for name, columns in _sides(trace):
        picture.label(name)
        numbers = sorted({column.token.round for column in columns} - {0})
        for number in numbers or [0]:
            picture.row(str(number) if number else "", columns, partial(when, number=number))
        picture.space()
    return picture.xml(_title(trace))


def tree_svg(trace: ReadableTrace) -> str:
    """Each token at the height of its round and under its parent, with the text below."""
    above = parents(trace.trace.tokens())
    picture = _Picture()
    for name, columns in _sides(trace):
        picture.label(name)
        numbers = sorted({column.token.round for column in columns})
        if numbers in ([], [0]):
            picture.row("", columns, _given_or_not)
            picture.space()
            continue
        heights = {number: picture.y + ROW * 1.6 * row for row, number in enumerate(numbers)}
        places = {column.index: (column.x, heights[column.token.round]) for column in columns}
        for column in columns:
            if (parent := above[column.index]) is not None:
                picture.edge(places[parent], places[column.index])
        for number in numbers:
            picture.y = heights[number]
            row = [column for column in columns if column.token.round == number]
            picture.row(str(number) if number else "", row, _given_or_not)
        picture.y += ROW * 0.4
        picture.rule()
        picture.row("", columns, _given_or_not)
        picture.space()
    return picture.xml(_title(trace))


def _given_or_not(token: TracedToken) -> When:
    return When.BEFORE if token.round else When.GIVEN


def _sides(trace: ReadableTrace) -> Iterator[tuple[str, list[Column]]]:
    """The name and the columns of each side that holds something at the end."""
    tokens = trace.trace.tokens()
    for segment in range(len(trace.trace.start.segments)):
        columns: list[Column] = []
        x = float(MARGIN + GUTTER)
        for index, token in enumerate(tokens):
            if token.segment != segment or is_framing(trace.trace, token):
                continue
            text = trace.text(token.token_id)
            if columns:
                x += SIZE * (WORD_GAP if text[:1].isspace() else JOINT_GAP)
            shown = visible(text)
            room = SIZE * width(shown)
            columns.append(Column(index, token, shown, x + room / 2, room))
            x += room
        if columns:
            yield trace.names[segment], columns


def _title(trace: ReadableTrace) -> str:
    return " / ".join(visible(text) for text in trace.sides() if text)


def hover(token: TracedToken) -> str:
    """What is said of a token where the reader points at it."""
    if token.log_prob is None:
        return "given"
    return f"round {token.round}, probability {math.exp(token.log_prob):.3g}"


class _Picture:
    """Elements from top to bottom; `y` is the middle of the row that comes next."""

    def __init__(self) -> None:
        self.elements: list[str] = []
        self.y = float(MARGIN + ROW / 2)
        self.right = 0.0

    def label(self, name: str) -> None:
        """The name of a side, in a row of its own."""
        self._text(MARGIN, name, "side before", anchor="start")
        self.right = max(self.right, MARGIN + SIZE * 1.15 * width(name))
        self.y += ROW

    def row(self, number: str, columns: Sequence[Column], look: Callable[[TracedToken], When]) -> None:
        """The number of a round and tokens, each as it looks."""
        if number:
            self._text(MARGIN + GUTTER - SIZE, number, "note", anchor="end")
        for column in columns:
            box = f'<rect class="paper" x="{column.x - column.room / 2:.1f}" y="{self.y - SIZE * 0.7:.1f}"'
            self.elements.append(f"<g><title>{escape(hover(column.token))}</title>")
            self.elements.append(f'{box} width="{column.room:.1f}" height="{SIZE * 1.4:.1f}"/>')
            self._text(column.x, column.text, look(column.token).value, anchor="middle")
            self.elements.append("</g>")
            self.right = max(self.right, column.x + column.room / 2)
        self.y += ROW

    def edge(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """A line from a parent to its child."""
        (x, y), (below, z) = start, end
        self.elements.append(f'<path class="edge" d="M{x:.1f} {y + SIZE * 0.7:.1f}L{below:.1f} {z - SIZE * 0.6:.1f}"/>')

    def rule(self) -> None:
        """A line across, between the tree and the text."""
        self.elements.append(f'<path class="edge" d="M{MARGIN + GUTTER} {self.y - ROW / 2:.1f}H{self.right:.1f}"/>')

    def space(self) -> None:
        """Room between two sides."""
        self.y += ROW * 0.5

    def xml(self, title: str) -> str:
        """The picture."""
        wide, high = math.ceil(self.right + MARGIN), math.ceil(self.y - ROW + MARGIN)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" '
            f'role="img" aria-label={quoteattr(title)}><style>{STYLE}</style>'
            f'<rect class="paper" width="{wide}" height="{high}"/>' + "".join(self.elements) + "</svg>\n"
        )

    def _text(self, x: float, text: str, style: str, *, anchor: str) -> None:
        place = f'x="{x:.1f}" y="{self.y + SIZE * 0.35:.1f}"'
        self.elements.append(f'<text class="{style}" {place} text-anchor="{anchor}">{escape(text)}</text>')
