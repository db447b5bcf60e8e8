"""What is learned from complete texts: the paper's section 3.1 and the Insertion Transformer's slot loss.

Tokens are removed from a complete text and asked back (`kermit.objectives.texts`). Two objectives say how the tokens
are removed and what each slot's loss weighs: `SlotObjective` and `LowerBoundObjective`. This module knows no model.
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
from kermit.objectives.texts import KeptLayout, Texts, TrainingCanvases


class KeptSampling(StrEnum):
    """How the kept tokens are drawn.

    A uniform subset; what the order prior has inserted one by one, or in whole rounds, as parallel decoding meets it;
    the same of each side by itself, so that one may be complete before the other is begun; all but those dropped at
    random, on their own or in runs; or all but runs that were there before, and what rounds have inserted of these
    (`kermit.objectives.dropping`).
    """

    UNIFORM = "uniform"
    PRIOR = "prior"
    ROUNDS = "rounds"
    SIDES = "sides"
    BERNOULLI = "bernoulli"
    REPEATED = "repeated"


class SlotShare(StrEnum):
    """What a slot weighs in the slot loss.

    By canvas, the slots of a canvas share a weight of 1, so that the only slot of an empty canvas weighs as much as the
    twenty of a nearly complete one. By text, every slot of a text weighs the same, whatever the canvas: 2 / (n + 2),
    which is 1 over the mean number of slots when the number kept is uniform.
    """

    CANVAS = "canvas"
    TEXT = "text"


class Objective(ABC):
    """Draws training canvases from complete texts, in two steps: which tokens are kept, and what that asks for.

    Everything random is drawn before `build`, so that the texts of a batch can be divided among processes in between.
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
            noise: (batch, tokens) uniform in [0, 1), by which slots are left out; None leaves none out.
        """

    def sample(self, texts: Texts, generator: np.random.Generator) -> TrainingCanvases:
        """Remove tokens and say what is missing; the same canvases for the same generator state."""
        kept = self.sample_kept(texts, generator)
        return self.build(texts, kept, generator.random(kept.shape))


@dataclass(frozen=True)
class SlotObjective(Objective):
    """The slot loss: the loss of every open slot, weighted, and averaged over texts.

    The number of kept tokens is uniform over 0..n, both ends included, unless tokens are kept by rounds or dropped on
    their own.

    Args:
        prior: the order prior, which weighs the tokens missing from a slot.
        kept: how the kept tokens are drawn, or several ways with weights, one of which is drawn for each text.
        drop_probability: of each token, for Bernoulli dropping and that of repeated runs.
        span_length: the mean length of the runs of Bernoulli dropping; 1 drops each token on its own.
        termination: slot termination asks end-of-slot of the empty slots; sequence termination leaves them out and asks
            for the stop action when nothing is missing.
        share: what a slot weighs, by canvas or by text.
        location_weight: what the location's loss weighs beside the content's.
        empty_slot_rate: the share of empty slots whose loss is computed, drawn at random and weighed up by its
            inverse, which leaves the expected loss as it is. Below 1 it saves most of the vocabulary softmax where few
            tokens are missing.
        empty_slot_weight: what the loss of an empty slot weighs beside that of an unfinished one. Below 1 more is
            learned of what is missing and less of whether anything is, and slots end as if with a termination penalty
            of minus the weight's logarithm; a penalty of the logarithm takes that back.
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
        """Weigh what is missing from the open slots."""
        layout = KeptLayout.of(texts, kept)
        unfinished = layout.missing_from_slot > 0
        asked = layout.open if self.termination is Termination.SLOT else layout.open & unfinished
        shares = self.shares(texts, asked, layout.missing_from_slot)
        empty = self.empty_slot_weight
        if self.empty_slot_rate < 1 and noise is not None:
            asked = asked & (unfinished | (noise[:, : asked.shape[1]] < self.empty_slot_rate))
            empty /= self.empty_slot_rate
        shares = np.where(unfinished, shares, shares * empty)
        stop = layout.no_stop
        if self.termination is Termination.SEQUENCE:
            stop = np.asarray(~unfinished.any(1), dtype=np.float32)
        prior = self.prior.for_texts(texts.batch.token_ids)
        location = layout.by_slot(checked_weights(prior, kept, texts.present)) * self.location_weight
        weights = prior.slot_weights(kept, texts.present)
        return layout.training_canvases(asked, shares, weights, location, np.asarray(stop * self.location_weight))

    def shares(self, texts: Texts, asked: Booleans, missing: Integers) -> Array:
        """What the loss of each slot weighs: as `share` says, or as an objective of your own does.

        Args:
            texts: the complete texts.
            asked: (batch, length) bool, the slots of the canvases that are asked.
            missing: (batch, length) how many tokens are missing from each.

        Returns:
            (batch, length) float; what it gives to slots that are not asked does not count.
        """
        match self.share:
            case SlotShare.CANVAS:
                return np.asarray(asked / np.maximum(asked.sum(1, keepdims=True), 1))
            case SlotShare.TEXT:
                return np.asarray(asked * (2 / (texts.lengths + 2))[:, None])

    def sample_kept(self, texts: Texts, generator: np.random.Generator) -> Booleans:
        """Draw how many tokens to keep, and which; or drop each on its own."""
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
    """A number from 0 to each length, both included; (batch,)."""
    return np.asarray(np.minimum((noise * (lengths + 1)).astype(np.int64), lengths))


def _rounds_reached(rounds: Integers, noise: Array, *, complete: bool) -> Integers:
    """How many rounds are over: the complete text once in (rounds + 1) times, else those before a token's, drawn alike.

    Args:
        rounds: (batch, tokens) the round of each token, from 1; 0 at what is there from the start.
        noise: (batch,) uniform.
        complete: whether complete texts are drawn at all.

    Returns:
        (batch,).
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
    """The lower bound on the log-likelihood of section 3.1, negated: an unbiased estimate from one step a text.

    A text of n tokens takes n insertions and then stops: n + 1 steps. One is drawn uniformly, the kept set before it is
    drawn from the prior, and the next-step losses are weighed by the prior and by the number of steps. How the text
    stops is the model's: by its stop action, or with slot termination by the drawn slot's end-of-slot.

    Args:
        prior: the order prior.
    """

    prior: OrderPrior

    def sample_kept(self, texts: Texts, generator: np.random.Generator) -> Booleans:
        """Draw a step and the kept set before it."""
        count = _uniform_count(texts.lengths, generator.random(len(texts.batch)))
        given = texts.present & ~texts.generated
        return self.prior.for_texts(texts.batch.token_ids).sample_kept(given, texts.present, count, generator)

    def build(self, texts: Texts, kept: Booleans, noise: Array | None = None) -> TrainingCanvases:
        """Weigh what is missing, or stopping where nothing is."""
        layout = KeptLayout.of(texts, kept)
        prior = self.prior.for_texts(texts.batch.token_ids)
        steps = texts.lengths + 1
        location = layout.by_slot(checked_weights(prior, kept, texts.present)) * steps[:, None]
        unfinished = layout.missing_from_slot > 0
        stop = np.where(unfinished.any(1), 0, steps)
        return layout.training_canvases(
            layout.open & unfinished, location, prior.slot_weights(kept, texts.present), location, stop
        )
