"""Conversion of Treebank words to text: ``65 %`` is written ``65%``, and ``` `` ``` is an opening quote.

QA2D's sentences are tokenised as in the Penn Treebank, SQuAD's text is not. `join_words` turns words into text;
`find_words` finds an answer in a sentence however the two were tokenised.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

_WRITTEN = {
    "``": '"',
    "''": '"',
    "`": "'",
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
}
_OPENS = re.compile(r"``?|-L[RSC]B-|[(\[{$£€#]")
_CLOSES = re.compile(r"''?|-R[RSC]B-|[.,;:?!%)\]}]+|'(s|re|ve|ll|d|m)|n't", re.IGNORECASE)
_QUOTES = str.maketrans(dict.fromkeys('"`\u201c\u201d\u2018\u2019', "'"))
_FINAL = ".?!"


def split_words(text: str) -> list[str]:
    """Split a tokenised sentence into words; a full stop attached to the last word becomes a separate word."""
    words = text.split()
    if words and len(words[-1]) > 1 and words[-1][-1] in _FINAL and not _CLOSES.fullmatch(words[-1]):
        words[-1:] = [words[-1][:-1], words[-1][-1]]
    return words


def space_between(left: str, right: str) -> str:
    """Return the separator of two words in running text: a space, or nothing next to punctuation."""
    return "" if _OPENS.fullmatch(left) or _CLOSES.fullmatch(right) else " "


def join_words(words: Sequence[str]) -> str:
    """Join words into running text."""
    text = "".join(map(_written, words[:1]))
    for left, right in pairwise(words):
        text += space_between(left, right) + _written(right)
    return text


def find_words(wanted: Sequence[str], words: Sequence[str]) -> list[tuple[int, int]]:
    """Find each occurrence (start, end) of a sequence of words, ignoring case, quotes and tokenisation."""
    key = "".join(map(_key, wanted))
    keys = [_key(word) for word in words]
    places = []
    for start in range(len(keys)):
        end, seen = start, ""
        while end < len(keys) and len(seen) < len(key):
            seen += keys[end]
            end += 1
        if seen == key:
            places.append((start, end))
    return places


def without_outer_punctuation(words: Sequence[str]) -> list[str]:
    """Return the words from the first to the last with a letter or digit."""
    telling = [index for index, word in enumerate(words) if has_letters(word)]
    return list(words[telling[0] : telling[-1] + 1]) if telling else []


def has_letters(word: str) -> bool:
    """Return whether a word is more than punctuation."""
    return any(map(str.isalnum, _written(word)))


def letters(words: Sequence[str]) -> str:
    """Return only letters and digits, in lower case, which do not depend on the tokenisation."""
    return "".join(filter(str.isalnum, "".join(map(_key, words))))


def _written(word: str) -> str:
    return _WRITTEN.get(word, word)


def _key(word: str) -> str:
    return _written(word).casefold().translate(_QUOTES)
