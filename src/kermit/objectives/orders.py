"""Order priors: which missing token is inserted next, given what is kept (the paper's p(z), section 3).

Every function takes ``kept`` and ``valid``, two bool arrays (batch, tokens): ``valid`` is False at padding, a token is
*missing* if it is valid and not kept, and a *span* is a run of missing tokens between kept ones (or an end of the row).
Tokens that are never dropped, such as ``[SEP]``, are always kept, so they separate spans.

A prior is q(slot) times w(token within the slot's span). This module knows no model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from kermit.canvas.arrays import Array, Booleans, Floats, Integers
from kermit.errors import ModelError

_TOLERANCE = 1e-3
"""Tolerance of the sum of a prior's weights, which should be 1."""


@dataclass(frozen=True)
class Spans:
    """The missing tokens in order, grouped by span.

    Args:
        shape: (batch, tokens), the shape of the arrays that the spans were found in.
        places: (missing,) the place of each token, as row * tokens + place.
        starts: (spans,) indices into ``places`` of the first token of each span.
        lengths: (spans,) number of tokens in each span.
        rank: (missing,) the token's place in its span, from 0.
        length: (missing,) number of tokens in the token's span.
    """

    shape: tuple[int, int]
    places: Integers
    starts: Integers
    lengths: Integers
    rank: Integers
    length: Integers

    @classmethod
    def of(cls, kept: Booleans, valid: Booleans) -> Spans:
        """Find the spans."""
        width = valid.shape[1]
        places = np.flatnonzero(valid & ~kept)
        begins = places % width == 0
        begins[:1] = True
        begins[1:] |= places[1:] - places[:-1] != 1
        starts = np.flatnonzero(begins)
        lengths = np.diff(starts, append=len(places))
        rank = np.arange(len(places)) - np.repeat(starts, lengths)
        return cls((len(valid), width), places, starts, lengths, rank, np.repeat(lengths, lengths))

    def spread(self, values: Array) -> Array:
        """Scatter values (missing,) to (batch, tokens), 0 elsewhere."""
        out = np.zeros(self.shape, dtype=values.dtype)
        out.reshape(-1)[self.places] = values
        return out

    def at(self, plane: Array) -> Array:
        """Gather the values of (batch, tokens) at the missing tokens, (missing,)."""
        return np.asarray(plane).reshape(-1)[self.places]

    def normalise(self, values: Array) -> Array:
        """Scale values (missing,) to sum to 1 in each span; a span whose sum is 0 becomes uniform."""
        if not len(self.places):
            return values
        total = np.repeat(np.add.reduceat(values, self.starts), self.lengths)
        some = total > 0
        return np.where(some, values / np.where(some, total, 1), 1 / self.length)

    def draw(self, weights: Array, generator: np.random.Generator) -> Booleans:
        """Draw one token per span with probability proportional to its weight; (missing,) bool."""
        if not len(self.places):
            return np.zeros(0, dtype=bool)
        waits = generator.exponential(size=len(self.places))
        rate = np.where(weights > 0, weights, 0) / np.maximum(waits, 1e-300)  # the first to come is chosen
        best = np.maximum.reduceat(rate, self.starts)
        return np.asarray(rate == np.repeat(best, self.lengths))

    @property
    def count(self) -> Integers:
        """Return (batch, 1), the number of spans of each row."""
        rows = self.places[self.starts] // self.shape[1]
        return np.bincount(rows, minlength=self.shape[0])[:, None]


class OrderPrior(ABC):
    """A distribution over insertion orders. A custom prior only needs to define `weights`."""

    def for_texts(self, token_ids: Integers) -> OrderPrior:
        """Return the prior to use for these texts.

        A prior that depends on the tokens, and not only on which are missing, returns a copy of itself that holds them.

        Args:
            token_ids: (batch, tokens), including special tokens and padding.
        """
        return self

    @abstractmethod
    def weights(self, kept: Booleans, valid: Booleans) -> Array:
        """Return the probability that each token is inserted next, given the kept set.

        Returns:
            (batch, tokens) float: zero at kept tokens and padding, summing to 1 wherever a token is missing.
        """

    def slot_weights(self, kept: Booleans, valid: Booleans) -> Array:
        """Return the probability that each token is the next *in its slot*: w, which sums to 1 in each span."""
        spans = Spans.of(kept, valid)
        return spans.spread(spans.normalise(spans.at(self.weights(kept, valid))))

    def sample_kept(self, kept: Booleans, valid: Booleans, count: Integers, generator: np.random.Generator) -> Booleans:
        """Draw the kept set after inserting tokens one by one according to the prior.

        Args:
            kept: (batch, tokens) bool, the tokens at the start.
            valid: (batch, tokens) bool.
            count: (batch,) number of tokens to insert, at most the number missing.
            generator: the source of randomness.

        Returns:
            (batch, tokens) bool, a superset of ``kept``.
        """
        kept = kept & valid
        for step in range(int(count.max()) if count.size else 0):
            wanting = np.flatnonzero(step < count)
            drawn = draw_by_row(self.weights(kept, valid)[wanting], generator)
            kept[wanting, drawn] = True
        return kept

    def sample_rounds(
        self, kept: Booleans, valid: Booleans, generator: np.random.Generator, *, waiting: Array | None = None
    ) -> Integers:
        """Draw the round in which each token is inserted, if every round inserts one token into every unfinished slot.

        Args:
            kept: (batch, tokens) bool, the tokens at the start.
            valid: (batch, tokens) bool.
            generator: the source of randomness.
            waiting: (batch,) probability that an unfinished slot waits for a later round; 0 by default. At least one
                slot of a text never waits.

        Returns:
            (batch, tokens) the round of each missing token, from 1; 0 at kept tokens and padding.
        """
        present = kept & valid
        rounds = np.zeros(kept.shape, dtype=np.int64)
        number = 0
        while len((spans := Spans.of(present, valid)).places):
            number += 1
            chosen = spans.places[spans.draw(spans.at(self.slot_weights(present, valid)), generator)]
            if waiting is not None:
                row = chosen // kept.shape[1]
                noise = generator.random(len(chosen))
                most = np.zeros(len(kept))
                np.maximum.at(most, row, noise)
                chosen = chosen[(noise >= waiting[row]) | (noise == most[row])]
            rounds.reshape(-1)[chosen] = number
            present.reshape(-1)[chosen] = True
        return rounds


def checked_weights(prior: OrderPrior, kept: Booleans, valid: Booleans) -> Array:
    """Return the prior's `weights` after checking them: those of a custom prior may not be a distribution.

    Raises:
        ModelError: the weights are not 0 where no token is missing, or do not sum to 1.
    """
    weights = np.asarray(prior.weights(kept, valid))
    missing = valid & ~kept
    astray = (weights < 0) | ((weights != 0) & ~missing)
    wrong = astray.any(1) | ~(np.abs(weights.sum(1) - 1) <= _TOLERANCE)
    if bool((wrong & missing.any(1)).any()):
        raise ModelError(
            f"the weights of the prior {type(prior).__name__} are not probabilities of the missing tokens; `weights` "
            "must be 0 at kept tokens and padding, and sum to 1 over the missing tokens of each text"
        )
    return weights


def draw_by_row(weights: Array, generator: np.random.Generator) -> Integers:
    """Draw an index per row with probability proportional to its weight; (rows,)."""
    reached = weights.cumsum(1, dtype=np.float64)
    noise = generator.random((len(weights), 1)) * reached[:, -1:]
    last = weights.shape[1] - 1 - (weights[:, ::-1] > 0).argmax(1)
    return np.asarray(np.minimum((reached <= noise).sum(1), last))


def sample_uniform_kept(kept: Booleans, valid: Booleans, count: Integers, generator: np.random.Generator) -> Booleans:
    """Add to ``kept`` a uniform subset of ``count`` (batch,) missing tokens."""
    return _first(generator.random(kept.shape), valid & ~kept, count) | (kept & valid)


def _first(times: Array, missing: Booleans, count: Integers) -> Booleans:
    """Return the ``count`` missing tokens of each row with the smallest times."""
    place = np.where(missing, times, np.inf).argsort(1).argsort(1)
    return missing & (place < count[:, None])


@dataclass(frozen=True)
class UniformPrior(OrderPrior):
    """Every missing token is equally likely: q is the span's share of the missing tokens, w is flat."""

    def weights(self, kept: Booleans, valid: Booleans) -> Floats:
        """Return 1 over the number of missing tokens."""
        missing = valid & ~kept
        return np.asarray(missing / np.maximum(missing.sum(1, keepdims=True), 1), dtype=np.float32)

    def slot_weights(self, kept: Booleans, valid: Booleans) -> Floats:
        """Return 1 over the number of tokens in the span."""
        spans = Spans.of(kept, valid)
        return spans.spread((1 / spans.length).astype(np.float32))

    def sample_kept(self, kept: Booleans, valid: Booleans, count: Integers, generator: np.random.Generator) -> Booleans:
        """Draw a uniform subset."""
        return sample_uniform_kept(kept, valid, count, generator)


@dataclass(frozen=True)
class BalancedTreePrior(OrderPrior):
    """Middle first: q is flat over the unfinished slots, w falls off exponentially from the span's middle.

    Inserting the middle of every span at once builds a balanced binary tree, so a text of n tokens is complete after
    about log2 n rounds.

    Args:
        temperature: w is proportional to exp(-d / temperature), where d is the distance from the middle. A high
            temperature makes w flat; a low one concentrates it on the middle.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"the temperature of a balanced tree prior must be above 0, not {self.temperature}")

    def weights(self, kept: Booleans, valid: Booleans) -> Floats:
        """Return the slot weights divided by the number of spans of the row."""
        spans = Spans.of(kept, valid)
        return (spans.spread(self._of_spans(spans)) / np.maximum(spans.count, 1)).astype(np.float32)

    def slot_weights(self, kept: Booleans, valid: Booleans) -> Floats:
        """Return exp(-d / temperature), normalised in each span."""
        spans = Spans.of(kept, valid)
        return spans.spread(self._of_spans(spans).astype(np.float32))

    def _of_spans(self, spans: Spans) -> Array:
        doubled = np.abs(2 * spans.rank - (spans.length - 1))
        from_nearest = (doubled - (spans.length - 1) % 2) / 2
        return spans.normalise(np.exp(-from_nearest / self.temperature))

    def sample_kept(self, kept: Booleans, valid: Booleans, count: Integers, generator: np.random.Generator) -> Booleans:
        """Draw the kept set after ``count`` insertions, with one pass per level of the tree.

        With q flat, every unfinished slot is equally likely to be next, like independent clocks of rate 1. So each
        token gets an insertion time, its parent's plus an exponential draw, and the first ``count`` are kept. Every
        pass splits all spans at once.
        """
        start = kept & valid
        present = start.copy()
        times = np.zeros(kept.size)
        while len((spans := Spans.of(present, valid)).places):
            chosen = spans.draw(self._of_spans(spans), generator)
            # at a missing token, times holds the time at which its span was created
            split = times[spans.places[chosen]] + generator.exponential(size=len(spans.starts))
            times[spans.places] = np.repeat(split, spans.lengths)
            present.reshape(-1)[spans.places[chosen]] = True
        return start | _first(times.reshape(kept.shape), valid & ~start, count)


@dataclass(frozen=True)
class LeftToRightPrior(OrderPrior):
    """Always the leftmost missing token: the order of an autoregressive model."""

    def weights(self, kept: Booleans, valid: Booleans) -> Floats:
        """Return 1 at the leftmost missing token."""
        missing = valid & ~kept
        return np.asarray(missing & (missing.cumsum(1) == 1), dtype=np.float32)

    def slot_weights(self, kept: Booleans, valid: Booleans) -> Floats:
        """Return 1 at the leftmost token of each span."""
        spans = Spans.of(kept, valid)
        return spans.spread((spans.rank == 0).astype(np.float32))

    def sample_kept(self, kept: Booleans, valid: Booleans, count: Integers, generator: np.random.Generator) -> Booleans:
        """Add the leftmost ``count`` missing tokens."""
        missing = valid & ~kept
        return (kept & valid) | (missing & (missing.cumsum(1) <= count[:, None]))
