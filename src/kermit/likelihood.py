"""How likely a text is: exactly, by bounds, and by importance sampling (the paper's sections 3 and 3.1).

A text is made by actions, each an insertion, and then stops. The actions that lead to a text are in one-to-one
correspondence with the orders of its tokens, so p(text) is the sum over orders of the products of action probabilities.
The canvas is all that an action depends on, so that sum over n! orders is a sum over the 2^n sets of kept tokens.

Stopping is the stop action with sequence termination. With slot termination a slot is drawn and says end-of-slot: the
sum over slots of p(l) p(end-of-slot given l). Either way the probabilities of all texts, and of never stopping, sum
to 1.

All values are in nats. This module sees a model through `kermit.slots.InsertionModel` alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kermit.canvas import Factorization, Segment
from kermit.canvas_batch import CanvasBatch
from kermit.errors import ModelError, member_of
from kermit.orders import OrderPrior, UniformPrior, checked_weights
from kermit.slots import InsertionModel, LeftToRightModel, learned, row_logsumexp
from kermit.texts import Texts, canvases_of

MAX_EXACT_TOKENS = 12
"""The longest text whose likelihood is summed exactly: 4,096 canvases."""

_MAX_TOKENS = 2**13
"""Of the canvases that are scored together: a slot's logits are as many as the vocabulary has tokens."""
_STOP = -1
_NEVER = torch.finfo(torch.float32).tiny
"""A token of no more weight is never drawn."""


@dataclass(frozen=True)
class Bounds:
    """What sampled orders say of a text's log-likelihood.

    In expectation log p >= importance_weighted >= with_entropy >= paper.

    Args:
        paper: the paper's lower bound, the mean over orders of the log-probability of their actions. It leaves out the
            entropy of the order, and so is looser than need be.
        with_entropy: the same plus the entropy of the order: the evidence lower bound.
        importance_weighted: the log of the mean importance weight.
        standard_error: of ``importance_weighted``, by the delta method; None for a single order, and where the prior
            leaves orders out, so that ``importance_weighted`` tends to something below log p.
        orders: how many orders were drawn.
    """

    paper: float
    with_entropy: float
    importance_weighted: float
    standard_error: float | None
    orders: int


def exact_log_likelihood(
    model: InsertionModel,
    texts: Sequence[Sequence[Sequence[int]]],
    factorization: Factorization = Factorization.JOINT,
    *,
    batch_size: int = 256,
    on_batch: Callable[[], object] | None = None,
) -> list[float]:
    """The exact log-likelihood, by a sum over the sets of kept tokens.

    Args:
        model: what scores the slots; put it in evaluation mode first.
        texts: the content tokens of each text's one or two segments.
        factorization: what is generated; of the given and absent segments nothing is asked.
        batch_size: the most canvases to score together.
        on_batch: called after every batch of canvases; what it raises ends the work.

    Raises:
        ModelError: a text with more than `MAX_EXACT_TOKENS` generated tokens.
    """
    factorization = member_of(Factorization, factorization, "factorization")
    sides = [_generated_length(text, factorization) for text in texts]
    if too_long := [number for number, length in enumerate(sides) if length > MAX_EXACT_TOKENS]:
        raise ModelError(
            f"{sides[too_long[0]]} tokens to generate, but the exact sum takes at most {MAX_EXACT_TOKENS}; use the"
            " importance-weighted estimate",
            text=too_long[0],
            limit=MAX_EXACT_TOKENS,
        )
    score = _Scorer(model, batch_size, on_batch)
    return [_exact(score, _one(model, text, factorization)) for text in texts]


def bounds(
    model: InsertionModel,
    texts: Sequence[Sequence[Sequence[int]]],
    factorization: Factorization = Factorization.JOINT,
    *,
    prior: OrderPrior | None = None,
    orders: int = 16,
    seed: int = 0,
    batch_size: int = 256,
    on_batch: Callable[[], object] | None = None,
) -> list[Bounds]:
    """Bounds and the importance-weighted estimate from orders drawn from a prior. No text's depend on the others.

    Args:
        model: what scores the slots; put it in evaluation mode first.
        texts: the content tokens of each text's one or two segments.
        factorization: what is generated.
        prior: where the orders come from; uniform by default. The better it fits the model, the tighter the bounds.
            What of the likelihood lies in orders that it hardly ever draws is missed, and not told by the error.
        orders: how many to draw a text, each of n + 1 canvases; those that orders share are scored once.
        seed: of the drawing, which begins with it anew for every text.
        batch_size: the most canvases to score together.
        on_batch: called after every batch of canvases; what it raises ends the work.

    Raises:
        ModelError: no order is asked for, or the prior's weights are no probabilities.
    """
    if orders < 1:
        raise ModelError(f"orders must be at least 1, not {orders}")
    score = _Scorer(model, batch_size, on_batch)
    return [_bounds(score, _one(model, text, factorization), prior or UniformPrior(), orders, seed) for text in texts]


def left_to_right_log_likelihood(
    model: LeftToRightModel,
    texts: Sequence[Sequence[Sequence[int]]],
    factorization: Factorization = Factorization.JOINT,
    *,
    batch_size: int = 64,
    on_batch: Callable[[], object] | None = None,
) -> list[float]:
    """The exact log-likelihood under the left-to-right order, in one forward pass per batch.

    This is the likelihood of another distribution than the one that the other functions speak of: what the model
    generates with ``strategy="left_to_right"``.

    Args:
        model: a model with cached context that was trained left to right; put it in evaluation mode first.
        texts: the content tokens of each text's one or two segments.
        factorization: what is generated.
        batch_size: how many texts to score together.
        on_batch: called after every batch; what it raises ends the work.

    Raises:
        ModelError: the model was not trained left to right, or has no cached context.
    """
    if not learned(model, left_to_right=True) or not hasattr(model, "left_to_right_log_probs"):
        raise ModelError(
            "left_to_right needs a model with cached_context that was trained with left_to_right among its orders, and"
            " this one was not; use another method"
        )
    found: dict[int, float] = {}
    by_length = sorted(range(len(texts)), key=lambda number: sum(map(len, texts[number])))
    for start in range(0, len(by_length), batch_size):
        part = by_length[start : start + batch_size]
        batch = CanvasBatch.from_segments(model.specials, [texts[number] for number in part])
        with torch.inference_mode():
            sums = model.left_to_right_log_probs(Texts.of(batch.to(model.device), [factorization] * len(part)))
        found |= dict(zip(part, sums.tolist(), strict=True))
        if on_batch is not None:
            on_batch()
    return [found[number] for number in range(len(texts))]


def _one(model: InsertionModel, text: Sequence[Sequence[int]], factorization: Factorization) -> Texts:
    return Texts.of(CanvasBatch.from_segments(model.specials, [text]), [factorization])


def _bounds(score: _Scorer, text: Texts, prior: OrderPrior, orders: int, seed: int) -> Bounds:
    generator = torch.Generator().manual_seed(seed % 2**63)
    prior = prior.for_texts(text.batch.token_ids.expand(orders, -1))
    present = text.present.expand(orders, -1)
    kept = (text.present & ~text.generated).repeat(orders, 1)
    log_order = torch.zeros(orders)
    covered = True
    steps = []  # the kept sets on the way, and the tokens that come next
    for _ in range(int(text.lengths)):
        weights = checked_weights(prior, kept, present)
        covered = covered and bool((kept | ~present | (weights > _NEVER)).all())
        drawn = torch.multinomial(weights, 1, generator=generator)
        log_order += weights.gather(1, drawn).squeeze(1).log()
        steps.append((kept, drawn.squeeze(1)))
        kept = kept.scatter(1, drawn, True)
    steps.append((kept, torch.full((orders,), _STOP)))
    sets, source = torch.unique(torch.cat([before for before, _ in steps]), dim=0, return_inverse=True)
    log_probs = score(text, sets, source, torch.cat([token for _, token in steps]))
    return _summarise(log_probs.view(-1, orders).sum(0), log_order, covered=covered)


def _summarise(log_actions: Tensor, log_order: Tensor, *, covered: bool) -> Bounds:
    count = len(log_actions)
    log_weights = (log_actions - log_order).double()
    estimate = float(log_weights.logsumexp(0)) - math.log(count)
    weights = (log_weights - estimate).exp()
    error = float(weights.std() / math.sqrt(count)) if covered and count > 1 else None
    return Bounds(float(log_actions.double().mean()), float(log_weights.mean()), estimate, error, count)


def _exact(score: _Scorer, text: Texts) -> float:
    places = text.generated[0].nonzero().flatten()
    length = len(places)
    sets = torch.arange(2**length)
    has = (sets[:, None] >> torch.arange(length)) & 1 == 1  # (sets, tokens)
    kept = (text.present & ~text.generated).repeat(len(sets), 1)
    kept[:, places] = has
    # every action out of every set: (set, token not in it), and stopping from the full set
    source, added = (~has).nonzero(as_tuple=True)
    token = torch.cat([places[added], torch.tensor([_STOP])])
    log_probs = score(text, kept, torch.cat([source, sets[-1:]]), token)
    reached = torch.full((len(sets),), -torch.inf, dtype=torch.double)
    reached[0] = 0.0
    target = source | (1 << added)
    size = has.sum(1)
    for step in range(length):  # sets of one size lead to those of the next
        moves = (size[source] == step).nonzero().flatten()
        arriving = reached[source[moves]] + log_probs[moves].double()
        reached = torch.logaddexp(reached, row_logsumexp(arriving, target[moves], len(sets)))
    return float(reached[-1] + log_probs[-1])


@dataclass(frozen=True)
class _Scorer:
    """Log-probabilities of actions, canvases of like length together."""

    model: InsertionModel
    batch_size: int
    on_batch: Callable[[], object] | None

    def __call__(self, text: Texts, sets: Tensor, source: Tensor, token: Tensor) -> Tensor:
        """Log p of inserting tokens of one text into the canvases of kept sets, or of stopping.

        Args:
            text: the complete text.
            sets: (sets, tokens) bool, the kept sets.
            source: (actions,) the set that each action starts from.
            token: (actions,) the index in the text of the token that it inserts, or `_STOP`.

        Returns:
            (actions,).
        """
        out = torch.empty(len(token))
        most = max(1, min(self.batch_size, _MAX_TOKENS // text.batch.token_ids.shape[1]))
        for some in torch.split(sets.sum(1).argsort(), most):
            place = torch.full((len(sets),), -1)
            place[some] = torch.arange(len(some))
            mine = (place[source] >= 0).nonzero().flatten()
            out[mine] = self._batch(text, sets[some], place[source[mine]], token[mine])
            if self.on_batch is not None:
                self.on_batch()
        return out

    def _batch(self, text: Texts, sets: Tensor, source: Tensor, token: Tensor) -> Tensor:
        canvases, slot_of = canvases_of(text.select(torch.zeros(len(sets), dtype=torch.long)), sets)
        with torch.inference_mode():
            scores = self.model.score_slots(canvases.to(self.model.device))
            content = scores.content.float()
            normaliser = content.logsumexp(1)
            log_location, log_stop = scores.log_location()
            if log_stop is None:
                log_end = content[:, self.model.specials.end_of_slot_id] - normaliser + log_location
                log_stop = row_logsumexp(log_end, scores.rows, len(canvases))
            number = torch.zeros_like(canvases.open_slots, dtype=torch.long)  # of each open slot among the scored
            number[scores.rows.cpu(), scores.slots.cpu()] = torch.arange(len(scores.rows))
            inserted = token.clamp(min=0)
            slot = number[source, slot_of[source, inserted]]
            logit = content[slot.to(content.device), text.batch.token_ids[0, inserted].to(content.device)]
            log_insert = logit.cpu() + (log_location - normaliser).cpu()[slot]
            return torch.where(token == _STOP, log_stop.cpu()[source], log_insert)


def _generated_length(text: Sequence[Sequence[int]], factorization: Factorization) -> int:
    return sum(len(tokens) for segment, tokens in enumerate(text) if Segment(segment) in factorization.generated)
