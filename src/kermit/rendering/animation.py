"""A decode that moves: words appear where they are inserted, and those around them make room.

Both sides are shown as they stand after each round. A word's place changes from round to round, so it has one for every
round from its own on; `svg` moves it with CSS, `figure` draws the frames of a GIF.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kermit.rendering.layouts import Sheet, Word, WordPlace, flow, title_of, words_of_side
from kermit.rendering.measure import width
from kermit.rendering.picture import MARGIN, ROW, SIZE, Ink, Picture, right_end
from kermit.text.languages import language_name

if TYPE_CHECKING:
    from kermit.rendering.readable import ReadableTrace

ANIMATION_WIDTH = 760
"""The widest line; longer texts are broken into lines."""

ROUND_SECONDS, MOVE_SECONDS, LAST_SECONDS = 1.1, 0.35, 3.0
"""How long a round is shown, how much of that words move, and how long the end is shown."""


@dataclass(frozen=True)
class Moving:
    """A word and where its left end and the middle of its row are, for each round from its own on."""

    word: Word
    places: tuple[tuple[float, float], ...]

    @property
    def first(self) -> int:
        """The round in which it appears; 0 for what was given."""
        return self.word.token.round

    def at(self, number: int) -> tuple[float, float]:
        """Return its place after a round; before its own, where it will appear."""
        return self.places[max(0, number - self.first)]


@dataclass(frozen=True)
class Animation:
    """Words that move, and what stands still.

    Args:
        still: the title, the names of the sides and the legend.
        words: the words.
        counts: what is said of each round, from 0, and where.
        rounds: the number of rounds.
    """

    still: Picture
    words: tuple[Moving, ...]
    counts: tuple[str, ...]
    count_place: tuple[float, float]
    rounds: int

    @property
    def seconds(self) -> float:
        """How long it takes until it begins again."""
        return self.rounds * ROUND_SECONDS + LAST_SECONDS


def animate(trace: ReadableTrace, title: str | None = None) -> Animation:
    """Lay out a decode that moves."""
    sheet = Sheet(title_of(trace) if title is None else title)
    rounds = max((number for number, found in enumerate(trace.trace.rounds, start=1) if found), default=0)
    moving: list[Moving] = []
    for segment in range(len(trace.trace.start.segments)):
        row = words_of_side(trace, segment)
        if not row:
            continue
        sheet.note(MARGIN, language_name(trace.names[segment]), bold=True)
        sheet.y += ROW
        after = [_after(row, number) for number in range(rounds + 1)]
        for word in row:
            places = [after[number][word.index] for number in range(word.token.round, rounds + 1)]
            moving.append(Moving(word, tuple((place.x, sheet.y + place.line * ROW) for place in places)))
        sheet.y += ROW * (1.3 + after[-1][row[-1].index].line)
    counts = ("start", *(f"round {number} of {rounds}" for number in range(1, rounds + 1)))
    place = (float(MARGIN), sheet.y)
    sheet.y += ROW
    sheet.legend([("given", Ink.GIVEN), ("inserted", Ink.TEXT), ("new in this round", Ink.NOW)])
    still = sheet.picture()
    ends = [x + one.word.room for one in moving for x, _ in one.places]
    wide = max([*map(right_end, still.items), *ends, SIZE * width(counts[-1])]) + MARGIN
    still = Picture(math.ceil(wide), still.height, still.items, still.title)
    return Animation(still, tuple(moving), counts, place, rounds)


def _after(row: list[Word], number: int) -> dict[int, WordPlace]:
    """Place the words that are there after a round."""
    there = [word for word in row if word.token.round <= number]
    return {word.index: place for word, place in zip(there, flow(there, MARGIN, ANIMATION_WIDTH), strict=True)}


def frame(animation: Animation, time: float) -> Picture:
    """Return the picture at some time, in seconds from the start."""
    number = min(int(time / ROUND_SECONDS), animation.rounds)
    share = min(1.0, (time - number * ROUND_SECONDS) / MOVE_SECONDS) if number else 1.0
    eased = share * share * (3 - 2 * share)
    sheet = Sheet(animation.still.title)
    sheet.items = list(animation.still.items)
    for one in animation.words:
        if one.first > number:
            continue
        (x, y), (nx, ny) = one.at(number - 1), one.at(number)
        new = one.first == number and number > 0
        ink = Ink.GIVEN if one.word.given else Ink.NOW if new else Ink.TEXT
        if not new or share > 0.5:
            sheet.word(one.word, x + (nx - x) * eased, y + (ny - y) * eased, ink, new=new)
    sheet.y = animation.count_place[1]
    sheet.note(animation.count_place[0], animation.counts[number])
    return Picture(animation.still.width, animation.still.height, tuple(sheet.items), animation.still.title)


def times(animation: Animation, steps: int = 5) -> list[tuple[float, float]]:
    """Return when the frames of a GIF are, and how long each is shown, in seconds."""
    step = MOVE_SECONDS / steps
    frames = [(0.0, ROUND_SECONDS)]
    for number in range(1, animation.rounds + 1):
        start = number * ROUND_SECONDS
        frames += [(start + step * (part + 0.5), step) for part in range(steps)]
        rest = ROUND_SECONDS if number < animation.rounds else LAST_SECONDS
        frames.append((start + MOVE_SECONDS, rest - MOVE_SECONDS))
    return frames
