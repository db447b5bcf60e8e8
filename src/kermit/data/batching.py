"""Batches of rows of similar length, with a limit on tokens including padding.

The rows of an epoch, their grouping and the order of batches are pure functions of (seed, epoch). So an interrupted
training finds its place from the number of batches done; the sizes of earlier epochs are stored only to avoid planning
them again. Batches are planned for all processes together, and each process takes its share of every batch, so the
texts of a step are the same on any number of processes.

A source's weight is the number of times each of its rows occurs per epoch: 2 is twice, 0.5 a random half.
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

# Rows whose lengths differ by less than this may swap places, so that every epoch groups rows differently.
_LENGTH_SLACK = 2.0
# Special tokens of every canvas: [CLS] and two [SEP].
SPECIALS_PER_ROW = 3


class EpochRows(Protocol):
    """The rows of an epoch, with their lengths and sources."""

    @property
    def x_lengths(self) -> Integers:
        """(rows,) number of tokens of each row's first side."""

    @property
    def y_lengths(self) -> Integers:
        """(rows,) number of tokens of each row's second side."""

    @property
    def sources(self) -> Integers:
        """(rows,) source index of each row."""

    def fetch(self, indices: Iterable[int]) -> list[Row]:
        """Return the rows at the indices, in that order."""


class Text(Protocol):
    """Encoded text; its rows may differ from epoch to epoch."""

    def __len__(self) -> int: ...

    def epoch(self, number: int) -> EpochRows:
        """Return the rows of an epoch."""


@dataclass(frozen=True)
class Batch:
    """The rows of one batch over all processes, with everything that its random draws depend on."""

    epoch: int
    index: int
    rows: tuple[int, ...]


@dataclass(frozen=True)
class BatchPlanner:
    """Plans the batches of a text whose rows may differ from epoch to epoch.

    Attributes:
        weights: number of times each row of a source occurs per epoch, by source index.
        tokens: maximum of a batch's number of rows times its longest row, including special tokens.
        processes: number of processes that share every batch, each with at least one row.
    """

    text: Text
    weights: tuple[float, ...]
    tokens: int
    seed: int
    processes: int = 1

    def epoch(self, epoch: int) -> list[Batch]:
        """Plan the batches of an epoch, in order."""
        text = self.text.epoch(epoch)
        lengths = text.x_lengths + text.y_lengths
        self._check(int(lengths.max(initial=0)) + SPECIALS_PER_ROW)
        random = np.random.Generator(np.random.PCG64([self.seed, epoch, 0x6B]))
        rows = self._draw_rows(text.sources, random)
        if len(rows) == 0:
            raise DataError("the weights of all data sources are too low: an epoch has no text; raise a `weight`")
        alike = np.floor(lengths[rows] / _LENGTH_SLACK + random.random(len(rows)))
        within = text.y_lengths[rows] + _LENGTH_SLACK * random.random(len(rows))
        rows = rows[np.lexsort((within, alike))]
        groups = list(self._groups(rows, (lengths[rows] + SPECIALS_PER_ROW).tolist()))
        order = random.permutation(len(groups))
        return [Batch(epoch, index, groups[place]) for index, place in enumerate(order)]

    def _check(self, longest: int) -> None:
        """Raise if a batch cannot hold the longest text, or not one per process."""
        if longest > self.tokens:
            raise DataError(
                f"the longest text has {longest} tokens, but a batch may hold only {self.tokens};"
                f" raise `batch.tokens` to {longest} or more, or lower `data.max_tokens`"
            )
        fewest = (self.tokens // longest + 1) // 2  # a full batch and one remaining row are split in half
        if fewest < self.processes:
            raise DataError(
                f"the longest text has {longest} tokens, so a batch of {self.tokens} may hold only {fewest} texts,"
                f" too few for {self.processes} processes; raise `batch.tokens` to"
                f" {longest * (2 * self.processes - 1)} or more, lower `data.max_tokens`, or start fewer processes"
            )

    def _draw_rows(self, sources: Integers, random: np.random.Generator) -> Integers:
        parts = []
        for source, weight in enumerate(self.weights):
            (rows,) = np.nonzero(sources == source)
            whole, share = divmod(weight, 1.0)
            parts.append(np.repeat(rows, int(whole)))
            if extra := round(share * len(rows)):
                parts.append(np.sort(random.choice(rows, size=extra, replace=False)))
        return np.concatenate(parts).astype(np.int64)

    def _groups(self, rows: Integers, costs: list[int]) -> Iterator[tuple[int, ...]]:
        """Split sorted rows into batches, given the number of tokens of each row."""
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
        """Return the start of the last batch after moving rows from the one before, so that all processes get a row."""
        longest = max(costs[start:])
        while start - before > len(costs) - start:
            longest = max(longest, costs[start - 1])
            if longest * (len(costs) - start + 1) > self.tokens:
                break
            start -= 1
        return start


class BatchStream(torch.utils.data.Sampler[list[Batch]]):
    """The batches of consecutive epochs, `count` in total, each as a list of one batch for torch's DataLoader.

    Attributes:
        sizes: number of batches of each epoch so far.
    """

    def __init__(self, planner: BatchPlanner, count: int) -> None:
        self.planner = planner
        self.count = count
        self.sizes: list[int] = []
        self._done = 0

    def resume(self, sizes: Sequence[int], done: int) -> None:
        """Continue after `done` batches, given the sizes of earlier epochs.

        The caller skips the finished batches; finished epochs are not planned again and yield empty lists.
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
    """Return the random generator of a batch, which depends only on (seed, epoch, index)."""
    return np.random.Generator(np.random.PCG64([seed, batch.epoch, batch.index, 0xC0]))


@dataclass(frozen=True)
class RankShare:
    """The rows of a batch that one process takes: every `processes`-th row, starting at `rank`."""

    rank: int = 0
    processes: int = 1

    def rows(self, count: int) -> Integers:
        """Return the indices of this process's rows among `count` rows."""
        if count < self.processes:
            raise DataError(
                f"a batch holds {count} texts, too few for {self.processes} processes; raise `batch.tokens`, or start"
                " fewer processes"
            )
        return np.arange(self.rank, count, self.processes)

    def of(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """Return this process's rows of arrays whose first dimension is rows."""
        if self.processes == 1:
            return arrays
        rows = self.rows(min(map(len, arrays.values())))
        return {name: array[rows] for name, array in arrays.items()}


WHOLE = RankShare()
"""The share of a single process: every row."""


def padded(sequences: Sequence[Sequence[int]], value: int) -> Integers:
    """Pad sequences on the right with `value` into one array, (rows, longest)."""
    longest = max((len(sequence) for sequence in sequences), default=0)
    out = np.full((len(sequences), longest), value, dtype=np.int64)
    for row, sequence in enumerate(sequences):
        out[row, : len(sequence)] = sequence
    return out
