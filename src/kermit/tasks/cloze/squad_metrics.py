"""Exact match and F1 as SQuAD's evaluation script defines them.

Both compare texts in lower case, without punctuation and articles; F1 compares bags of words. An answer gets its best
score over all gold answers. Punctuation means ASCII punctuation, as in the script.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """Convert to lower case, and remove punctuation, articles and extra spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, gold: Sequence[str]) -> bool:
    """Return whether the normalised answer equals a gold answer."""
    return normalise(answer) in map(normalise, gold)


def f1(answer: str, gold: Sequence[str]) -> float:
    """Return the best F1 of the answer's words against a gold answer, from 0 to 1."""
    return max(_f1(normalise(answer).split(), normalise(text).split()) for text in gold)


def _f1(words: Sequence[str], gold: Sequence[str]) -> float:
    """Compute 2PR / (P + R), which is twice the number of common words over the number of words of both."""
    shared = (Counter(words) & Counter(gold)).total()
    return 2 * shared / (len(words) + len(gold)) if shared else 0.0
