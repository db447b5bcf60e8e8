"""From complete texts to canvases with slot targets: the paper's section 3.1 and the Insertion Transformer's slot loss.

Tokens are removed from a complete text and asked back. What is missing from a slot follows from the kept mask by a
cumulative sum, so the targets are a short list of (slot, token, weight), never a dense (slots, vocabulary) tensor. Two
objectives say how the tokens are removed and what each slot's loss weighs: `SlotObjective` and `LowerBoundObjective`.
This module knows no model; `TrainingCanvases.model_inputs` is what a model's forward takes.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from kermit.canvas import Factorization, Segment
from kermit.canvas_batch import CanvasBatch
from kermit.dropping import sample_dropped, sample_repeated
from kermit.errors import member_of
from kermit.orders import OrderPrior, checked_weights, sample_uniform_kept
from kermit.slots import Termination


class KeptSampling(StrEnum):
    """How the kept tokens are drawn.

    A uniform subset; what the order prior has inserted one by one, or in whole rounds, as parallel decoding meets it;
    the same of each side by itself, so that one may be complete before the other is begun; all but those dropped at
    random, on their own or in runs; or all but runs that were there before, and what rounds have inserted of these
    (`kermit.dropping`).
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


@dataclass(frozen=True)
class TrainingCanvases:
    """Canvases with what is missing from their slots, and what each part weighs in the loss.

    The loss of a batch is the sum over scored slots of ``slot_weights`` times (logsumexp of the logits minus the
    weighted target logits), plus the sums of ``location_weights`` and ``stop_weights`` times the negative
    log-probabilities of locations and of stopping, divided by the number of texts.

    Args:
        canvases: the canvases.
        slots: (slots,) scored slots, ascending, as row * length + slot.
        slot_weights: (slots,).
        target_slots: (targets,) ascending indices into ``slots``.
        target_tokens: (targets,) missing tokens, or end-of-slot.
        target_weights: (targets,) summing to 1 in each slot.
        location_weights: (batch, length).
        stop_weights: (batch,).
    """

    canvases: CanvasBatch
    slots: Tensor
    slot_weights: Tensor
    target_slots: Tensor
    target_tokens: Tensor
    target_weights: Tensor
    location_weights: Tensor
    stop_weights: Tensor

    def model_inputs(self) -> dict[str, Tensor]:
        """The keyword arguments of `KermitForInsertion.forward`."""
        return {
            "input_ids": self.canvases.token_ids,
            "attention_mask": self.canvases.valid,
            "segment_ids": self.canvases.segment_ids,
            "open_slots": self.canvases.open_slots,
            "slots": self.slots,
            "slot_weights": self.slot_weights,
            "target_slots": self.target_slots,
            "target_tokens": self.target_tokens,
            "target_weights": self.target_weights,
            "location_weights": self.location_weights,
            "stop_weights": self.stop_weights,
        }


@dataclass(frozen=True)
class Texts:
    """Complete texts and what is to be generated of them.

    Args:
        batch: the complete canvases.
        present: (batch, tokens) bool: valid, and not of a segment that the factorization leaves empty.
        generated: (batch, tokens) bool: the content tokens that may be removed.
        open_segments: (batch, 2) bool: the segments whose slots are open.
    """

    batch: CanvasBatch
    present: Tensor
    generated: Tensor
    open_segments: Tensor

    @classmethod
    def of(cls, batch: CanvasBatch, factorizations: Sequence[Factorization]) -> Texts:
        """Read off the factorization of each text which of its tokens are generated, given or absent."""
        ways = [member_of(Factorization, way, "factorization") for way in factorizations]
        generated = torch.tensor([[s in way.generated for s in Segment] for way in ways], device=batch.device)
        absent = torch.tensor([[s in way.absent for s in Segment] for way in ways], device=batch.device)
        specials = batch.specials
        content = batch.valid & (batch.token_ids != specials.cls_id) & (batch.token_ids != specials.sep_id)
        present = batch.valid & ~(content & absent.gather(1, batch.segment_ids))
        return cls(batch, present, content & present & generated.gather(1, batch.segment_ids), generated)

    @property
    def lengths(self) -> Tensor:
        """(batch,) how many tokens are to be generated."""
        return self.generated.sum(1)

    def select(self, rows: Tensor) -> Texts:
        """Some of the texts, or one of them several times."""
        batch = self.batch
        chosen = CanvasBatch(
            batch.token_ids[rows], batch.segment_ids[rows], batch.valid[rows], batch.open_slots[rows], batch.specials
        )
        return Texts(chosen, self.present[rows], self.generated[rows], self.open_segments[rows])


class Objective(ABC):
    """Draws training canvases from complete texts, in two steps: which tokens are kept, and what that asks for."""

    @abstractmethod
    def sample_kept(self, texts: Texts, generator: torch.Generator) -> Tensor:
        """Draw the kept set of each text; (batch, tokens) bool."""

    @abstractmethod
    def build(self, texts: Texts, kept: Tensor, generator: torch.Generator | None = None) -> TrainingCanvases:
        """The training canvases of kept sets, (batch, tokens) bool; a generator where some slots are left out."""

    def sample(self, texts: Texts, generator: torch.Generator) -> TrainingCanvases:
        """Remove tokens and say what is missing; the same canvases for the same generator state."""
        return self.build(texts, self.sample_kept(texts, generator), generator)


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

    def build(self, texts: Texts, kept: Tensor, generator: torch.Generator | None = None) -> TrainingCanvases:
        """Weigh what is missing from the open slots."""
        layout = _Layout.of(texts, kept)
        unfinished = layout.missing_from_slot > 0
        asked = layout.open if self.termination is Termination.SLOT else layout.open & unfinished
        shares = self.shares(texts, asked, layout.missing_from_slot)
        if self.empty_slot_rate < 1:
            drawn = torch.rand(asked.shape, generator=generator).to(asked.device) < self.empty_slot_rate
            asked = asked & (unfinished | drawn)
        shares = torch.where(unfinished, shares, shares * (self.empty_slot_weight / self.empty_slot_rate))
        stop = (~unfinished.any(1)).float() if self.termination is Termination.SEQUENCE else layout.no_stop
        prior = self.prior.for_texts(texts.batch.token_ids)
        location = layout.by_slot(checked_weights(prior, kept, texts.present)) * self.location_weight
        weights = prior.slot_weights(kept, texts.present)
        return layout.training_canvases(asked, shares, weights, location, stop * self.location_weight)

    def of_every_slot(self) -> SlotObjective:
        """The same objective with no empty slot left out by chance, for validation."""
        whole = copy.copy(self)  # and not `replace`, which would forget what a child's own __init__ was given
        object.__setattr__(whole, "empty_slot_rate", 1.0)
        return whole

    def shares(self, texts: Texts, asked: Tensor, missing: Tensor) -> Tensor:
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
                return asked / asked.sum(1, keepdim=True).clamp(min=1)
            case SlotShare.TEXT:
                return asked * (2 / (texts.lengths + 2))[:, None]

    def sample_kept(self, texts: Texts, generator: torch.Generator) -> Tensor:
        """Draw how many tokens to keep, and which; or drop each on its own."""
        if isinstance(self.kept, KeptSampling):
            return self._sample_kept(self.kept, texts, generator)
        shares = torch.tensor(list(self.kept.values()), dtype=torch.float32)
        drawn = torch.multinomial(shares, len(texts.batch), replacement=True, generator=generator)
        kept = texts.present.clone()
        for number, sampling in enumerate(self.kept):
            rows = (drawn == number).nonzero().flatten().to(kept.device)
            if len(rows):
                kept[rows] = self._sample_kept(sampling, texts.select(rows), generator)
        return kept

    def _sample_kept(self, sampling: KeptSampling, texts: Texts, generator: torch.Generator) -> Tensor:
        given = texts.present & ~texts.generated
        if sampling is KeptSampling.BERNOULLI:
            shape = (len(texts.batch), given.shape[1])
            dropped = sample_dropped(shape, self.drop_probability, generator, span_length=self.span_length)
            return texts.present & ~(dropped.to(given.device) & texts.generated)
        if sampling is KeptSampling.REPEATED:
            ids, among = texts.batch.token_ids, texts.generated
            dropped = sample_repeated(ids, among, self.drop_probability, generator, common=self.common_ids)
            given = texts.present & ~dropped.to(given.device)
        prior = self.prior.for_texts(texts.batch.token_ids)
        noise = torch.rand(len(texts.batch), generator=generator).to(given.device)
        if sampling in (KeptSampling.ROUNDS, KeptSampling.SIDES, KeptSampling.REPEATED):
            rounds = prior.sample_rounds(given, texts.present, generator)
            if sampling is KeptSampling.SIDES:
                second = texts.batch.segment_ids == Segment.Y
                noise_y = torch.rand(len(texts.batch), generator=generator).to(given.device)
                x = _rounds_reached(rounds.masked_fill(second, 0), noise, complete=True)
                y = _rounds_reached(rounds.masked_fill(~second, 0), noise_y, complete=True)
                reached = torch.where(second, y[:, None], x[:, None])
            else:
                reached = _rounds_reached(rounds, noise, complete=sampling is KeptSampling.ROUNDS)[:, None]
            return texts.present & (rounds <= reached)
        count = (noise * (texts.lengths + 1)).long().clamp(max=texts.lengths)
        if sampling is KeptSampling.PRIOR:
            return prior.sample_kept(given, texts.present, count, generator)
        return sample_uniform_kept(given, texts.present, count, generator)


def _rounds_reached(rounds: Tensor, noise: Tensor, *, complete: bool) -> Tensor:
    """How many rounds are over: the complete text once in (rounds + 1) times, else those before a token's, drawn alike.

    Args:
        rounds: (batch, tokens) the round of each token, from 1; 0 at what is there from the start.
        noise: (batch,) uniform.
        complete: whether complete texts are drawn at all.

    Returns:
        (batch,).
    """
    last = rounds.amax(1)
    rest = noise * (last + int(complete)) - int(complete)  # below 0: the complete text; else uniform over 0..last
    inserted = rounds > 0
    number = (rest / last.clamp(min=1) * inserted.sum(1)).long()
    drawn = (inserted & (inserted.cumsum(1) == number[:, None] + 1)).long().argmax(1, keepdim=True)
    return torch.where(rest < 0, last, (rounds.gather(1, drawn)[:, 0] - 1).clamp(min=0))


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

    def sample_kept(self, texts: Texts, generator: torch.Generator) -> Tensor:
        """Draw a step and the kept set before it."""
        noise = torch.rand(len(texts.batch), generator=generator).to(texts.present.device)
        count = (noise * (texts.lengths + 1)).long().clamp(max=texts.lengths)
        given = texts.present & ~texts.generated
        return self.prior.for_texts(texts.batch.token_ids).sample_kept(given, texts.present, count, generator)

    def build(self, texts: Texts, kept: Tensor, generator: torch.Generator | None = None) -> TrainingCanvases:
        """Weigh what is missing, or stopping where nothing is."""
        layout = _Layout.of(texts, kept)
        prior = self.prior.for_texts(texts.batch.token_ids)
        steps = (texts.lengths + 1).float()
        location = layout.by_slot(checked_weights(prior, kept, texts.present)) * steps[:, None]
        unfinished = layout.missing_from_slot > 0
        stop = torch.where(unfinished.any(1), 0.0, steps)
        return layout.training_canvases(
            layout.open & unfinished, location, prior.slot_weights(kept, texts.present), location, stop
        )


def canvases_of(texts: Texts, kept: Tensor) -> tuple[CanvasBatch, Tensor]:
    """The canvases of kept sets, (batch, tokens) bool, and (batch, tokens) the slot each missing token belongs in."""
    layout = _Layout.of(texts, kept)
    return layout.canvases, layout.slot


@dataclass(frozen=True)
class _Layout:
    """Where the tokens of a text lie on the canvas of its kept tokens."""

    texts: Texts
    canvases: CanvasBatch
    missing: Tensor
    slot: Tensor
    missing_from_slot: Tensor

    @classmethod
    def of(cls, texts: Texts, kept: Tensor) -> _Layout:
        batch = texts.batch
        kept = kept & texts.present
        missing = texts.present & ~kept
        slot = kept.cumsum(1)  # of a missing token: how many are kept before it
        length = int(slot[:, -1].max())
        place = torch.where(kept, slot - 1, length)
        token_ids = batch.token_ids.new_full((len(batch), length + 1), batch.specials.pad_id)
        token_ids.scatter_(1, place, batch.token_ids)
        segment_ids = batch.segment_ids.new_zeros(len(batch), length + 1)
        segment_ids.scatter_(1, place, batch.segment_ids)
        valid = torch.arange(length, device=batch.device) < slot[:, -1:]
        token_ids, segment_ids = token_ids[:, :length], segment_ids[:, :length]
        open_slots = valid & texts.open_segments.gather(1, segment_ids)
        open_slots[:, 0] = False
        canvases = CanvasBatch(token_ids, segment_ids, valid, open_slots, batch.specials)
        slot = torch.where(missing, slot, 0)
        count = torch.zeros_like(token_ids).scatter_add_(1, slot, missing.long())
        return cls(texts, canvases, missing, slot, count)

    @property
    def open(self) -> Tensor:
        return self.canvases.open_slots

    @property
    def no_stop(self) -> Tensor:
        return torch.zeros(len(self.canvases), device=self.canvases.device)

    def by_slot(self, values: Tensor) -> Tensor:
        """Sum values of the missing tokens by their slot; (batch, length)."""
        values = torch.where(self.missing, values, 0)
        return values.new_zeros(self.open.shape).scatter_add_(1, self.slot, values)

    def training_canvases(
        self, asked: Tensor, shares: Tensor, weights: Tensor, location: Tensor, stop: Tensor
    ) -> TrainingCanvases:
        """List the asked slots and what is missing from them."""
        length = asked.shape[1]
        slots = asked.flatten().nonzero().flatten()
        number = asked.flatten().cumsum(0) - 1
        rows, tokens = self.missing.nonzero(as_tuple=True)
        places = rows * length + self.slot[rows, tokens]
        wanted = asked.flatten()[places]  # a slot that the prior gives no share has no loss to weigh
        empty = slots[self.missing_from_slot.flatten()[slots] == 0]
        target_slots = torch.cat([number[places[wanted]], number[empty]])
        end = self.canvases.specials.end_of_slot_id
        target_tokens = torch.cat([self.texts.batch.token_ids[rows, tokens][wanted], torch.full_like(empty, end)])
        found = weights[rows, tokens][wanted]
        target_weights = torch.cat([found, found.new_ones(len(empty))])
        order = target_slots.argsort(stable=True)
        return TrainingCanvases(
            self.canvases,
            slots,
            shares.flatten()[slots],
            target_slots[order],
            target_tokens[order],
            target_weights[order],
            location,
            stop,
        )
