"""Objectives for single canvases: the lower bound of the paper's section 3.1 and the Insertion Transformer's slot loss.

Tokens are removed from a complete text and become targets (`kermit.objectives.training_canvases`). `SlotObjective` and
`LowerBoundObjective` differ in how tokens are removed and how each slot's loss is weighted. This module knows no model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from kermit.canvas import Segment, Termination
from kermit.canvas.arrays import Array, Booleans, Integers
from kermit.errors import member_of
from kermit.objectives.dropping import sample_dropped, sample_repeated
from kermit.objectives.orders import OrderPrior, checked_weights, sample_uniform_kept
from kermit.objectives.training_canvases import KeptLayout, Texts, TrainingCanvases


class KeptSampling(StrEnum):
    """How the kept tokens are drawn.

    UNIFORM keeps a uniform subset. PRIOR keeps what the order prior has inserted one by one, ROUNDS what it has
    inserted in whole rounds, as in parallel decoding; SIDES does so independently for each side, so that one may be
    complete before the other is begun. BERNOULLI drops tokens at random, singly or in runs. REPEATED drops repeated
    runs, and keeps what rounds have inserted of these (`kermit.objectives.dropping`).
    """

    UNIFORM = "uniform"
    PRIOR = "prior"
    ROUNDS = "rounds"
    SIDES = "sides"
    BERNOULLI = "bernoulli"
    REPEATED = "repeated"


class SlotShare(StrEnum):
    """How slots are weighted in the slot loss.

    CANVAS: the slots of a canvas share a weight of 1, so the only slot of an empty canvas counts as much as all slots
    of a nearly complete one. TEXT: every slot of a text has the weight 2 / (n + 2), whatever the canvas; this is 1 over
    the mean number of slots if the number of kept tokens is uniform.
    """

    CANVAS = "canvas"
    TEXT = "text"


class Objective(ABC):
    """Turns complete texts into training canvases in two steps: draw which tokens are kept, then build the targets.

    Everything random is drawn before `build`, so that the texts of a batch can be split over processes in between.
    """

    @abstractmethod
    def sample_kept(self, texts: Texts, generator: np.random.Generator) -> Booleans:
        """Draw the kept set of each text; (batch, tokens) bool."""

    @abstractmethod
    def build(self, texts: Texts, kept: Booleans, noise: Array | None = None) -> TrainingCanvases:
        """Build the training canvases of kept sets.

        Args:
            texts: the complete texts.
            kept: (batch, tokens) bool.
            noise: (batch, tokens) uniform in [0, 1), which decides the slots to leave out; None to leave out none.
        """

    def sample(self, texts: Texts, generator: np.random.Generator) -> TrainingCanvases:
        """Draw kept sets and build their training canvases; the result depends only on the generator's state."""
        kept = self.sample_kept(texts, generator)
        return self.build(texts, kept, generator.random(kept.shape))


@dataclass(frozen=True)
class SlotObjective(Objective):
    """The slot loss: the weighted loss of every open slot, averaged over texts.

    The number of kept tokens is uniform over 0..n, both included, for UNIFORM and PRIOR sampling.

    Args:
        prior: the order prior, which weights the tokens missing from a slot.
        kept: how the kept tokens are drawn, or several ways with weights, one of which is drawn per text.
        drop_probability: probability of each token, for BERNOULLI and REPEATED sampling.
        span_length: mean length of the runs of BERNOULLI sampling; 1 drops tokens independently.
        termination: with slot termination the target of empty slots is end-of-slot; with sequence termination they
            have none, and the stop action is the target when nothing is missing.
        share: how slots are weighted.
        location_weight: weight of the location loss, relative to the content loss.
        empty_slot_rate: share of empty slots whose loss is computed, drawn at random and weighted by the inverse, so
            that the expected loss is unchanged. Below 1 it saves most of the vocabulary softmax if few tokens are
            missing.
        empty_slot_weight: weight of an empty slot's loss, relative to 1 for an unfinished slot. Below 1 the model
            learns more about what is missing and less about whether anything is; slots then end as if with a
            termination penalty of -log(weight), which a penalty of log(weight) undoes.
        common_ids: no repeated run begins or ends with a token of a lower id.
    """

    prior: OrderPrior
    kept: KeptSampling | Mapping[KeptSampling, float] = KeptSampling.UNIFORM
    drop_probability: float = 0.15
    termination: Termination = Termination.SLOT
    share: SlotShare = SlotShare.CANVAS
    location_weight: float = 1.0
    empty_slot_rate: float = 1.0
    empty_slot_weight: float = 1.0
    span_length: float = 1.0
    common_ids: int = 0

    def __post_init__(self) -> None:
        kept: KeptSampling | Mapping[KeptSampling, float]
        if isinstance(self.kept, Mapping):
            kept = {member_of(KeptSampling, way, "kept"): weight for way, weight in self.kept.items()}
        else:
            kept = member_of(KeptSampling, self.kept, "kept")
        object.__setattr__(self, "kept", kept)
        object.__setattr__(self, "termination", member_of(Termination, self.termination, "termination"))
        object.__setattr__(self, "share", member_of(SlotShare, self.share, "share"))

    def build(self, texts: Texts, kept: Booleans, noise: Array | None = None) -> TrainingCanvases:
        """Build the canvases and weight what is missing from their open slots."""
        layout = KeptLayout.of(texts, kept)
        unfinished = layout.missing_from_slot > 0
        asked = layout.open if self.termination is Termination.SLOT else layout.open & unfinished
        shares = self.shares(texts, asked, layout.missing_from_slot)
        empty = self.empty_slot_weight
        if self.empty_slot_rate < 1 and noise is not None:
            asked = asked & (unfinished | (noise[:, : asked.shape[1]] < self.empty_slot_rate))
            empty /= self.empty_slot_rate
        shares = np.where(unfinished, shares, shares * empty)
        stop = ~unfinished.any(1) & (self.termination is Termination.SEQUENCE)
        prior = self.prior.for_texts(texts.batch.token_ids)
        location = layout.by_slot(checked_weights(prior, kept, texts.present)) * self.location_weight
        weights = prior.slot_weights(kept, texts.present)
        return layout.training_canvases(asked, shares, weights, location, np.asarray(stop * self.location_weight))

    def shares(self, texts: Texts, asked: Booleans, missing: Integers) -> Array:
        """Return the weight of each slot's loss according to `share`; subclasses may override it.

        Args:
            texts: the complete texts.
            asked: (batch, length) bool, the slots with a loss.
            missing: (batch, length) number of tokens missing from each slot.

        Returns:
            (batch, length) float; values at other slots are ignored.
        """
        match self.share:
            case SlotShare.CANVAS:
                return np.asarray(asked / np.maximum(asked.sum(1, keepdims=True), 1))
            case SlotShare.TEXT:
                return np.asarray(asked * (2 / (texts.lengths + 2))[:, None])

    def sample_kept(self, texts: Texts, generator: np.random.Generator) -> Booleans:
        """Draw the kept set of each text in one of the ways of `kept`."""
        if isinstance(self.kept, KeptSampling):
            return self._sample_kept(self.kept, texts, generator)
        shares = np.array(list(self.kept.values()), dtype=np.float64)
        drawn = generator.choice(len(shares), size=len(texts.batch), p=shares / shares.sum())
        kept = texts.present.copy()
        for number, sampling in enumerate(self.kept):
            rows = np.flatnonzero(drawn == number)
            if len(rows):
                kept[rows] = self._sample_kept(sampling, texts.select(rows), generator)
        return kept

    def _sample_kept(self, sampling: KeptSampling, texts: Texts, generator: np.random.Generator) -> Booleans:
        given = texts.present & ~texts.generated
        if sampling is KeptSampling.BERNOULLI:
            shape = (len(texts.batch), given.shape[1])
            dropped = sample_dropped(shape, self.drop_probability, generator, span_length=self.span_length)
            return texts.present & ~(dropped & texts.generated)
        if sampling is KeptSampling.REPEATED:
            ids, among = texts.batch.token_ids, texts.generated
            dropped = sample_repeated(ids, among, self.drop_probability, generator, common=self.common_ids)
            given = texts.present & ~dropped
        prior = self.prior.for_texts(texts.batch.token_ids)
        noise = generator.random(len(texts.batch))
        if sampling in (KeptSampling.ROUNDS, KeptSampling.SIDES, KeptSampling.REPEATED):
            rounds = prior.sample_rounds(given, texts.present, generator)
            if sampling is KeptSampling.SIDES:
                second = texts.batch.segment_ids == Segment.Y
                noise_y = generator.random(len(texts.batch))
                x = _rounds_reached(np.where(second, 0, rounds), noise, complete=True)
                y = _rounds_reached(np.where(second, rounds, 0), noise_y, complete=True)
                reached = np.where(second, y[:, None], x[:, None])
            else:
                reached = _rounds_reached(rounds, noise, complete=sampling is KeptSampling.ROUNDS)[:, None]
            return texts.present & (rounds <= reached)
        count = _uniform_count(texts.lengths, noise)
        if sampling is KeptSampling.PRIOR:
            return prior.sample_kept(given, texts.present, count, generator)
        return sample_uniform_kept(given, texts.present, count, generator)


def _uniform_count(lengths: Integers, noise: Array) -> Integers:
    """Return a number from 0 to each length, both included; (batch,)."""
    return np.asarray(np.minimum((noise * (lengths + 1)).astype(np.int64), lengths))


def _rounds_reached(rounds: Integers, noise: Array, *, complete: bool) -> Integers:
    """Return (batch,) the finished rounds: all with probability 1 / (rounds + 1), else those before a random token's.

    `complete` is whether complete texts are drawn at all.
    """
    last = rounds.max(1)
    rest = noise * (last + int(complete)) - int(complete)  # below 0: the complete text; else uniform over 0..last
    inserted = rounds > 0
    number = (rest / np.maximum(last, 1) * inserted.sum(1)).astype(np.int64)
    drawn = (inserted & (inserted.cumsum(1) == number[:, None] + 1)).argmax(1)
    before = np.maximum(rounds[np.arange(len(rounds)), drawn] - 1, 0)
    return np.asarray(np.where(rest < 0, last, before))


@dataclass(frozen=True)
class LowerBoundObjective(Objective):
    """The negated lower bound of section 3.1 on the log-likelihood: an unbiased estimate from one step per text.

    A text of n tokens takes n insertions and then stops: n + 1 steps. One step is drawn uniformly, the kept set before
    it is drawn from the prior, and the next-step losses are weighted by the prior and by the number of steps. The model
    decides how the text stops: by its stop action, or with slot termination by the drawn slot's end-of-slot.

    Args:
        prior: the order prior.
    """

    prior: OrderPrior

    def sample_kept(self, texts: Texts, generator: np.random.Generator) -> Booleans:
        """Draw a step, and the kept set before it."""
        count = _uniform_count(texts.lengths, generator.random(len(texts.batch)))
        given = texts.present & ~texts.generated
        return self.prior.for_texts(texts.batch.token_ids).sample_kept(given, texts.present, count, generator)

    def build(self, texts: Texts, kept: Booleans, noise: Array | None = None) -> TrainingCanvases:
        """Build the canvases and weight what is missing, or stopping if nothing is."""
        layout = KeptLayout.of(texts, kept)
        prior = self.prior.for_texts(texts.batch.token_ids)
        steps = texts.lengths + 1
        location = layout.by_slot(checked_weights(prior, kept, texts.present)) * steps[:, None]
        unfinished = layout.missing_from_slot > 0
        stop = np.where(unfinished.any(1), 0, steps)
        return layout.training_canvases(
            layout.open & unfinished, location, prior.slot_weights(kept, texts.present), location, stop
        )
