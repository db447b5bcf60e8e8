"""Word alignment: words that translate each other in a parallel corpus, by IBM model 1 (Brown et al. 1993, 4.1).

A cell is a position of x together with a position of y of the same pair. All cells are processed at once, in NumPy;
cells of the same two words share one probability. The empty word has the words' frequencies and is not trained.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

LETTER = r"[^\W\d_]"
WORD = re.compile(rf"{LETTER}+(?:['\u2019-]{LETTER}+)*")
INSIDE = re.compile(rf"(?<=[\w,;] ){WORD.pattern}")
"""A word that does not start a sentence."""
_Integers = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True)
class _Side:
    """The words of one side by number, 0 for all rare ones: `ids` of all texts in a row, `sizes` of the texts."""

    words: Sequence[str]
    ids: _Integers
    sizes: _Integers

    @property
    def starts(self) -> _Integers:
        return np.cumsum(self.sizes) - self.sizes


def dictionary(
    pairs: Sequence[tuple[str, str]],
    generator: Generator,
    *,
    least: int = 5,
    probability: float = 0.4,
    iterations: int = 5,
    max_words: int = 30,
    max_cells: int = 20_000_000,
) -> list[tuple[str, str]]:
    """Find words that translate each other, lower-cased, the most frequent first.

    Args:
        pairs: the corpus.
        generator: chooses pairs if there are more than `max_cells` allow.
        least: minimum number of times that two words must meet.
        probability: minimum probability of each word given the other; the runner-up must have much less.
        iterations: of expectation maximisation.
        max_words: pairs with a longer text are left out.
        max_cells: bounds memory; 20 million take 1.3 GB.
    """
    order = generator.permutation(len(pairs)).tolist()
    x, y = (_numbered([pairs[index][side] for index in order], least) for side in (0, 1))
    cells = np.where((x.sizes <= max_words) & (y.sizes <= max_words), x.sizes * y.sizes, 0)
    cells[np.cumsum(cells) > max_cells] = 0
    if not cells.any():
        return []
    pair = np.repeat(np.arange(len(cells)), cells)
    offset = np.arange(len(pair)) - np.repeat(np.cumsum(cells) - cells, cells)
    x_at = (x.starts[pair] + offset % x.sizes[pair]).astype(np.int32)
    y_at = (y.starts[pair] + offset // x.sizes[pair]).astype(np.int32)
    del pair, offset
    keys, cell, counts = np.unique(x.ids[x_at] * len(y.words) + y.ids[y_at], return_inverse=True, return_counts=True)
    x_word, y_word = np.divmod(keys, len(y.words))
    cell = cell.astype(np.int32)
    chosen = (counts >= least) & (x_word > 0) & (y_word > 0)
    chosen &= _clear(_model_1(cell, counts, x_word, y, y_at, iterations), x_word, probability)
    chosen &= _clear(_model_1(cell, counts, y_word, x, x_at, iterations), y_word, probability)
    found = np.flatnonzero(chosen)
    found = found[np.argsort(-counts[found], kind="stable")]
    return [(x.words[a], y.words[b]) for a, b in zip(x_word[found], y_word[found], strict=True)]


def _numbered(texts: Sequence[str], least: int) -> _Side:
    split = [WORD.findall(text.lower()) for text in texts]
    counts = Counter(chain.from_iterable(split))
    words = ["", *(word for word, count in counts.items() if count >= least)]
    number = {word: index for index, word in enumerate(words)}
    ids = np.fromiter((number.get(word, 0) for word in chain.from_iterable(split)), np.int64)
    return _Side(words, ids, np.fromiter(map(len, split), np.int64, len(split)))


def _model_1(
    cell: _Integers, counts: _Integers, given: _Integers, side: _Side, at: _Integers, iterations: int
) -> NDArray[np.float64]:
    """Estimate p(word | given word) by expectation maximisation.

    Args:
        cell: (cells,) which two words each cell has.
        counts: (word pairs,) how many cells have them.
        given: (word pairs,) the word that is given.
        side: whose words are predicted.
        at: (cells,) the predicted word's place in `side.ids`.
        iterations: how many.

    Returns:
        (word pairs,) probabilities.
    """
    empty = (np.bincount(side.ids) / max(1, len(side.ids)))[side.ids]
    expected = counts.astype(np.float64)
    for _ in range(iterations):
        weight = (expected / np.bincount(given, expected)[given])[cell]
        weight /= (np.bincount(at, weight, len(empty)) + empty)[at]
        expected = np.bincount(cell, weight, len(counts)).astype(np.float64)
    return np.asarray(expected / np.maximum(np.bincount(given, expected)[given], 1e-12))


def _clear(p: NDArray[np.float64], given: _Integers, probability: float) -> NDArray[np.bool_]:
    """Whether p is high enough and well above the runner-up, which excludes parts of compounds."""
    order = np.lexsort((p, given))
    word, ordered = given[order], p[order]
    best = np.append(word[1:] != word[:-1], True)
    second = np.roll(best, -1) & ~best
    next_best = np.zeros(int(given.max()) + 1)
    next_best[word[second]] = ordered[second]
    return np.asarray((p >= probability) & (p >= 1.5 * next_best[given]))
