"""Packing of sentences into pairs, as in BERT's pretraining: x and y of whole sentences, up to a number of tokens.

A pair takes sentences until it is long enough or the article ends, is split between two of them into x and y, and loses
excess tokens from the front or the back of the longer side. One pair in ten is shorter on purpose. A pair of one
sentence has only x. All randomness is drawn from (seed, epoch).

Only finding the pairs' first sentences is a Python loop: NumPy computes for every sentence the end of a pair that would
begin there, and the loop follows these ends from the first sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from kermit.canvas.arrays import Integers
from kermit.data.encoding import Row
from kermit.data.sentences import EncodedSentences


@dataclass(frozen=True)
class Pairs:
    """The pairs of an epoch, as slices of a stream of tokens, (pairs,) each; y has length 0 if there is none."""

    sentences: EncodedSentences
    x_starts: Integers
    x_lengths: Integers
    y_starts: Integers
    y_lengths: Integers
    sources: Integers

    def __len__(self) -> int:
        return len(self.x_starts)

    def fetch(self, indices: Iterable[int]) -> list[Row]:
        """Return the pairs at the indices, in that order."""
        return [
            Row(
                x=self.sentences.slice(int(self.x_starts[index]), int(self.x_lengths[index])),
                y=self.sentences.slice(int(self.y_starts[index]), int(self.y_lengths[index])),
                source=int(self.sources[index]),
            )
            for index in indices
        ]

    def spread(self, count: int) -> Pairs:
        """Return `count` pairs, evenly spaced, or all if there are fewer."""
        if count >= len(self):
            return self
        chosen = np.arange(count) * len(self) // count
        columns = (self.x_starts, self.x_lengths, self.y_starts, self.y_lengths, self.sources)
        return Pairs(self.sentences, *(column[chosen] for column in columns))


def pack(sentences: EncodedSentences, random: np.random.Generator, *, room: int, short_rate: float = 0.1) -> Pairs:
    """Pack all sentences into pairs of at most `room` tokens, and a share `short_rate` of them into shorter ones."""
    starts, number = sentences.starts, np.arange(len(sentences))
    article = np.cumsum(sentences.opens) - 1
    end = np.append(np.flatnonzero(sentences.opens)[1:], len(sentences))
    # the pair that would begin at each sentence
    chance = random.random((3, len(sentences)))
    target = np.where(chance[0] < short_rate, 2 + (chance[1] * (room - 1)).astype(np.int64), room)
    reached = np.minimum(np.searchsorted(starts, starts[:-1] + target), end[article])
    count = reached - number
    cut = np.where(count > 1, number + 1 + (chance[2] * (count - 1)).astype(np.int64), reached)
    # the pairs that are used: remove excess tokens from the longer side
    begun = _followed(reached)
    x_starts, y_starts, y_ends = starts[begun], starts[cut[begun]], starts[reached[begun]]
    x_lengths, y_lengths = y_starts - x_starts, y_ends - y_starts
    x_kept = np.minimum(x_lengths, np.maximum(room - y_lengths, room - room // 2))
    y_kept = np.minimum(y_lengths, room - x_kept)
    return Pairs(
        sentences=sentences,
        x_starts=x_starts + random.binomial(x_lengths - x_kept, 0.5),
        x_lengths=x_kept,
        y_starts=y_starts + random.binomial(y_lengths - y_kept, 0.5),
        y_lengths=y_kept,
        sources=sentences.sources[begun],
    )


def _followed(steps: Integers) -> Integers:
    """Return the places reached from 0 by following the steps."""
    places, place = [], 0
    while place < len(steps):
        places.append(place)
        place = int(steps[place])
    return np.asarray(places, dtype=np.int64)


@dataclass(frozen=True)
class PackedText:
    """Text that is packed differently in every epoch; an epoch has at most `limit` pairs, evenly spaced."""

    sentences: EncodedSentences
    room: int
    short_rate: float
    seed: int
    limit: int | None = None
    _packed: dict[int, Pairs] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.epoch(0))

    def epoch(self, number: int) -> Pairs:
        """Return the pairs of an epoch; the last two epochs are cached."""
        if number not in self._packed:
            random = np.random.Generator(np.random.PCG64([self.seed, number, 0x9A]))
            pairs = pack(self.sentences, random, room=self.room, short_rate=self.short_rate)
            self._packed[number] = pairs if self.limit is None else pairs.spread(self.limit)
            for old in list(self._packed)[:-2]:
                del self._packed[old]
        return self._packed[number]
