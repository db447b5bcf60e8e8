"""Batches by token budget: rows of like length together, at most so many tokens with the padding.

Everything is a pure function of (seed, epoch): which rows an epoch holds, how they are grouped, and in which order the
batches come. So a training that was interrupted finds its place again from the number of batches it has done; how many
the epochs before had is kept only to save planning those again. Batches are formed for all processes together; each
takes its share of every one, so the texts of a step are the same on any number of processes.

A source's weight says how often an epoch holds each of its rows: 2 twice, 0.5 a random half.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from kermit.canvas.arrays import Array, Integers
from kermit.errors import DataError

if TYPE_CHECKING:
    from kermit.data.encoding import Row

# Rows whose lengths differ by less than this are taken for alike: room for another grouping in every epoch.
_LENGTH_SLACK = 2.0
# Tokens that every canvas has beside its texts: [CLS] and two [SEP].
SPECIALS_PER_ROW = 3


class EpochRows(Protocol):
    """The rows that an epoch is made of: how long their sides are, which source they are from, and the rows."""

    @property
    def x_lengths(self) -> Integers:
        """(rows,) tokens of each row's first side."""
        ...

    @property
    def y_lengths(self) -> Integers:
        """(rows,) tokens of each row's second side."""
        ...

    @property
    def sources(self) -> Integers:
        """(rows,) each row's source index."""
        ...

    def fetch(self, indices: Iterable[int]) -> list[Row]:
        """The rows at the indices, in their order."""
        ...


class Text(Protocol):
    """Encoded text, which may be cut into other rows in every epoch."""

    def __len__(self) -> int: ...

    def epoch(self, number: int) -> EpochRows:
        """The rows of an epoch."""
        ...


class Planner(Protocol):
    """What says which batches an epoch has."""

    def epoch(self, epoch: int) -> list[Batch]:
        """The batches of an epoch, in order."""
        ...


@dataclass(frozen=True)
class Batch:
    """The rows of one batch over all processes, with all that its randomness depends on."""

    epoch: int
    index: int
    batches_in_epoch: int
    rows: tuple[int, ...]


@dataclass(frozen=True)
class BatchPlanner:
    """Plans an epoch's batches.

    Attributes:
        x_lengths, y_lengths: tokens of each row's sides.
        sources: each row's source index.
        weights: how often an epoch holds each row of a source, by source index.
        tokens: the budget: rows times the longest row (specials included) of a batch is at most this.
        seed: of the whole training.
        processes: how many share every batch, each with a row at least.
    """

    x_lengths: Integers
    y_lengths: Integers
    sources: Integers
    weights: tuple[float, ...]
    tokens: int
    seed: int
    processes: int = 1

    def __post_init__(self) -> None:
        longest = int((self.x_lengths + self.y_lengths).max(initial=0)) + SPECIALS_PER_ROW
        if longest > self.tokens:
            raise DataError(
                f"the longest text has {longest} tokens, but a batch may hold {self.tokens};"
                f" raise `batch.tokens` to {longest} or more, or lower `data.max_tokens`"
            )
        fewest = (self.tokens // longest + 1) // 2  # a full batch and one row left over, which two batches share
        if fewest < self.processes:
            raise DataError(
                f"the longest text has {longest} tokens, so a batch of {self.tokens} may hold no more than {fewest}"
                f" texts, which cannot be shared by {self.processes} processes; raise `batch.tokens` to"
                f" {longest * (2 * self.processes - 1)} or more, lower `data.max_tokens`, or start fewer processes"
            )

    def epoch(self, epoch: int) -> list[Batch]:
        """The batches of an epoch, in order."""
        random = np.random.Generator(np.random.PCG64([self.seed, epoch, 0x6B]))
        rows = self._draw_rows(random)
        if len(rows) == 0:
            raise DataError("the weights of the data sources leave an epoch without a single text")
        total = self.x_lengths[rows] + self.y_lengths[rows]
        alike = np.floor(total / _LENGTH_SLACK + random.random(len(rows)))
        within = self.y_lengths[rows] + _LENGTH_SLACK * random.random(len(rows))
        rows = rows[np.lexsort((within, alike))]
        groups = list(self._groups(rows))
        order = random.permutation(len(groups))
        return [Batch(epoch, index, len(groups), groups[place]) for index, place in enumerate(order)]

    def _draw_rows(self, random: np.random.Generator) -> Integers:
        parts = []
        for source, weight in enumerate(self.weights):
            (rows,) = np.nonzero(self.sources == source)
            whole, share = divmod(weight, 1.0)
            parts.append(np.repeat(rows, int(whole)))
            if extra := round(share * len(rows)):
                parts.append(np.sort(random.choice(rows, size=extra, replace=False)))
        return np.concatenate(parts).astype(np.int64)

    def _groups(self, rows: Integers) -> Iterator[tuple[int, ...]]:
        costs = (self.x_lengths[rows] + self.y_lengths[rows] + SPECIALS_PER_ROW).tolist()
        starts, longest = [0], 0
        for place, cost in enumerate(costs):
            longest = max(longest, cost)
            if longest * (place + 1 - starts[-1]) > self.tokens:
                starts.append(place)
                longest = cost
        if len(starts) > 1:
            starts[-1] = self._filled_up(costs, *starts[-2:])
        for start, end in pairwise([*starts, len(rows)]):
            yield tuple(rows[start:end].tolist())

    def _filled_up(self, costs: list[int], before: int, start: int) -> int:
        """Where the last batch begins once it has its share of the one before: several processes may have to divide it.

        Args:
            costs: the tokens of every row.
            before: where the batch before the last begins.
            start: where the last begins, made of what was left over.
        """
        longest = max(costs[start:])
        while start - before > len(costs) - start:
            longest = max(longest, costs[start - 1])
            if longest * (len(costs) - start + 1) > self.tokens:
                break
            start -= 1
        return start


@dataclass(frozen=True)
class TextPlanner:
    """Plans the batches of a text whose rows may be others in every epoch; the attributes are `BatchPlanner`'s."""

    text: Text
    weights: tuple[float, ...]
    tokens: int
    seed: int
    processes: int = 1

    def epoch(self, epoch: int) -> list[Batch]:
        """The batches of an epoch, in order."""
        rows = self.text.epoch(epoch)
        lengths = rows.x_lengths, rows.y_lengths
        planner = BatchPlanner(*lengths, rows.sources, self.weights, self.tokens, self.seed, self.processes)
        return planner.epoch(epoch)


class BatchStream(torch.utils.data.Sampler[list[Batch]]):
    """The batches of epoch after epoch, `count` in all, each as a list of one for torch's DataLoader.

    Attributes:
        sizes: how many batches there are in each epoch that was begun.
    """

    def __init__(self, planner: Planner, count: int) -> None:
        self.planner = planner
        self.count = count
        self.sizes: list[int] = []
        self._done = 0

    def resume(self, sizes: Sequence[int], done: int) -> None:
        """Go on after so many batches, given the sizes of the epochs before.

        Whoever resumes passes over the batches that are done; those of epochs that are over are then empty lists, and
        the epochs are not planned again.
        """
        self.sizes, self._done = list(sizes), done

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[list[Batch]]:
        reached = epoch = 0
        while reached < self.count:
            if epoch < len(self.sizes) and reached + self.sizes[epoch] <= self._done:
                yield from repeat([], self.sizes[epoch])
            else:
                batches = self.planner.epoch(epoch)
                self.sizes[epoch:] = [len(batches)]
                for batch in batches[: self.count - reached]:
                    yield [batch]
            reached += self.sizes[epoch]
            epoch += 1


def batch_generator(seed: int, batch: Batch) -> np.random.Generator:
    """Return the randomness of a batch: what a collator draws depends on (seed, epoch, index) only."""
    return np.random.Generator(np.random.PCG64([seed, batch.epoch, batch.index, 0xC0]))


@dataclass(frozen=True)
class RankShare:
    """Which rows of a batch a process takes: every `processes`-th from `rank` on."""

    rank: int = 0
    processes: int = 1

    def rows(self, count: int) -> Integers:
        """Return the numbers of this process's rows among so many.

        Raises:
            DataError: there are fewer rows than processes.
        """
        if count < self.processes:
            raise DataError(
                f"a batch holds {count} texts, which cannot be shared by {self.processes} processes; raise"
                " `batch.tokens`, or start fewer processes"
            )
        return np.arange(self.rank, count, self.processes)

    def of(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """Return this process's rows of arrays whose first dimension is the rows."""
        if self.processes == 1:
            return arrays
        rows = self.rows(min(map(len, arrays.values())))
        return {name: array[rows] for name, array in arrays.items()}


WHOLE = RankShare()
"""The share of a process that is alone."""


def padded(sequences: Sequence[Sequence[int]], value: int) -> Integers:
    """Return sequences side by side, filled on the right with `value`: (rows, longest)."""
    longest = max((len(sequence) for sequence in sequences), default=0)
    out = np.full((len(sequences), longest), value, dtype=np.int64)
    for row, sequence in enumerate(sequences):
        out[row, : len(sequence)] = sequence
    return out
