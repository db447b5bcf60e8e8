"""Filters for pairs of a text and its translation that are clearly wrong.

A pair is left out for the first of four reasons: mismatched lengths, a copy, a loop, or a side in the other side's
language. The last is decided by naive Bayes over words, with counts from the texts themselves. Words are separated by
spaces and punctuation, so the filters are for languages that write them. This module knows no files and no models.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

MIN_COPY_WORDS = 3
MIN_REPEATS = 3
MIN_LANGUAGE_WORDS = 4
MARGIN = 1.5
"""Mean log-odds per word, in nats, above which a text is in the wrong language."""

_WORD = re.compile(r"\w+")
_LETTERS = re.compile(r"[^\W\d_]+")
_TOKEN = re.compile(r"\w+|[^\w\s]+")


class Reason(StrEnum):
    """Why a pair was left out."""

    LENGTH = "length"
    COPY = "copy"
    REPETITION = "repetition"
    LANGUAGE = "language"


def lengths_differ(source: str, target: str) -> bool:
    """Whether one side has more than twice the words of the other plus 3."""
    short, long = sorted((len(source.split()), len(target.split())))
    return long > 2 * short + 3


def is_copy(source: str, target: str) -> bool:
    """Whether the words are the same except for case and punctuation, and more than two."""
    words = _words(_WORD, source)
    return len(words) >= MIN_COPY_WORDS and words == _words(_WORD, target)


def repeats(text: str) -> bool:
    """Whether a sequence of tokens (words and punctuation) occurs three or more times in a row."""
    tokens = _words(_TOKEN, text)
    for period in range(1, len(tokens) // MIN_REPEATS + 1):
        run = 0  # of tokens that equal the one a period before
        for earlier, later in zip(tokens, tokens[period:], strict=False):
            run = run + 1 if earlier == later else 0
            if run == period * (MIN_REPEATS - 1):
                return True
    return False


def wrong_form(source: str, target: str) -> Reason | None:
    """Return the first reason that needs no counts."""
    if lengths_differ(source, target):
        return Reason.LENGTH
    if is_copy(source, target):
        return Reason.COPY
    if repeats(target) and not repeats(source):
        return Reason.REPETITION
    return None


@dataclass(frozen=True)
class WordCounts:
    """Counts of the words of both sides."""

    source: Counter[str]
    target: Counter[str]

    @classmethod
    def count(cls, pairs: Iterable[tuple[str, str]]) -> WordCounts:
        """Count the words of pairs, without those that `wrong_form` finds."""
        languages = cls(Counter(), Counter())
        for source, target in pairs:
            if wrong_form(source, target) is None:
                languages.source.update(_words(_LETTERS, source))
                languages.target.update(_words(_LETTERS, target))
        return languages

    @cached_property
    def size_ratio(self) -> float:
        """Return the log-ratio of source to target words, smoothed by half a word of every kind."""
        kinds = len(self.source.keys() | self.target.keys())
        return math.log(self.source.total() + kinds / 2 + 1) - math.log(self.target.total() + kinds / 2 + 1)

    def source_margin(self, source: str) -> float:
        """Mean log-odds per word, in nats, that a text of the source side is in the target language."""
        return _log_odds(source, self.source, self.target, self.size_ratio)

    def target_margin(self, target: str) -> float:
        """Mean log-odds per word, in nats, that a translation is in the source language."""
        return _log_odds(target, self.target, self.source, -self.size_ratio)

    def wrong(self, source: str, target: str) -> bool:
        """Whether a side is clearly in the other side's language."""
        return self.target_margin(target) > MARGIN or self.source_margin(source) > MARGIN


def _log_odds(text: str, own: Counter[str], other: Counter[str], size_ratio: float) -> float:
    """Return the mean log-odds per word for the other side; 0 for a text of too few words.

    Counts are smoothed by one half. The text's own words are first subtracted from its side's counts.
    """
    words = Counter(_words(_LETTERS, text))
    if words.total() < MIN_LANGUAGE_WORDS:
        return 0.0
    odds = sum(
        count * (math.log(other[word] + 0.5) - math.log(max(own[word] - count, 0) + 0.5) + size_ratio)
        for word, count in words.items()
    )
    return odds / words.total()


def wrong_pair(source: str, target: str, languages: WordCounts) -> Reason | None:
    """Return why a pair should be left out, if it should."""
    return wrong_form(source, target) or (Reason.LANGUAGE if languages.wrong(source, target) else None)


def _words(pattern: re.Pattern[str], text: str) -> list[str]:
    return pattern.findall(text.casefold())
