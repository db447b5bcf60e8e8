"""Static layouts of a decode, with a title and a legend: its rounds from top to bottom, or its insertion tree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kermit.decoding.trace import TracedToken
from kermit.rendering.insertion_times import content, ink_in, parents
from kermit.rendering.picture import MARGIN, ROW, SIZE, Box, Ink, Label, Picture, Stroke, baseline, row_box, underline
from kermit.rendering.text_width import visible, width
from kermit.text.languages import language_name

if TYPE_CHECKING:
    from kermit.rendering.readable import ReadableTrace

GUTTER = 34
"""Room for the numbers of the rounds."""

ROUNDS_WIDTH = 1000
"""The widest line of the rounds; longer texts are broken into lines. A tree is as wide as its text."""

WORD_GAP, JOINT_GAP = 0.4, 0.12
"""The gaps before a token that begins a word and before one that continues it, in ems."""


@dataclass(frozen=True)
class Word:
    """A token of the final text, for drawing; `begins` if it begins a word and has a gap before it."""

    index: int
    token: TracedToken
    text: str
    begins: bool

    @property
    def given(self) -> bool:
        """Whether it was there at the start."""
        return self.token.round == 0

    @property
    def room(self) -> float:
        """Its width."""
        return SIZE * width(self.text, bold=self.given)

    @property
    def doubt(self) -> float:
        """How unsure the model was of it, from 0 to 1."""
        return 0.0 if self.token.log_prob is None else 1 - math.exp(self.token.log_prob)

    @property
    def hover(self) -> str:
        """Its tooltip."""
        if self.token.log_prob is None:
            return "given"
        return f"round {self.token.round}, probability {math.exp(self.token.log_prob):.3g}"


@dataclass(frozen=True)
class WordPlace:
    """Where a word stands: its left end, and its line from 0."""

    x: float
    line: int


def words_of_side(trace: ReadableTrace, segment: int) -> list[Word]:
    """List the tokens of one side of the final text."""
    tokens = [(index, token, trace.text(token.token_id)) for index, token in content(trace.trace)]
    return [Word(i, token, visible(text), text[:1].isspace()) for i, token, text in tokens if token.segment == segment]


def flow(row: Sequence[Word], left: float, most: float) -> list[WordPlace]:
    """Place words from left to right, breaking lines between whole words where they would get too wide."""
    places: list[WordPlace] = []
    x, line, start = left, 0, 0
    for number, word in enumerate(row):
        if number:
            x += SIZE * (WORD_GAP if word.begins else JOINT_GAP)
        if word.begins:
            start = number
        if x + word.room > most and places and start > 0 and places[start - 1].line == line:
            line += 1
            x = left
            for again in range(start, number):
                places[again] = WordPlace(x, line)
                x += row[again].room + SIZE * JOINT_GAP
        places.append(WordPlace(x, line))
        x += word.room
    return places


def title_of(trace: ReadableTrace) -> str:
    """Return a title with the direction of a translation, and the number of tokens and rounds."""
    start, rounds = trace.trace.start, [insertions for insertions in trace.trace.rounds if insertions]
    tokens = sum(map(len, rounds))
    said = f"{tokens} token{'' if tokens == 1 else 's'} in {len(rounds)} round{'' if len(rounds) == 1 else 's'}"
    given = start.given_whole
    if len(start.segments) == 2 and len(given) == 1 and not start.segments[1 - given[0]]:
        source, target = (language_name(trace.names[side]) for side in (given[0], 1 - given[0]))
        return f"{source} to {target}: {said}"
    return said


class Sheet:
    """Items from top to bottom; `y` is the middle of the next row."""

    def __init__(self, trace: ReadableTrace, title: str | None) -> None:
        self.trace = trace
        self.items: list[Label | Box | Stroke] = []
        self.y = float(MARGIN + ROW / 2)
        self.title = title_of(trace) if title is None else title
        self.note(MARGIN, self.title, Ink.TEXT, bold=True)
        self.y += ROW

    def note(self, x: float, text: str, ink: Ink = Ink.NOTE, *, bold: bool = False) -> None:
        """Add a text at this height."""
        self.items.append(Label(x, baseline(self.y), text, ink, bold))

    def number(self, text: str) -> None:
        """Add the number of a round, beside the row."""
        self.note(MARGIN + GUTTER - 12 - SIZE * width(text), text)

    def word(self, word: Word, x: float, y: float, ink: Ink, *, new: bool = False) -> None:
        """Add a word, shaded by the model's doubt unless it is still to come, and underlined if new."""
        if word.doubt > 0.005 and ink is not Ink.LATER:
            self.items.append(row_box(x, y, word.room, Ink.DOUBT, word.doubt))
        if new:
            self.items.append(underline(x, y, word.room))
        self.items.append(Label(x, baseline(y), word.text, ink, word.given, word.hover))

    def sides(self) -> Iterator[list[Word]]:
        """Write the name of each side that is not empty at the end, and yield its words."""
        for segment in range(len(self.trace.trace.start.segments)):
            if row := words_of_side(self.trace, segment):
                self.note(MARGIN, language_name(self.trace.names[segment]), bold=True)
                self.y += ROW
                yield row
                self.y += 0.3 * ROW

    def legend(self, entries: Iterable[tuple[str, Ink]]) -> None:
        """Add a legend of the colours."""
        self.y += 0.3 * ROW
        x = float(MARGIN)
        for text, ink in entries:
            label = Label(x, baseline(self.y), text, ink, ink is Ink.GIVEN)
            if ink is Ink.NOW:
                self.items.append(underline(x, self.y, label.width))
            self.items.append(label)
            x += label.width + 1.4 * SIZE
        for doubt, text in ((0.15, "sure"), (0.55, "unsure"), (0.95, "guessing")):
            room = SIZE * width(text)
            self.items += [row_box(x, self.y, room, Ink.DOUBT, doubt), Label(x, baseline(self.y), text, Ink.TEXT)]
            x += room + 0.6 * SIZE
        self.y += ROW

    def picture(self) -> Picture:
        """Return the picture, sized to its items."""
        wide = max(item.right for item in self.items) + MARGIN
        return Picture(math.ceil(wide), math.ceil(self.y - ROW / 2 + MARGIN), tuple(self.items), self.title)


def rounds_picture(trace: ReadableTrace, title: str | None = None) -> Picture:
    """Lay out the rounds from top to bottom, each as the final text at that round."""
    sheet = Sheet(trace, title)
    for row in sheet.sides():
        places = flow(row, MARGIN + GUTTER, ROUNDS_WIDTH)
        for number in sorted({word.token.round for word in row} - {0}) or [0]:
            if number:
                sheet.number(str(number))
            for word, place in zip(row, places, strict=True):
                ink = ink_in(number, word.token)
                sheet.word(word, place.x, sheet.y + place.line * ROW, ink, new=ink is Ink.NOW)
            sheet.y += ROW * (1 + places[-1].line)
    inserted = [("inserted", Ink.TEXT), ("new in this round", Ink.NOW), ("still to come", Ink.LATER)]
    sheet.legend([("given", Ink.GIVEN), *inserted])
    return sheet.picture()


def tree_picture(trace: ReadableTrace, title: str | None = None) -> Picture:
    """Lay out each token at the height of its round and under its parent."""
    above = parents(trace.trace.tokens())
    sheet = Sheet(trace, title)
    for row in sheet.sides():
        numbers = sorted({word.token.round for word in row})
        heights = {number: sheet.y + 1.5 * ROW * level for level, number in enumerate(numbers)}
        places = {word.index: place.x for word, place in zip(row, flow(row, MARGIN + GUTTER, math.inf), strict=True)}
        middles = {word.index: (places[word.index] + word.room / 2, heights[word.token.round]) for word in row}
        for word in row:
            if (parent := above[word.index]) is not None:
                (x, y), (below, z) = middles[parent], middles[word.index]
                sheet.items.append(Stroke((x, y + 0.75 * SIZE), (below, z - 0.75 * SIZE), Ink.NOTE))
        for number in numbers:
            sheet.y = heights[number]
            if number:
                sheet.number(str(number))
            for word in (word for word in row if word.token.round == number):
                x = places[word.index]
                sheet.items.append(row_box(x, sheet.y, word.room, Ink.PAPER, 1.0))  # over edges
                sheet.word(word, x, sheet.y, Ink.TEXT if number else Ink.GIVEN)
        sheet.y += ROW
    sheet.legend([("given", Ink.GIVEN), ("inserted below its newer neighbour", Ink.TEXT)])
    return sheet.picture()
