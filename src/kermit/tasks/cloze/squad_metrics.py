"""Exact match and F1 as SQuAD's evaluation script defines them.

Both compare texts in lower case, without punctuation and articles; F1 compares bags of words. An answer gets its best
score over all gold answers. Punctuation is that of ASCII, as in the script.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, gold: Sequence[str]) -> bool:
    """Whether the normalised answer is one of the gold ones."""
    return normalise(answer) in map(normalise, gold)


def f1(answer: str, gold: Sequence[str]) -> float:
    """The best F1 of the answer's words against those of a gold answer, from 0 to 1."""
    return max(_f1(normalise(answer).split(), normalise(text).split()) for text in gold)


def _f1(words: Sequence[str], gold: Sequence[str]) -> float:
    """F1 is 2PR / (P + R), which is twice the words in common over the words of both."""
    shared = (Counter(words) & Counter(gold)).total()
    return 2 * shared / (len(words) + len(gold)) if shared else 0.0
