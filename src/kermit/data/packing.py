"""Sentences packed into pairs, as in BERT's pretraining: x and y of whole sentences, up to a number of tokens.

A pair takes sentences until it is long enough or the article ends, is split between two of them into x and y, and loses
excess tokens from the front or the back of the longer side. One pair in ten is meant to be shorter. A pair of one
sentence has only x. With the next-sentence task, y of every other pair comes from another article, and the sentences
that it displaces begin the next pair. All randomness is drawn from (seed, epoch).

Only the choice of the pairs' first sentences is a loop: for every sentence, the end of a pair that would begin there is
computed with NumPy, and these steps are then followed from the first sentence on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from kermit.canvas.arrays import Integers
from kermit.data.encoding import Row
from kermit.data.sentences import EncodedSentences
from kermit.errors import DataError

_NOT_ASKED = -1
"""In `Pairs.follows`: the pair has no next-sentence label."""


@dataclass(frozen=True)
class Pairs:
    """The pairs of an epoch, as slices of a stream of tokens.

    Args:
        sentences: the stream.
        x_starts, x_lengths: (pairs,) the slice that is x.
        y_starts, y_lengths: (pairs,) the slice that is y; length 0 if there is none.
        follows: (pairs,) 1 if y continues x, 0 if it is from elsewhere, `_NOT_ASKED`.
        sources: (pairs,) the source of x.
    """

    sentences: EncodedSentences
    x_starts: Integers
    x_lengths: Integers
    y_starts: Integers
    y_lengths: Integers
    follows: Integers
    sources: Integers

    def __len__(self) -> int:
        return len(self.x_starts)

    def fetch(self, indices: Iterable[int]) -> list[Row]:
        """The pairs at the indices, in their order."""
        return [self._row(index) for index in indices]

    def _row(self, index: int) -> Row:
        row = Row(
            x=self.sentences.slice(int(self.x_starts[index]), int(self.x_lengths[index])),
            y=self.sentences.slice(int(self.y_starts[index]), int(self.y_lengths[index])),
            source=int(self.sources[index]),
        )
        if self.follows[index] != _NOT_ASKED:
            row["follows"] = bool(self.follows[index])
        return row

    def spread(self, count: int) -> Pairs:
        """Return `count` pairs, evenly spaced, or all if there are fewer."""
        if count >= len(self):
            return self
        chosen = np.arange(count) * len(self) // count
        columns = (self.x_starts, self.x_lengths, self.y_starts, self.y_lengths, self.follows, self.sources)
        return Pairs(self.sentences, *(column[chosen] for column in columns))


def pack(
    sentences: EncodedSentences,
    random: np.random.Generator,
    *,
    room: int,
    short_rate: float = 0.1,
    next_sentence: bool = False,
) -> Pairs:
    """Pack all sentences into pairs.

    Args:
        sentences: what to pack.
        random: the generator.
        room: maximum number of tokens of a pair without special tokens; 2 or more.
        short_rate: share of pairs that are meant to be shorter, of any length from 2 tokens on.
        next_sentence: whether y of every other pair is from another article.

    Raises:
        DataError: the next-sentence task with fewer than two articles.
    """
    starts, number = sentences.starts, np.arange(len(sentences))
    article = np.cumsum(sentences.opens) - 1
    first = np.flatnonzero(sentences.opens)
    end = np.append(first[1:], len(sentences))
    if next_sentence and len(first) < 2:
        raise DataError(
            "the next-sentence task needs at least two articles; separate them by blank lines, or turn it off"
        )
    # for every sentence: the pair that would begin with it
    chance = random.random((4, len(sentences)))
    target = np.where(chance[0] < short_rate, 2 + (chance[1] * (room - 1)).astype(np.int64), room)
    reached = np.minimum(np.searchsorted(starts, starts[:-1] + target), end[article])
    count = reached - number
    cut = np.where(count > 1, number + 1 + (chance[2] * (count - 1)).astype(np.int64), reached)
    elsewhere = (count > 1) & (chance[3] < 0.5) & next_sentence
    begun = _followed(np.where(elsewhere, cut, reached))
    # for those that do begin: x, and y from behind the cut or from elsewhere
    cut, reached, elsewhere, target = cut[begun], reached[begun], elsewhere[begun], target[begun]
    x_starts, x_lengths = starts[begun], starts[cut] - starts[begun]
    chance = random.random((2, len(begun)))
    other = (article[begun] + 1 + (chance[0] * (len(first) - 1)).astype(np.int64)) % len(first)
    there = first[other] + (chance[1] * (end[other] - first[other])).astype(np.int64)
    wanted = np.maximum(target - x_lengths, 1)
    there_end = np.minimum(np.searchsorted(starts, starts[there] + wanted), end[other])
    y_first, y_end = np.where(elsewhere, there, cut), np.where(elsewhere, there_end, reached)
    y_starts, y_lengths = starts[y_first], starts[y_end] - starts[y_first]
    # excess tokens are removed from the longer side
    x_kept = np.minimum(x_lengths, np.maximum(room - y_lengths, room - room // 2))
    y_kept = np.minimum(y_lengths, room - x_kept)
    asked = (y_kept > 0) & next_sentence
    return Pairs(
        sentences=sentences,
        x_starts=x_starts + random.binomial(x_lengths - x_kept, 0.5),
        x_lengths=x_kept,
        y_starts=y_starts + random.binomial(y_lengths - y_kept, 0.5),
        y_lengths=y_kept,
        follows=np.where(asked, ~elsewhere, _NOT_ASKED),
        sources=sentences.sources[begun],
    )


def _followed(steps: Integers) -> Integers:
    """Return the places reached from 0 by following the steps to the end."""
    places, place = [], 0
    while place < len(steps):
        places.append(place)
        place = int(steps[place])
    return np.asarray(places, dtype=np.int64)


@dataclass(frozen=True)
class PackedText:
    """Text that is packed into different pairs in every epoch.

    Args:
        sentences: the text.
        room: maximum number of tokens of a pair without special tokens.
        short_rate: the share of pairs that are meant to be shorter.
        next_sentence: whether y of every other pair is from another article.
        seed: of the packing.
        limit: maximum number of pairs of an epoch, evenly spaced.
    """

    sentences: EncodedSentences
    room: int
    short_rate: float
    next_sentence: bool
    seed: int
    limit: int | None = None
    _packed: dict[int, Pairs] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.epoch(0))

    def epoch(self, number: int) -> Pairs:
        """Return the pairs of an epoch; the last two are kept."""
        if number not in self._packed:
            pairs = pack(
                self.sentences,
                np.random.Generator(np.random.PCG64([self.seed, number, 0x9A])),
                room=self.room,
                short_rate=self.short_rate,
                next_sentence=self.next_sentence,
            )
            self._packed[number] = pairs if self.limit is None else pairs.spread(self.limit)
            for old in list(self._packed)[:-2]:
                del self._packed[old]
        return self._packed[number]
