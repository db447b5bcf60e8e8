"""Order priors: which missing token is inserted next, given what is kept (the paper's p(z), section 3).

Every function takes ``kept`` and ``valid``, two bool tensors (batch, tokens): ``valid`` is False at padding, a token is
*missing* where it is valid and not kept, and a *span* is a run of missing tokens between kept ones (or an end of the
row). Tokens that are never dropped, such as ``[SEP]``, are simply kept, and so part the spans.

A prior is q(slot) times w(token within the slot's span). This module knows no model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from kermit.errors import ModelError

_TOLERANCE = 1e-3
"""How far from 1 the sum of a prior's weights may be."""


@dataclass(frozen=True)
class Spans:
    """Where the missing tokens lie.

    Args:
        missing: (batch, tokens) bool.
        index: (batch, tokens), which span a missing token is in: the number of tokens before it that are not missing.
        rank: (batch, tokens), its place in the span, from 0. Meaningless at tokens that are not missing.
        length: (batch, tokens), the number of tokens in its span. Zero-length spans are those of other tokens.
    """

    missing: Tensor
    index: Tensor
    rank: Tensor
    length: Tensor

    @classmethod
    def of(cls, kept: Tensor, valid: Tensor) -> Spans:
        """Find the spans with two cumulative sums."""
        missing = valid & ~kept
        index = (~missing).cumsum(1)
        order = missing.cumsum(1)
        rank = order - 1 - torch.where(missing, 0, order).cummax(1).values
        length = cls._total(missing.long(), index).gather(1, index)
        return cls(missing, index, rank, length)

    @staticmethod
    def _total(values: Tensor, index: Tensor) -> Tensor:
        out = values.new_zeros(values.shape[0], values.shape[1] + 1)
        return out.scatter_add_(1, index, values)

    def sum(self, values: Tensor) -> Tensor:
        """For each token, the sum of values over the missing tokens of its span; (batch, tokens)."""
        return self._total(torch.where(self.missing, values, 0), self.index).gather(1, self.index)

    def normalise(self, values: Tensor) -> Tensor:
        """Scale values to sum to 1 in each span; where a span's sum is 0, alike for all its tokens."""
        total = self.sum(values)
        flat = 1 / self.length.clamp(min=1).to(values.dtype)
        share = torch.where(total > 0, values / total.where(total > 0, 1), flat)
        return torch.where(self.missing, share, 0)

    def draw(self, weights: Tensor, generator: torch.Generator) -> Tensor:
        """Choose one missing token of each span, with the probability that its weight says; (batch, tokens) bool."""
        noise = torch.rand(weights.shape, generator=generator).to(weights.device).clamp(min=1e-12)
        key = torch.log(weights) - torch.log(-torch.log(noise))
        key = key.masked_fill(~self.missing, -float("inf"))
        best = key.new_full((key.shape[0], key.shape[1] + 1), -float("inf"))
        best = best.scatter_reduce_(1, self.index, key, "amax").gather(1, self.index)
        return self.missing & (key == best)

    @property
    def count(self) -> Tensor:
        """The number of spans of each row; (batch, 1)."""
        return (self.missing & (self.rank == 0)).sum(1, keepdim=True)


class OrderPrior(ABC):
    """A distribution over insertion orders. A prior of your own needs `weights` alone."""

    def for_texts(self, token_ids: Tensor) -> OrderPrior:
        """The prior of these texts, which everything else is then asked of.

        A prior that looks at the tokens and not only at where some are missing returns a copy of itself that has them.

        Args:
            token_ids: (batch, tokens), special tokens and padding included.
        """
        return self

    @abstractmethod
    def weights(self, kept: Tensor, valid: Tensor) -> Tensor:
        """The probability of each token being the next, given the kept set.

        Returns:
            (batch, tokens) float: zero at kept tokens and padding, summing to 1 wherever a token is missing.
        """

    def slot_weights(self, kept: Tensor, valid: Tensor) -> Tensor:
        """The probability of each token being the next *of its slot*: w, summing to 1 in each span."""
        return Spans.of(kept, valid).normalise(self.weights(kept, valid))

    def sample_kept(self, kept: Tensor, valid: Tensor, count: Tensor, generator: torch.Generator) -> Tensor:
        """Insert tokens one by one, as the prior would, and say which are there in the end.

        Args:
            kept: (batch, tokens) bool, what is there at the start.
            valid: (batch, tokens) bool.
            count: (batch,) how many tokens to insert, at most as many as are missing.
            generator: the source of randomness, on the CPU.

        Returns:
            (batch, tokens) bool, a superset of ``kept``.
        """
        kept = kept & valid
        for step in range(int(count.max()) if count.numel() else 0):
            wanting = step < count
            weights = self.weights(kept, valid).cpu()
            drawn = torch.multinomial(weights.where(wanting.cpu()[:, None], 1.0), 1, generator=generator)
            new = torch.zeros_like(kept).scatter_(1, drawn.to(kept.device), True)
            kept = kept | (new & wanting[:, None])
        return kept

    def sample_rounds(
        self, kept: Tensor, valid: Tensor, generator: torch.Generator, *, waiting: Tensor | None = None
    ) -> Tensor:
        """Insert a token into every unfinished slot at once, round by round, and say in which round each came.

        Args:
            kept: (batch, tokens) bool, what is there at the start.
            valid: (batch, tokens) bool.
            generator: the source of randomness, on the CPU.
            waiting: (batch,) the probability of each unfinished slot to wait for a later round; none waits by default,
                and never all of a text.

        Returns:
            (batch, tokens) the round of each missing token, from 1; 0 at what was there, and at padding.
        """
        present = kept & valid
        rounds = torch.zeros(kept.shape, dtype=torch.long, device=kept.device)
        number = 0
        while not bool((present | ~valid).all()):
            number += 1
            chosen = Spans.of(present, valid).draw(self.slot_weights(present, valid), generator)
            if waiting is not None:
                noise = torch.rand(chosen.shape, generator=generator).to(chosen.device).masked_fill(~chosen, -1.0)
                served = (noise >= waiting[:, None]) | (noise == noise.amax(1, keepdim=True))
                chosen = chosen & served
            rounds = rounds.masked_fill(chosen, number)
            present = present | chosen
        return rounds


def checked_weights(prior: OrderPrior, kept: Tensor, valid: Tensor) -> Tensor:
    """The prior's `weights`, looked over, for one of a user's own may not be a distribution.

    Raises:
        ModelError: they are not 0 at what is not missing, or do not sum to 1.
    """
    weights = prior.weights(kept, valid)
    missing = valid & ~kept
    astray = (weights < 0) | ((weights != 0) & ~missing)
    wrong = astray.any(1) | ~((weights.sum(1) - 1).abs() <= _TOLERANCE)
    if bool((wrong & missing.any(1)).any()):
        raise ModelError(
            f"the weights of the prior {type(prior).__name__} are no probabilities of the missing tokens; let "
            "`weights` be 0 at kept tokens and padding, and sum to 1 over the missing tokens of each text"
        )
    return weights


def sample_uniform_kept(kept: Tensor, valid: Tensor, count: Tensor, generator: torch.Generator) -> Tensor:
    """Add to ``kept`` a uniform subset of the missing tokens, of the size that ``count`` (batch,) says."""
    noise = torch.rand(kept.shape, generator=generator).to(kept.device)
    return _first(noise, valid & ~kept, count) | (kept & valid)


def _first(times: Tensor, missing: Tensor, count: Tensor) -> Tensor:
    """The ``count`` missing tokens of each row whose times are the smallest."""
    place = times.masked_fill(~missing, float("inf")).argsort(dim=1).argsort(dim=1)
    return missing & (place < count[:, None])


@dataclass(frozen=True)
class UniformPrior(OrderPrior):
    """Every missing token alike: q is the span's share of the missing tokens, w is flat."""

    def weights(self, kept: Tensor, valid: Tensor) -> Tensor:
        """1 over the number of missing tokens."""
        missing = valid & ~kept
        return missing / missing.sum(1, keepdim=True).clamp(min=1)

    def sample_kept(self, kept: Tensor, valid: Tensor, count: Tensor, generator: torch.Generator) -> Tensor:
        """A uniform subset."""
        return sample_uniform_kept(kept, valid, count, generator)


@dataclass(frozen=True)
class BalancedTreePrior(OrderPrior):
    """Middle first: q is flat over the unfinished slots, w falls off exponentially from the span's middle.

    Inserting the middle of every span at once builds a balanced binary tree, so a text of n tokens is there after about
    log2 n rounds.

    Args:
        temperature: w is proportional to exp(-d / temperature), d the distance from the middle; w becomes flat as the
            temperature grows and a certain middle as it shrinks.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"the temperature of a balanced tree prior must be above 0, not {self.temperature}")

    def weights(self, kept: Tensor, valid: Tensor) -> Tensor:
        """The slot's weights, shared by the row's spans alike."""
        spans = Spans.of(kept, valid)
        return self._slot_weights(spans) / spans.count.clamp(min=1)

    def slot_weights(self, kept: Tensor, valid: Tensor) -> Tensor:
        """exp(-d / temperature), normalised in each span."""
        return self._slot_weights(Spans.of(kept, valid))

    def _slot_weights(self, spans: Spans) -> Tensor:
        doubled = (2 * spans.rank - (spans.length - 1)).abs()
        from_nearest = (doubled - (spans.length - 1) % 2) / 2
        return spans.normalise(torch.exp(-from_nearest / self.temperature))

    def sample_kept(self, kept: Tensor, valid: Tensor, count: Tensor, generator: torch.Generator) -> Tensor:
        """The kept set after ``count`` insertions, in as many passes as the tree is deep.

        With q flat, each unfinished slot is as likely to be next as any other: slots fire like clocks of rate 1. So
        give each token the time at which it is inserted, its parent's plus an exponential draw, and keep the first
        ``count``. Every pass splits all spans at once.
        """
        start = kept & valid
        present = start
        times = torch.zeros(kept.shape, device=kept.device)
        while not bool((present | ~valid).all()):
            spans = Spans.of(present, valid)
            chosen = spans.draw(self._slot_weights(spans), generator)
            # times holds, at a missing token, when its span came to be
            wait = -torch.log(torch.rand(kept.shape, generator=generator).to(kept.device).clamp(min=1e-12))
            new_times = times + wait
            split = spans.sum(torch.where(chosen, new_times, 0))
            times = torch.where(spans.missing, split, times)
            present = present | chosen
        return start | _first(times, valid & ~start, count)


@dataclass(frozen=True)
class LeftToRightPrior(OrderPrior):
    """The leftmost missing token, always: an autoregressive model's order."""

    def weights(self, kept: Tensor, valid: Tensor) -> Tensor:
        """1 at the leftmost missing token."""
        missing = valid & ~kept
        return (missing & (missing.cumsum(1) == 1)).float()

    def slot_weights(self, kept: Tensor, valid: Tensor) -> Tensor:
        """1 at the leftmost token of each span."""
        spans = Spans.of(kept, valid)
        return (spans.missing & (spans.rank == 0)).float()

    def sample_kept(self, kept: Tensor, valid: Tensor, count: Tensor, generator: torch.Generator) -> Tensor:
        """The leftmost ``count`` of the missing tokens."""
        missing = valid & ~kept
        return (kept & valid) | (missing & (missing.cumsum(1) <= count[:, None]))
