"""An animated decode: words appear where they are inserted, and those around them make room.

Both sides are shown as they stand after each round. A word has a place for every round from its own on; CSS moves it
from one to the next. Readers who prefer reduced motion see the complete text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from kermit.rendering.layouts import Sheet, Word, flow
from kermit.rendering.picture import MARGIN, ROW, Ink, Label, Picture, baseline, row_box, underline
from kermit.rendering.svg import STYLE, document, element

if TYPE_CHECKING:
    from kermit.rendering.readable import ReadableTrace

ANIMATION_WIDTH = 760
"""The widest line; longer texts are broken into lines."""

ROUND_SECONDS, MOVE_SECONDS, LAST_SECONDS = 1.1, 0.35, 3.0
"""How long a round is shown, how much of that time words move, and how long the end is shown."""


@dataclass(frozen=True)
class Moving:
    """A word, with its left end and the middle of its row in every round since its own."""

    word: Word
    places: tuple[tuple[float, float], ...]

    @property
    def first(self) -> int:
        """The round in which it appears; 0 for given words."""
        return self.word.token.round

    def at(self, number: int) -> tuple[float, float]:
        """Return its place after a round; before its own round, the place where it will appear."""
        return self.places[max(0, number - self.first)]


@dataclass(frozen=True)
class Animation:
    """Moving words, and a picture of everything static: the title, the names of the sides and the legend."""

    still: Picture
    words: tuple[Moving, ...]
    count_place: tuple[float, float]
    rounds: int

    @property
    def seconds(self) -> float:
        """The duration of one loop."""
        return self.rounds * ROUND_SECONDS + LAST_SECONDS

    def end(self, number: int) -> float:
        """Return when a round ends, in seconds."""
        return (number + 1) * ROUND_SECONDS if number < self.rounds else self.seconds

    def rule(self, name: str, frames: Sequence[tuple[float, str]]) -> str:
        """Return the CSS that plays keyframes, each a time in seconds and its declarations."""
        steps = ""
        for looks, same in groupby(frames, itemgetter(1)):
            steps += ",".join(f"{100 * time / self.seconds:.2f}%" for time, _ in same) + f"{{{looks}}}"
        return f".{name}{{animation-name:{name};animation-duration:{self.seconds:g}s}}@keyframes {name}{{{steps}}}"


def animate(trace: ReadableTrace, title: str | None = None) -> Animation:
    """Lay out an animated decode."""
    sheet = Sheet(trace, title)
    rounds = max((number for number, found in enumerate(trace.trace.rounds, start=1) if found), default=0)
    moving: list[Moving] = []
    for row in sheet.sides():
        after = []
        for number in range(rounds + 1):
            there = [word for word in row if word.token.round <= number]
            places = flow(there, MARGIN, ANIMATION_WIDTH)
            after.append({word.index: place for word, place in zip(there, places, strict=True)})
        for word in row:
            places = [after[number][word.index] for number in range(word.token.round, rounds + 1)]
            moving.append(Moving(word, tuple((place.x, sheet.y + place.line * ROW) for place in places)))
        sheet.y += ROW * (1 + after[-1][row[-1].index].line)
    place = (float(MARGIN), sheet.y)
    sheet.y += ROW
    sheet.legend([("given", Ink.GIVEN), ("inserted", Ink.TEXT), ("new in this round", Ink.NOW)])
    still = sheet.picture()
    ends = [x + one.word.room + MARGIN for one in moving for x, _ in one.places]
    return Animation(replace(still, width=math.ceil(max(still.width, *ends, 0))), tuple(moving), place, rounds)


def animated_svg(animation: Animation, prefix: str = "") -> str:
    """Draw an animated decode; `prefix` keeps the keyframes of several pictures on a page apart."""
    style, parts = [STYLE, ".m{animation-iteration-count:infinite;animation-timing-function:ease-in-out}"], []
    for number, moving in enumerate(animation.words):
        name, word, (x, y) = f"{prefix}w{number}", moving.word, moving.places[-1]
        style.append(animation.rule(name, _moves(animation, moving)))
        shade = element(row_box(x, y, word.room, Ink.DOUBT, word.doubt)) if word.doubt > 0.005 else ""
        ink, new = Ink.GIVEN if word.given else Ink.TEXT, ""
        if not word.given:
            style.append(animation.rule(f"{name}n", _shown_in(animation, moving.first, MOVE_SECONDS / 2)))
            new = f'<g class="m {name}n" opacity="0">{element(underline(x, y, word.room))}</g>'
        label = element(Label(x, baseline(y), word.text, ink, word.given, word.hover))
        parts.append(f'<g class="m {name}">{shade}{label}{new}</g>')  # at its last place; CSS moves it from there
    x, y = animation.count_place
    for number in range(animation.rounds + 1):
        style.append(animation.rule(f"{prefix}c{number}", _shown_in(animation, number, 0.0)))
        hidden = "" if number == animation.rounds else ' opacity="0"'
        count = Label(x, baseline(y), f"round {number} of {animation.rounds}" if number else "start", Ink.NOTE)
        parts.append(f'<g class="m {prefix}c{number}"{hidden}>{element(count)}</g>')
    style.append("@media (prefers-reduced-motion:reduce){.m{animation:none !important}}")
    still = "".join(map(element, animation.still.items))
    return document(animation.still, still + "".join(parts), "".join(style))


def _moves(animation: Animation, moving: Moving) -> list[tuple[float, str]]:
    """Return the keyframes of a word: hidden before its round, then moving from place to place."""
    (x, y), frames = moving.places[-1], []
    for number in range(animation.rounds + 1):
        there = moving.at(number)
        move = f"transform:translate({there[0] - x:.1f}px,{there[1] - y:.1f}px);opacity:"
        begin = number * ROUND_SECONDS + (MOVE_SECONDS if number else 0)
        if number == moving.first > 0:  # once the others have made room
            frames.append((begin - 0.1, f"{move}0"))
        frames += [(time, f"{move}{int(number >= moving.first)}") for time in (begin, animation.end(number))]
    return frames


def _shown_in(animation: Animation, number: int, delay: float) -> list[tuple[float, str]]:
    """Return keyframes that show something in one round only, from some seconds after its start."""
    begin, end = number * ROUND_SECONDS + (delay if number else 0), animation.end(number)
    before = [(0.0, "opacity:0"), (begin - 0.02, "opacity:0")] if begin > 0 else []
    after = [(end, "opacity:0"), (animation.seconds, "opacity:0")] if end < animation.seconds else []
    return [*before, (begin, "opacity:1"), (end - 0.02, "opacity:1"), *after]
