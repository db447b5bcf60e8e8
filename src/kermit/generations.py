"""The third objective: all rounds of one generation, from one row (`kermit.context`).

A text is generated once: what is given of it is decided, and the order prior says in which round every other token is
inserted. The row then asks every open slot of every round's canvas, from the first to the complete one, so that one
pass learns a whole generation: each insertion, and each end-of-slot. A left-to-right row asks for every token given all
that comes before it, which is the exact likelihood of that order. This module knows no model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kermit.context import Generations, RowLayout
from kermit.dropping import sample_dropped
from kermit.orders import OrderPrior, checked_weights
from kermit.texts import Texts

_ONE_BY_ONE, _SPANS = 0.35, 0.35
"""Of infilling: the shares of texts that miss single tokens, and spans; the others miss one span of any length."""
_LEAST_MISSING, _MOST_MISSING = 0.05, 0.8
"""Of infilling: which share of the tokens is missing one by one or in spans."""
_LONGEST_MEAN_SPAN = 8.0
"""Of infilling: the mean length of missing spans is drawn between one token and this."""
_MARKED_RATE, _ALL_MARKED = 0.05, 0.25
"""Of infilling: the share of the other slots that are marked as blanks, and of the texts all of whose slots are."""

_WAITING = 0.5
"""Of staggered rounds: the probability of an unfinished slot to wait."""


@dataclass(frozen=True)
class GenerationTargets:
    """Rows with all that is asked of them, and what each part weighs in the loss.

    Args:
        layout: the rows and their open slots.
        canvases: (slots,) the canvas of each open slot, ascending.
        asked: (asked,) indices of the open slots whose content is asked for, ascending.
        slot_weights: (asked,).
        target_slots: (targets,) ascending indices into ``asked``.
        target_tokens: (targets,) missing tokens, or end-of-slot.
        target_weights: (targets,) summing to 1 in each slot.
        location_weights: (slots,), or of no slots where locations are not learned.
        stop_weights: (canvases,), all 0: every slot says itself when it is finished.
    """

    layout: RowLayout
    canvases: Tensor
    asked: Tensor
    slot_weights: Tensor
    target_slots: Tensor
    target_tokens: Tensor
    target_weights: Tensor
    location_weights: Tensor
    stop_weights: Tensor

    def model_inputs(self) -> dict[str, Tensor]:
        """The keyword arguments of `KermitForInsertion.forward`."""
        rows, slots = self.layout.rows, self.layout.slots
        return {
            "input_ids": rows.token_ids,
            "segment_ids": rows.segment_ids,
            "positions": rows.positions,
            "blocks": rows.blocks,
            "times": rows.times,
            "left_to_right": rows.left_to_right,
            "left": slots.left,
            "right": slots.right,
            "canvases": self.canvases,
            "asked": self.asked,
            "slot_weights": self.slot_weights,
            "target_slots": self.target_slots,
            "target_tokens": self.target_tokens,
            "target_weights": self.target_weights,
            "location_weights": self.location_weights,
            "stop_weights": self.stop_weights,
        }


@dataclass(frozen=True)
class GenerationObjective:
    """The loss of all rounds of one generation per text, summed over slots.

    Args:
        prior: the order prior, which draws the rounds and weighs the tokens missing from a slot.
        location_weight: what the location's loss of a canvas weighs beside the content's loss of a slot.
        empty_slot_weight: what the loss of an empty slot weighs beside that of an unfinished one, 1; left-to-right rows
            always weigh it 1.
        infilling: the share of texts of which a random part of what is to be generated is given as well.
        unmarked: the share of those in which blanks are not marked, and any slot may miss something.
        staggered: the share of texts in whose rounds each unfinished slot waits with a probability of a half. Serial
            decoding meets such canvases; rounds that serve every slot do not lead to them.
    """

    prior: OrderPrior
    location_weight: float = 1.0
    empty_slot_weight: float = 1.0
    infilling: float = 0.0
    unmarked: float = 0.0
    staggered: float = 0.0

    def draw(self, texts: Texts, left_to_right: Tensor, generator: torch.Generator) -> tuple[Texts, Tensor]:
        """Decide what is given, where blanks are marked, and in which round every other token is inserted.

        Args:
            texts: complete texts with their factorizations.
            left_to_right: (batch,) bool, the texts of the left-to-right order.
            generator: the source of randomness, on the CPU.

        Returns:
            The texts with less to be generated and with marks, and the rounds, (batch, tokens).
        """
        if self.infilling:
            texts = self._partly_given(texts, left_to_right, generator)
        prior = self.prior.for_texts(texts.batch.token_ids)
        waiting = None
        if self.staggered:
            chosen = torch.rand(len(texts.batch), generator=generator) < self.staggered
            waiting = (_WAITING * chosen).to(texts.present.device)
        rounds = prior.sample_rounds(texts.present & ~texts.generated, texts.present, generator, waiting=waiting)
        return texts, rounds.masked_fill(left_to_right[:, None], 0)

    def _partly_given(self, texts: Texts, left_to_right: Tensor, generator: torch.Generator) -> Texts:
        count = len(texts.batch)
        chosen, unmarked = torch.rand(2, count, generator=generator) < torch.tensor([[self.infilling], [self.unmarked]])
        dropped = _sample_missing(texts.generated.cpu(), generator)
        everywhere = torch.rand(count, 1, generator=generator) < _ALL_MARKED
        spare = torch.rand(texts.generated.shape, generator=generator) < torch.where(everywhere, 1.0, _MARKED_RATE)
        chosen, unmarked, dropped, spare = (
            part.to(texts.generated.device) for part in (chosen, unmarked, dropped, spare)
        )
        found = replace(texts, generated=texts.generated & (dropped | ~chosen[:, None]))
        missing_before = torch.nn.functional.pad(found.generated[:, :-1], (1, 0))
        marked = found.open_slots & found.given & (missing_before | spare)
        return replace(found, marked=marked, unmarked=unmarked & chosen & ~left_to_right)

    def build(
        self, texts: Texts, rounds: Tensor, left_to_right: Tensor, lay_out: Callable[[Generations], RowLayout]
    ) -> GenerationTargets:
        """Ask every open slot of every canvas.

        Args:
            texts: what `draw` returned.
            rounds: what it returned too.
            left_to_right: (batch,) bool.
            lay_out: makes rows of generations, as the model reads them.
        """
        batch = texts.batch
        given, marked = texts.given, texts.marks
        layout = lay_out(
            Generations(
                batch.token_ids,
                batch.segment_ids,
                texts.present,
                given,
                marked,
                texts.open_slots,
                rounds,
                left_to_right,
                batch.specials,
            )
        )
        slots = layout.slots
        number = torch.arange(layout.lookup.shape[1], device=rounds.device)[:, None]
        missing = texts.generated[:, None] & (rounds[:, None] > number)  # (batch, rounds, tokens)
        kept = (texts.present[:, None] & ~missing).flatten(0, 1)
        present = texts.present[:, None].expand_as(missing).flatten(0, 1)
        prior = self.prior.for_texts(batch.token_ids.repeat_interleave(len(number), 0))
        weights = prior.slot_weights(kept, present).view(missing.shape)
        # left to right, a slot asks for the token that it stands before
        ordered = torch.zeros_like(missing)
        ordered[:, 0] = texts.generated & left_to_right[:, None]
        weights = torch.where(ordered, 1.0, weights)
        found = missing | ordered
        place = layout.lookup[found]
        asked = slots.fresh.nonzero().flatten()
        rank = slots.fresh.cumsum(0) - 1
        wanted = slots.fresh[place]
        unfinished = torch.zeros_like(slots.fresh).index_fill(0, place, True)
        empty = asked[~unfinished[asked]]
        tokens = batch.token_ids[:, None].expand_as(missing)[found]
        target_slots = torch.cat([rank[place[wanted]], rank[empty]])
        ends = torch.full_like(empty, batch.specials.end_of_slot_id)
        target_tokens = torch.cat([tokens[wanted], ends])
        target_weights = torch.cat([weights[found][wanted], weights.new_ones(len(empty))])
        order = target_slots.argsort(stable=True)
        weigh_less = ~unfinished & ~left_to_right[slots.rows]
        slot_weights = torch.where(weigh_less, self.empty_slot_weight, 1.0)[asked]
        canvases = slots.rows * len(number) + slots.rounds
        location = weights.new_zeros(0)
        if self.location_weight:
            by_token = checked_weights(prior, kept, present).view(missing.shape)
            by_token = by_token * (self.location_weight * ~left_to_right)[:, None, None]
            location = weights.new_zeros(len(slots.rows)).index_add_(0, layout.lookup[missing], by_token[missing])
        return GenerationTargets(
            layout,
            canvases,
            asked,
            slot_weights,
            target_slots[order],
            target_tokens[order],
            target_weights[order],
            location,
            weights.new_zeros(missing.shape[0] * missing.shape[1]),
        )


def _sample_missing(among: Tensor, generator: torch.Generator) -> Tensor:
    """Draw what infilling asks for among tokens, (batch, tokens) bool: tokens one by one, in spans, or one span."""
    kind, rate, span, first, last = torch.rand(5, len(among), 1, generator=generator)
    rate = _LEAST_MISSING + (_MOST_MISSING - _LEAST_MISSING) * rate
    span = torch.where(kind < _ONE_BY_ONE, 1.0, 1 + (_LONGEST_MEAN_SPAN - 1) * span)
    dropped = sample_dropped((among.shape[0], among.shape[1]), rate, generator, span_length=span)
    count = among.sum(1, keepdim=True)
    ends = torch.cat([first, last], 1).sort(1).values * (count + 1)
    rank = among.cumsum(1)
    one_span = (rank > ends[:, :1].floor()) & (rank <= ends[:, 1:].ceil())
    return among & torch.where(kind < _ONE_BY_ONE + _SPANS, dropped, one_span)
