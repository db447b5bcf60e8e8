"""Complete texts, the canvases of their kept tokens, and the targets: the tokens missing from each slot.

The slot of a missing token follows from the kept mask by a cumulative sum, so the targets of a canvas are a short list
of (slot, token, weight), never a dense (slots, vocabulary) array. This module knows no model and draws nothing;
`TrainingCanvases.model_inputs` returns the arguments of a model's forward as arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from kermit.canvas import CanvasBatch, Factorization, Segment
from kermit.canvas.arrays import Array, Booleans, Floats, Integers
from kermit.canvas.context import Generations, given_part
from kermit.errors import member_of


@dataclass(frozen=True)
class SlotTargets:
    """The tokens missing from slots, and the weights of the loss.

    The loss of a batch is the sum over scored slots of ``slot_weights`` times (logsumexp of the logits minus the
    weighted target logits), plus the sums of ``location_weights`` and ``stop_weights`` times the negative
    log-probabilities of locations and of stopping, divided by the number of texts.

    Args:
        slot_weights: (scored slots,).
        target_slots: (targets,) ascending indices of scored slots.
        target_tokens: (targets,) missing tokens, or end-of-slot.
        target_weights: (targets,) summing to 1 in each slot.
        location_weights: of all open slots.
        stop_weights: (canvases,).
    """

    slot_weights: Floats
    target_slots: Integers
    target_tokens: Integers
    target_weights: Floats
    location_weights: Floats
    stop_weights: Floats


@dataclass(frozen=True)
class TrainingCanvases(SlotTargets):
    """Canvases with the targets of their scored slots, (slots,) ascending, as row * length + slot.

    `location_weights` are (batch, length).
    """

    canvases: CanvasBatch
    slots: Integers

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
            **{field.name: getattr(self, field.name) for field in fields(SlotTargets)},
            "location_weights": self.location_weights.ravel()[right],
        }


@dataclass(frozen=True)
class Texts:
    """Complete texts, and which part of them is generated.

    Args:
        batch: the complete canvases.
        present: (batch, tokens) bool: valid, and not in a segment that the factorization leaves empty.
        generated: (batch, tokens) bool: the content tokens that may be removed.
        open_segments: (batch, 2) bool: the segments whose slots are open.
        marked: (batch, tokens) bool: the given tokens with a marked blank on their left; no other slot between two
            given tokens is open. None if no blank is marked and every slot of the open segments is open.
        unmarked: (batch,) bool: texts without marks, whose slots are all open, in a batch with `marked`.
    """

    batch: CanvasBatch
    present: Booleans
    generated: Booleans
    open_segments: Booleans
    marked: Booleans | None = None
    unmarked: Booleans | None = None

    @classmethod
    def of(cls, batch: CanvasBatch, factorizations: Sequence[Factorization]) -> Texts:
        """Determine from each text's factorization which of its tokens are generated, given or absent."""
        ways = [member_of(Factorization, way, "factorization") for way in factorizations]
        generated = np.array([[s in way.generated for s in Segment] for way in ways]).reshape(-1, len(Segment))
        absent = np.array([[s in way.absent for s in Segment] for way in ways]).reshape(-1, len(Segment))
        content = batch.valid & ~batch.framing
        present = batch.valid & ~(content & _by_segment(absent, batch.segment_ids))
        return cls.of_sides(batch, generated, present)

    @classmethod
    def of_sides(cls, batch: CanvasBatch, generated: Booleans, present: Booleans | None = None) -> Texts:
        """Generate whole sides, (batch, 2) bool; everything is present by default."""
        present = batch.valid if present is None else present
        content = present & ~batch.framing
        return cls(batch, present, content & _by_segment(generated, batch.segment_ids), generated)

    @cached_property
    def given(self) -> Booleans:
        """(batch, tokens) bool, the tokens at the start, with the special tokens that frame them."""
        batch = self.batch
        given = self.present & ~batch.framing & ~self.generated
        return self.present & given_part(
            batch.token_ids, batch.segment_ids, given, self._in_open_segment, batch.specials
        )

    @cached_property
    def open_slots(self) -> Booleans:
        """(batch, tokens) bool, whether the slot left of each token is open once the token is on the canvas."""
        open_slots = self._in_open_segment
        if self.marked is None:
            return open_slots
        restricted = self.marked | ~self.given
        return open_slots & (restricted if self.unmarked is None else restricted | self.unmarked[:, None])

    @property
    def marks(self) -> Booleans:
        """(batch, tokens) bool, the given tokens with a marker on their left."""
        if self.marked is None:
            return np.zeros_like(self.present)
        return self.marked if self.unmarked is None else self.marked & ~self.unmarked[:, None]

    @cached_property
    def _in_open_segment(self) -> Booleans:
        within = self.present & _by_segment(self.open_segments, self.batch.segment_ids)
        return np.asarray(within & (self.batch.token_ids != self.batch.specials.cls_id))

    @property
    def lengths(self) -> Integers:
        """(batch,) number of tokens to generate."""
        return np.asarray(self.generated.sum(1))

    def generations(self, rounds: Integers, left_to_right: Booleans) -> Generations:
        """Describe the generation of each text by its rounds.

        Args:
            rounds: (batch, tokens) the round in which a token is inserted, from 1; 0 for tokens at the start.
            left_to_right: (batch,) bool, whether the text is generated from left to right.
        """
        batch, planes = self.batch, (self.present, self.given, self.marks, self.open_slots)
        return Generations(batch.token_ids, batch.segment_ids, *planes, rounds, left_to_right, batch.specials)

    def select(self, rows: Integers) -> Texts:
        """Select texts by index; an index may occur several times."""
        marks = [None if plane is None else plane[rows] for plane in (self.marked, self.unmarked)]
        return Texts(
            self.batch.select(rows), self.present[rows], self.generated[rows], self.open_segments[rows], *marks
        )


def _by_segment(flags: Booleans, segment_ids: Integers) -> Booleans:
    """Return (batch, tokens), the flag in (batch, 2) of each token's segment."""
    return np.where(segment_ids == Segment.Y, flags[:, 1:], flags[:, :1])


@dataclass(frozen=True)
class KeptLayout:
    """The canvases of kept tokens, and the slots that missing tokens belong to.

    Args:
        missing: (batch, tokens) bool, the tokens that are not kept.
        slot: (batch, tokens) the slot of each missing token; 0 elsewhere.
        missing_from_slot: (batch, length) number of tokens missing from each slot.
    """

    texts: Texts
    canvases: CanvasBatch
    missing: Booleans
    slot: Integers
    missing_from_slot: Integers

    @classmethod
    def of(cls, texts: Texts, kept: Booleans) -> KeptLayout:
        """Build the layout of kept sets, (batch, tokens) bool."""
        batch = texts.batch
        kept = kept & texts.present
        missing = texts.present & ~kept
        slot = kept.cumsum(1)  # a missing token's slot is the number of kept tokens before it
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

    @cached_property
    def places(self) -> Integers:
        """(missing,) the slot of each missing token, as row * length + slot."""
        rows = np.arange(len(self.slot))[:, None]
        return np.asarray((rows * self.open.shape[1] + self.slot)[self.missing])

    def by_slot(self, values: Array) -> Array:
        """Sum values of the missing tokens by their slot; (batch, length)."""
        sums = np.bincount(self.places, weights=values[self.missing], minlength=self.open.size)
        return sums.reshape(self.open.shape)

    def training_canvases(
        self, asked: Booleans, shares: Array, weights: Array, location: Array, stop: Array
    ) -> TrainingCanvases:
        """List the slots with a loss and the tokens missing from them."""
        slots = np.flatnonzero(asked)
        number = asked.ravel().cumsum() - 1
        wanted = asked.ravel()[self.places]  # slots without a loss have no targets
        empty = slots[self.missing_from_slot.ravel()[slots] == 0]
        missing = self.texts.batch.token_ids[self.missing][wanted], weights[self.missing][wanted]
        ends = number[empty], self.canvases.specials.end_of_slot_id
        targets = with_ends(number[self.places[wanted]], *missing, *ends)
        slot_weights, location, stop = (plane.astype(np.float32) for plane in (shares.ravel()[slots], location, stop))
        return TrainingCanvases(slot_weights, *targets, location, stop, self.canvases, slots)


def with_ends(
    slots: Integers, tokens: Integers, weights: Array, empty: Integers, end_id: int
) -> tuple[Integers, Integers, Floats]:
    """Return the targets of slots, with end-of-slot as that of `empty` ones, in ascending order of slots."""
    slots = np.concatenate([slots, empty])
    order = slots.argsort(kind="stable")
    tokens = np.concatenate([tokens, np.full(len(empty), end_id)])
    weights = np.concatenate([weights, np.ones(len(empty))])
    return slots[order], tokens[order], weights[order].astype(np.float32)


def canvases_of(texts: Texts, kept: Booleans) -> tuple[CanvasBatch, Integers]:
    """Return the canvases of kept sets, (batch, tokens) bool, and the slot of each missing token, (batch, tokens)."""
    layout = KeptLayout.of(texts, kept)
    return layout.canvases, layout.slot
