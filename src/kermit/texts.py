"""Complete texts, and what is missing from the canvases of the tokens that are kept of them.

Where a missing token belongs follows from the kept mask by a cumulative sum, so the targets of a canvas are a short
list of (slot, token, weight), never a dense (slots, vocabulary) tensor. This module knows no model and draws nothing;
`TrainingCanvases.model_inputs` is what a model's forward takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kermit.canvas import Factorization, Segment
from kermit.canvas_batch import CanvasBatch
from kermit.context import given_part
from kermit.errors import member_of


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
        is_open = self.canvases.open_slots.flatten()
        right = is_open.nonzero().flatten()
        return {
            "input_ids": self.canvases.token_ids,
            "attention_mask": self.canvases.valid,
            "segment_ids": self.canvases.segment_ids,
            "left": right - 1,
            "right": right,
            "canvases": right // self.canvases.token_ids.shape[1],
            "asked": (is_open.cumsum(0) - 1)[self.slots],
            "slot_weights": self.slot_weights,
            "target_slots": self.target_slots,
            "target_tokens": self.target_tokens,
            "target_weights": self.target_weights,
            "location_weights": self.location_weights.flatten()[right],
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
        marked: (batch, tokens) bool: the given tokens with a marked blank left of them; no other slot between two given
            tokens is open. None where every slot of the open segments is, and none is marked.
        unmarked: (batch,) bool: the texts of which that holds too, among others with marks.
    """

    batch: CanvasBatch
    present: Tensor
    generated: Tensor
    open_segments: Tensor
    marked: Tensor | None = None
    unmarked: Tensor | None = None

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
    def given(self) -> Tensor:
        """(batch, tokens) bool, what is there at the start, with the frame that belongs to it."""
        batch, specials = self.batch, self.batch.specials
        content = (batch.token_ids != specials.cls_id) & (batch.token_ids != specials.sep_id)
        given = self.present & content & ~self.generated
        return self.present & given_part(batch.token_ids, batch.segment_ids, given, self._in_open_segment, specials)

    @property
    def open_slots(self) -> Tensor:
        """(batch, tokens) bool, whether the slot left of each token is open, once the token is there."""
        open_slots = self._in_open_segment
        if self.marked is None:
            return open_slots
        restricted = self.marked | ~self.given
        return open_slots & (restricted if self.unmarked is None else restricted | self.unmarked[:, None])

    @property
    def marks(self) -> Tensor:
        """(batch, tokens) bool, the given tokens that a marker stands left of."""
        if self.marked is None:
            return torch.zeros_like(self.present)
        return self.marked if self.unmarked is None else self.marked & ~self.unmarked[:, None]

    @property
    def _in_open_segment(self) -> Tensor:
        within = self.present & self.open_segments.gather(1, self.batch.segment_ids)
        return within & (self.batch.token_ids != self.batch.specials.cls_id)

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
        marks = [None if plane is None else plane[rows] for plane in (self.marked, self.unmarked)]
        return Texts(chosen, self.present[rows], self.generated[rows], self.open_segments[rows], *marks)


@dataclass(frozen=True)
class Layout:
    """Where the tokens of texts lie on the canvases of their kept tokens.

    Args:
        texts: the complete texts.
        canvases: the canvases of their kept tokens.
        missing: (batch, tokens) bool, what is not kept.
        slot: (batch, tokens) the slot that a missing token belongs in; 0 elsewhere.
        missing_from_slot: (batch, length) how many tokens are missing from each slot.
    """

    texts: Texts
    canvases: CanvasBatch
    missing: Tensor
    slot: Tensor
    missing_from_slot: Tensor

    @classmethod
    def of(cls, texts: Texts, kept: Tensor) -> Layout:
        """The layout of kept sets, (batch, tokens) bool."""
        batch = texts.batch
        kept = kept & texts.present
        missing = texts.present & ~kept
        slot = kept.cumsum(1)  # of a missing token: how many are kept before it
        length = int(slot[:, -1].max())
        place = torch.where(kept, slot - 1, length)

        def moved(plane: Tensor, fill: int | bool) -> Tensor:
            return plane.new_full((len(batch), length + 1), fill).scatter_(1, place, plane)[:, :length]

        token_ids, segment_ids = moved(batch.token_ids, batch.specials.pad_id), moved(batch.segment_ids, 0)
        valid = torch.arange(length, device=batch.device) < slot[:, -1:]
        given = moved(texts.given, False)
        open_slots, marked = moved(texts.open_slots, False), moved(texts.marks, False)
        canvases = CanvasBatch(token_ids, segment_ids, valid, open_slots, batch.specials, given, marked)
        slot = torch.where(missing, slot, 0)
        count = torch.zeros_like(token_ids).scatter_add_(1, slot, missing.long())
        return cls(texts, canvases, missing, slot, count)

    @property
    def open(self) -> Tensor:
        """(batch, length) bool, the open slots."""
        return self.canvases.open_slots

    @property
    def no_stop(self) -> Tensor:
        """(batch,) weights of stopping where it is not asked for."""
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


def canvases_of(texts: Texts, kept: Tensor) -> tuple[CanvasBatch, Tensor]:
    """The canvases of kept sets, (batch, tokens) bool, and (batch, tokens) the slot each missing token belongs in."""
    layout = Layout.of(texts, kept)
    return layout.canvases, layout.slot
