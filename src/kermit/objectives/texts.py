"""Complete texts, and what is missing from the canvases of the tokens that are kept of them.

Where a missing token belongs follows from the kept mask by a cumulative sum, so the targets of a canvas are a short
list of (slot, token, weight), never a dense (slots, vocabulary) array. This module knows no model and draws nothing;
`TrainingCanvases.model_inputs` is what a model's forward takes, as arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kermit.canvas import CanvasBatch, Factorization, Segment
from kermit.canvas.arrays import Array, Booleans, Floats, Integers
from kermit.canvas.context import Generations, given_part
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
    slots: Integers
    slot_weights: Floats
    target_slots: Integers
    target_tokens: Integers
    target_weights: Floats
    location_weights: Floats
    stop_weights: Floats

    def model_inputs(self) -> dict[str, Array]:
        """Return the keyword arguments of `KermitForInsertion.forward`, as arrays."""
        is_open = self.canvases.open_slots.ravel()
        right = np.flatnonzero(is_open)
        return {
            "input_ids": self.canvases.token_ids,
            "attention_mask": self.canvases.valid,
            "segment_ids": self.canvases.segment_ids,
            "left": right - 1,
            "right": right,
            "canvases": right // self.canvases.token_ids.shape[1],
            "asked": (is_open.cumsum() - 1)[self.slots],
            "slot_weights": self.slot_weights,
            "target_slots": self.target_slots,
            "target_tokens": self.target_tokens,
            "target_weights": self.target_weights,
            "location_weights": self.location_weights.ravel()[right],
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
    present: Booleans
    generated: Booleans
    open_segments: Booleans
    marked: Booleans | None = None
    unmarked: Booleans | None = None

    @classmethod
    def of(cls, batch: CanvasBatch, factorizations: Sequence[Factorization]) -> Texts:
        """Read off the factorization of each text which of its tokens are generated, given or absent."""
        ways = [member_of(Factorization, way, "factorization") for way in factorizations]
        generated = np.array([[s in way.generated for s in Segment] for way in ways]).reshape(-1, len(Segment))
        absent = np.array([[s in way.absent for s in Segment] for way in ways]).reshape(-1, len(Segment))
        content = batch.valid & ~batch.framing
        present = batch.valid & ~(content & _by_segment(absent, batch.segment_ids))
        return cls(batch, present, content & present & _by_segment(generated, batch.segment_ids), generated)

    @cached_property
    def given(self) -> Booleans:
        """(batch, tokens) bool, what is there at the start, with the frame that belongs to it."""
        batch = self.batch
        given = self.present & ~batch.framing & ~self.generated
        return self.present & given_part(
            batch.token_ids, batch.segment_ids, given, self._in_open_segment, batch.specials
        )

    @cached_property
    def open_slots(self) -> Booleans:
        """(batch, tokens) bool, whether the slot left of each token is open, once the token is there."""
        open_slots = self._in_open_segment
        if self.marked is None:
            return open_slots
        restricted = self.marked | ~self.given
        return open_slots & (restricted if self.unmarked is None else restricted | self.unmarked[:, None])

    @property
    def marks(self) -> Booleans:
        """(batch, tokens) bool, the given tokens that a marker stands left of."""
        if self.marked is None:
            return np.zeros_like(self.present)
        return self.marked if self.unmarked is None else self.marked & ~self.unmarked[:, None]

    @cached_property
    def _in_open_segment(self) -> Booleans:
        within = self.present & _by_segment(self.open_segments, self.batch.segment_ids)
        return np.asarray(within & (self.batch.token_ids != self.batch.specials.cls_id))

    @property
    def lengths(self) -> Integers:
        """(batch,) how many tokens are to be generated."""
        return np.asarray(self.generated.sum(1))

    def generations(self, rounds: Integers, left_to_right: Booleans) -> Generations:
        """Return how the texts come about.

        Args:
            rounds: (batch, tokens) the round in which a token is inserted, from 1; 0 for what is there at the start.
            left_to_right: (batch,) bool, whether the row is of the left-to-right order.
        """
        batch, planes = self.batch, (self.present, self.given, self.marks, self.open_slots)
        return Generations(batch.token_ids, batch.segment_ids, *planes, rounds, left_to_right, batch.specials)

    def select(self, rows: Integers) -> Texts:
        """Return some of the texts, or one of them several times."""
        marks = [None if plane is None else plane[rows] for plane in (self.marked, self.unmarked)]
        return Texts(
            self.batch.select(rows), self.present[rows], self.generated[rows], self.open_segments[rows], *marks
        )


def _by_segment(flags: Booleans, segment_ids: Integers) -> Booleans:
    """(batch, tokens), the flag of each token's segment, of (batch, 2)."""
    return np.where(segment_ids == Segment.Y, flags[:, 1:], flags[:, :1])


@dataclass(frozen=True)
class KeptLayout:
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
    missing: Booleans
    slot: Integers
    missing_from_slot: Integers

    @classmethod
    def of(cls, texts: Texts, kept: Booleans) -> KeptLayout:
        """Lay out kept sets, (batch, tokens) bool."""
        batch = texts.batch
        kept = kept & texts.present
        missing = texts.present & ~kept
        slot = kept.cumsum(1)  # of a missing token: how many are kept before it
        length = int(slot[:, -1].max())
        rows, tokens = kept.nonzero()
        places = (rows, slot[rows, tokens] - 1)

        def moved(plane: Array, fill: int | bool) -> Array:
            out = np.full((len(batch), length), fill, dtype=plane.dtype)
            out[places] = plane[rows, tokens]
            return out

        canvases = CanvasBatch(
            moved(batch.token_ids, batch.specials.pad_id),
            moved(batch.segment_ids, 0),
            np.arange(length) < slot[:, -1:],
            moved(texts.open_slots, False),
            batch.specials,
            moved(texts.given, False),
            moved(texts.marks, False),
        )
        gone, tokens = missing.nonzero()
        counts = np.bincount(gone * length + slot[gone, tokens], minlength=len(batch) * length)
        return cls(texts, canvases, missing, np.where(missing, slot, 0), counts.reshape(len(batch), length))

    @property
    def open(self) -> Booleans:
        """(batch, length) bool, the open slots."""
        return self.canvases.open_slots

    @property
    def no_stop(self) -> Floats:
        """(batch,) weights of stopping where it is not asked for."""
        return np.zeros(len(self.canvases), dtype=np.float32)

    def by_slot(self, values: Array) -> Array:
        """Sum values of the missing tokens by their slot; (batch, length)."""
        rows, tokens = self.missing.nonzero()
        length = self.open.shape[1]
        places = rows * length + self.slot[rows, tokens]
        sums = np.bincount(places, weights=values[rows, tokens], minlength=self.open.size)
        return sums.reshape(self.open.shape)

    def training_canvases(
        self, asked: Booleans, shares: Array, weights: Array, location: Array, stop: Array
    ) -> TrainingCanvases:
        """List the asked slots and what is missing from them."""
        length = asked.shape[1]
        slots = np.flatnonzero(asked)
        number = asked.ravel().cumsum() - 1
        rows, tokens = self.missing.nonzero()
        places = rows * length + self.slot[rows, tokens]
        wanted = asked.ravel()[places]  # a slot that the prior gives no share has no loss to weigh
        empty = slots[self.missing_from_slot.ravel()[slots] == 0]
        target_slots = np.concatenate([number[places[wanted]], number[empty]])
        end = self.canvases.specials.end_of_slot_id
        target_tokens = np.concatenate([self.texts.batch.token_ids[rows, tokens][wanted], np.full_like(empty, end)])
        target_weights = np.concatenate([weights[rows, tokens][wanted], np.ones(len(empty))])
        order = target_slots.argsort(kind="stable")
        return TrainingCanvases(
            self.canvases,
            slots,
            shares.ravel()[slots].astype(np.float32),
            target_slots[order],
            target_tokens[order],
            target_weights[order].astype(np.float32),
            location.astype(np.float32),
            stop.astype(np.float32),
        )


def canvases_of(texts: Texts, kept: Booleans) -> tuple[CanvasBatch, Integers]:
    """Return the canvases of kept sets, (batch, tokens) bool, and the slot of each missing token, (batch, tokens)."""
    layout = KeptLayout.of(texts, kept)
    return layout.canvases, layout.slot
