"""Filters for pairs of a text and its translation that are clearly wrong.

A pair is left out for the first reason that applies: mismatched lengths, a copy, a loop, or a side in the other side's
language, judged by how often its words occur on either side. The filters suit languages that separate words by spaces.
This module knows no files and no models.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

MIN_COPY_WORDS = 3
MIN_REPEATS = 3
MIN_LANGUAGE_WORDS = 4
MAX_FOREIGN = 2 / 3
"""Share of words that are more frequent on the other side, above which a text is in the wrong language."""

_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\w+|[^\w\s]+")


class Reason(StrEnum):
    """Why a pair was left out."""

    LENGTH = "length"
    COPY = "copy"
    REPETITION = "repetition"
    LANGUAGE = "language"


@dataclass(frozen=True)
class PairFilter:
    """Judges pairs by their form and by the word counts of both sides."""

    source: Counter[str] = field(default_factory=Counter)
    target: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> PairFilter:
        """Count the words of pairs, except pairs that are wrong in form."""
        found = cls()
        for source, target in pairs:
            if wrong_form(source, target) is None:
                found.source.update(_words(source))
                found.target.update(_words(target))
        return found

    def reason(self, source: str, target: str) -> Reason | None:
        """Return why a pair should be left out; None to keep it."""
        if (wrong := wrong_form(source, target)) is not None:
            return wrong
        foreign = _foreign(source, self.source, self.target) or _foreign(target, self.target, self.source)
        return Reason.LANGUAGE if foreign else None


def wrong_form(source: str, target: str) -> Reason | None:
    """Detect mismatched lengths (more than twice the other side's words plus 3), copies and loops."""
    words = _words(source)
    short, long = sorted((len(source.split()), len(target.split())))
    if long > 2 * short + 3:
        return Reason.LENGTH
    if len(words) >= MIN_COPY_WORDS and words == _words(target):
        return Reason.COPY
    return Reason.REPETITION if repeats(target) and not repeats(source) else None


def repeats(text: str) -> bool:
    """Return whether a sequence of tokens (words and punctuation) occurs three or more times in a row."""
    tokens = _TOKEN.findall(text.casefold())
    for period in range(1, len(tokens) // MIN_REPEATS + 1):
        run = 0  # length of the run of tokens equal to the token one period earlier
        for earlier, later in zip(tokens, tokens[period:], strict=False):
            run = run + 1 if earlier == later else 0
            if run == period * (MIN_REPEATS - 1):
                return True
    return False


def _foreign(text: str, own: Counter[str], other: Counter[str]) -> bool:
    """Return whether most words occur more often on the other side; the text itself is not counted."""
    words = Counter(_words(text))
    foreign = sum(count for word, count in words.items() if other[word] > max(own[word] - count, 0))
    return words.total() >= MIN_LANGUAGE_WORDS and foreign > MAX_FOREIGN * words.total()


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
