"""The third objective: all rounds of one generation, from one row (`kermit.canvas.context`).

For each text, a given part is drawn, and the order prior draws the round in which every other token is inserted. The
row then has targets at every open slot of every round's canvas, from the first to the complete one, so that one pass
trains a whole generation: every insertion and every end-of-slot. A left-to-right row has every token as a target, given
all tokens before it: the exact likelihood in that order. This module knows no model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from kermit.canvas.arrays import Array, Booleans, Floats, Integers
from kermit.canvas.blank_room import BlankRoom
from kermit.canvas.context import RowLayout, lay_out
from kermit.objectives.dropping import sample_dropped, sample_repeated
from kermit.objectives.orders import OrderPrior, checked_weights
from kermit.objectives.training_canvases import SlotTargets, Texts, with_ends


class Removal(StrEnum):
    """What infilling removes: single tokens, spans, one span of any length, or runs that occurred earlier."""

    TOKENS = "tokens"
    SPANS = "spans"
    ONE_SPAN = "one_span"
    REPEATED = "repeated"


REMOVED: Mapping[Removal, float] = {Removal.TOKENS: 0.35, Removal.SPANS: 0.35, Removal.ONE_SPAN: 0.3}
"""Infilling: shares of the texts that lose something in each of these ways."""
MISSING = (0.05, 0.8)
"""Infilling: minimum and maximum share of tokens that are missing, unless one span is."""
_LONGEST_MEAN_SPAN = 8.0
"""Infilling: the mean length of missing spans is drawn between one token and this."""
_MARKED_RATE, _ALL_MARKED = 0.05, 0.25
"""Infilling: share of empty slots that are marked as blanks, and share of texts in which all slots are marked."""

_WAITING = 0.5
"""Staggered rounds: probability that an unfinished slot waits."""


@dataclass(frozen=True)
class GenerationTargets(SlotTargets):
    """Rows with the targets of their open slots.

    `canvases`, (slots,), are the ascending indices of each slot's canvas, and `asked` those of scored slots.
    `location_weights` are (slots,), or (0,) if locations are not learned; `stop_weights` are all 0.
    `completions` are 1 for the scored slots that one token completes, otherwise 0; `completion_weights` are the weights
    of predicting them, or (0,) if that is not learned.
    """

    layout: RowLayout
    canvases: Integers
    asked: Integers
    completions: Floats
    completion_weights: Floats

    def model_inputs(self) -> dict[str, Array]:
        """Return the keyword arguments of `KermitForInsertion.forward`, as arrays."""
        rows, slots = self.layout.rows, self.layout.slots
        return {
            "input_ids": rows.token_ids,
            "segment_ids": rows.segment_ids,
            "positions": rows.positions,
            "orders": rows.orders,
            "attention_mask": rows.mask,
            "left": slots.left,
            "right": slots.right,
            **{name: array for name, array in vars(self).items() if name != "layout"},
        }


@dataclass(frozen=True)
class GenerationObjective:
    """The loss of all rounds of one generation per text, summed over slots.

    Args:
        prior: the order prior, which draws the rounds and weights the tokens missing from a slot.
        location_weight: weight of a canvas's location loss, relative to a slot's content loss.
        empty_slot_weight: weight of an empty slot's loss, relative to 1 for an unfinished slot; always 1 in
            left-to-right rows.
        completion_weight: weight of predicting whether one token completes an unfinished slot, relative to its content
            loss; left-to-right rows do not learn it.
        infilling: share of texts in which a random part of the text to generate is given.
        removed: how their tokens are removed, with weights; one way is drawn per text.
        missing: minimum and maximum share of their tokens that are missing, unless one span is; drawn per text.
        common_ids: no repeated run begins or ends with a token of a lower id.
        unmarked: share of those in which blanks are not marked and any slot may lack tokens.
        staggered: share of texts in which each unfinished slot waits with probability 1/2 per round. Serial decoding
            produces such canvases; rounds that fill every slot do not.
    """

    prior: OrderPrior
    location_weight: float = 1.0
    empty_slot_weight: float = 1.0
    completion_weight: float = 0.0
    infilling: float = 0.0
    removed: Mapping[Removal, float] = field(default_factory=lambda: REMOVED)
    missing: tuple[float, float] = MISSING
    common_ids: int = 0
    unmarked: float = 0.0
    staggered: float = 0.0

    def draw(
        self,
        texts: Texts,
        left_to_right: Booleans,
        generator: np.random.Generator,
        *,
        infilling: Floats | None = None,
    ) -> tuple[Texts, Integers]:
        """Draw what is given, where blanks are marked, and the round in which every other token is inserted.

        Args:
            texts: complete texts with their factorizations.
            left_to_right: (batch,) bool, the texts to generate from left to right.
            generator: the source of randomness.
            infilling: (batch,) the probability that a part of each text is given; the same for all by default.

        Returns:
            The texts with less to generate and with marks, and the rounds, (batch, tokens).
        """
        shares = np.full(len(texts.batch), self.infilling) if infilling is None else infilling
        if shares.any():
            texts = self._partly_given(texts, shares, left_to_right, generator)
        prior = self.prior.for_texts(texts.batch.token_ids)
        waiting = None
        if self.staggered:
            waiting = _WAITING * (generator.random(len(texts.batch)) < self.staggered)
        rounds = prior.sample_rounds(texts.present & ~texts.generated, texts.present, generator, waiting=waiting)
        return texts, np.where(left_to_right[:, None], 0, rounds)

    def _partly_given(
        self, texts: Texts, shares: Floats, left_to_right: Booleans, generator: np.random.Generator
    ) -> Texts:
        count = len(texts.batch)
        chosen, unmarked = generator.random((2, count)) < np.stack([shares, np.full(count, self.unmarked)])
        dropped = self._sample_missing(texts, generator)
        everywhere = generator.random((count, 1)) < _ALL_MARKED
        spare = generator.random(texts.generated.shape) < np.where(everywhere, 1.0, _MARKED_RATE)
        found = replace(texts, generated=texts.generated & (dropped | ~chosen[:, None]))
        missing_before = np.zeros_like(found.generated)
        missing_before[:, 1:] = found.generated[:, :-1]
        marked = found.open_slots & found.given & (missing_before | spare)
        return replace(found, marked=marked, unmarked=unmarked & chosen & ~left_to_right)

    def _sample_missing(self, texts: Texts, generator: np.random.Generator) -> Booleans:
        """Draw the tokens that infilling removes, (batch, tokens) bool."""
        among = texts.generated
        drawn, share, span, first, last = generator.random((5, len(among), 1))
        share = self.missing[0] + (self.missing[1] - self.missing[0]) * share
        ways = list(self.removed)
        shares = np.array([self.removed[way] for way in ways], dtype=np.float64)
        way = np.minimum((shares.cumsum() / shares.sum()).searchsorted(drawn, side="right"), len(ways) - 1)
        span = np.where(way == _place(ways, Removal.TOKENS), 1.0, 1 + (_LONGEST_MEAN_SPAN - 1) * span)
        found = sample_dropped((among.shape[0], among.shape[1]), share, generator, span_length=span)
        count = among.sum(1, keepdims=True)
        ends = np.sort(np.concatenate([first, last], 1), 1) * (count + 1)
        rank = among.cumsum(1)
        one_span = (rank > np.floor(ends[:, :1])) & (rank <= np.ceil(ends[:, 1:]))
        found = np.where(way == _place(ways, Removal.ONE_SPAN), one_span, found)
        if Removal.REPEATED in ways:
            ids = texts.batch.token_ids
            repeated = sample_repeated(ids, among, share[:, 0], generator, common=self.common_ids)
            found = np.where(way == _place(ways, Removal.REPEATED), repeated, found)
        return np.asarray(among & found)

    def build(
        self, texts: Texts, rounds: Integers, left_to_right: Booleans, *, blank_id: int, blank_room: BlankRoom
    ) -> GenerationTargets:
        """Build the targets of every open slot of every canvas.

        Args:
            texts: the texts that `draw` returned.
            rounds: (batch, tokens) the rounds that `draw` returned.
            left_to_right: (batch,) bool, as for `draw`.
            blank_id: the token that marks a blank.
            blank_room: the positions that each blank reserves for inserted tokens.
        """
        batch = texts.batch
        layout = lay_out(texts.generations(rounds, left_to_right), blank_id, blank_room)
        slots = layout.slots
        count = layout.lookup.shape[1]
        number = np.arange(count)[:, None]
        missing = texts.generated[:, None] & (rounds[:, None] > number)  # (batch, rounds, tokens)
        present = np.broadcast_to(texts.present[:, None], missing.shape).reshape(-1, missing.shape[2])
        kept = present & ~missing.reshape(present.shape)
        prior = self.prior.for_texts(np.repeat(batch.token_ids, count, 0))
        weights = prior.slot_weights(kept, present).reshape(missing.shape)
        found = missing
        if left_to_right.any():  # the target of a slot is the next token
            ordered = np.zeros_like(missing)
            ordered[:, 0] = texts.generated & left_to_right[:, None]
            weights = np.where(ordered, 1, weights)
            found = missing | ordered
        text, turn, token = found.nonzero()
        place = layout.lookup[text, turn, token]
        asked = np.flatnonzero(slots.fresh)
        rank = slots.fresh.cumsum() - 1
        wanted = slots.fresh[place]
        unfinished = np.zeros(len(slots.fresh), dtype=bool)
        unfinished[place] = True
        empty = asked[~unfinished[asked]]
        text, turn, token = text[wanted], turn[wanted], token[wanted]
        missed = batch.token_ids[text, token], weights[text, turn, token]
        targets = with_ends(rank[place[wanted]], *missed, rank[empty], batch.specials.end_of_slot_id)
        weigh_less = ~unfinished & ~left_to_right[slots.rows]
        slot_weights = np.where(weigh_less, self.empty_slot_weight, 1.0)[asked]
        location: Array = np.zeros(0)
        if self.location_weight:
            by_token = checked_weights(prior, kept, present).reshape(missing.shape)
            text, turn, token = missing.nonzero()
            share = by_token[text, turn, token] * (self.location_weight * ~left_to_right)[text]
            location = np.bincount(layout.lookup[text, turn, token], weights=share, minlength=len(slots.rows))
        lacking = np.bincount(rank[place[wanted]], minlength=len(asked))
        completion: Array = np.zeros(0)
        if self.completion_weight:
            completion = self.completion_weight * slot_weights * (lacking > 0) * ~left_to_right[slots.rows[asked]]
        return GenerationTargets(
            slot_weights.astype(np.float32),
            *targets,
            location.astype(np.float32),
            np.zeros(len(present), dtype=np.float32),
            layout,
            slots.rows * count + slots.rounds,
            asked,
            (lacking == 1).astype(np.float32),
            completion.astype(np.float32),
        )


def _place(ways: list[Removal], way: Removal) -> int:
    """Return the place of a way of removing tokens in a list; -1 if it is not there."""
    return ways.index(way) if way in ways else -1
