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
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kermit.canvas import Factorization, Segment
from kermit.canvas_batch import CanvasBatch
from kermit.errors import ModelError
from kermit.objective import Texts, canvases_of
from kermit.orders import OrderPrior, UniformPrior
from kermit.slots import InsertionModel, row_logsumexp

MAX_EXACT_TOKENS = 12
"""The longest text whose likelihood is summed exactly: 4,096 canvases."""


@dataclass(frozen=True)
class Bounds:
    """What sampled orders say of a text's log-likelihood.

    In expectation log p >= importance_weighted >= with_entropy >= paper.

    Args:
        paper: the paper's lower bound, the mean over orders of the log-probability of their actions. It leaves out the
            entropy of the order, and so is looser than need be.
        with_entropy: the same plus the entropy of the order: the evidence lower bound.
        importance_weighted: the log of the mean importance weight.
        standard_error: of ``importance_weighted``, by the delta method.
        orders: how many orders were drawn.
    """

    paper: float
    with_entropy: float
    importance_weighted: float
    standard_error: float
    orders: int


def exact_log_likelihood(
    model: InsertionModel,
    texts: Sequence[Sequence[Sequence[int]]],
    factorization: Factorization = Factorization.JOINT,
    *,
    batch_size: int = 256,
) -> list[float]:
    """The exact log-likelihood, by a sum over the sets of kept tokens.

    Args:
        model: what scores the slots; put it in evaluation mode first.
        texts: the content tokens of each text's one or two segments.
        factorization: what is generated; of the given and absent segments nothing is asked.
        batch_size: how many canvases to score together.

    Raises:
        ModelError: a text with more than `MAX_EXACT_TOKENS` generated tokens.
    """
    sides = [_generated_length(text, factorization) for text in texts]
    if too_long := [number for number, length in enumerate(sides) if length > MAX_EXACT_TOKENS]:
        raise ModelError(
            f"text {too_long[0]} has {sides[too_long[0]]} tokens to generate; the exact sum takes at most "
            f"{MAX_EXACT_TOKENS}. Use the importance-weighted estimate"
        )
    return [_exact(model, text, factorization, batch_size) for text in texts]


def bounds(
    model: InsertionModel,
    texts: Sequence[Sequence[Sequence[int]]],
    factorization: Factorization = Factorization.JOINT,
    *,
    prior: OrderPrior | None = None,
    orders: int = 16,
    generator: torch.Generator | None = None,
    batch_size: int = 256,
) -> list[Bounds]:
    """Bounds and the importance-weighted estimate from orders drawn from a prior; texts may differ in length.

    Args:
        model: what scores the slots; put it in evaluation mode first.
        texts: the content tokens of each text's one or two segments.
        factorization: what is generated.
        prior: where the orders come from; uniform by default. The better it fits the model, the tighter the bounds.
        orders: how many to draw a text, each a forward pass over n + 1 canvases.
        generator: the source of randomness; seeded with 0 by default.
        batch_size: how many canvases to score together.
    """
    prior = prior or UniformPrior()
    generator = generator or torch.Generator().manual_seed(0)
    rows = [text for text in texts for _ in range(orders)]
    batch = Texts.of(CanvasBatch.from_segments(model.specials, rows), [factorization] * len(rows))
    kept = batch.present & ~batch.generated
    log_order = torch.zeros(len(rows))
    steps: list[tuple[Tensor, Tensor]] = []  # the kept sets on the way, and the token that comes next
    for step in range(int(batch.lengths.max()) if rows else 0):
        going = step < batch.lengths
        weights = prior.weights(kept, batch.present)
        drawn = torch.multinomial(weights.where(going[:, None], 1.0), 1, generator=generator)
        log_order += torch.where(going, weights.gather(1, drawn).squeeze(1).clamp(min=1e-38).log(), 0)
        steps.append((kept, torch.where(going, drawn.squeeze(1), -1)))
        new = torch.zeros_like(kept).scatter_(1, drawn, True)
        kept = kept | (new & going[:, None])
    steps.append((kept, torch.full((len(rows),), -2)))
    log_actions = torch.zeros(len(rows))
    for before, token in steps:
        asked = (token != -1).nonzero().flatten()
        log_actions[asked] += _action_log_probs(model, batch, asked, before[asked], token[asked], batch_size)
    return [
        _summarise(actions, order)
        for actions, order in zip(log_actions.view(-1, orders), log_order.view(-1, orders), strict=True)
    ]


def _summarise(log_actions: Tensor, log_order: Tensor) -> Bounds:
    count = len(log_actions)
    log_weights = (log_actions - log_order).double()
    estimate = float(log_weights.logsumexp(0)) - math.log(count)
    weights = (log_weights - estimate).exp()
    error = float(weights.std() / math.sqrt(count)) if count > 1 else math.nan
    return Bounds(float(log_actions.double().mean()), float(log_weights.mean()), estimate, error, count)


def _exact(
    model: InsertionModel, text: Sequence[Sequence[int]], factorization: Factorization, batch_size: int
) -> float:
    texts = Texts.of(CanvasBatch.from_segments(model.specials, [text]), [factorization])
    places = texts.generated[0].nonzero().flatten()
    length = len(places)
    sets = torch.arange(2**length)
    has = (sets[:, None] >> torch.arange(length)) & 1 == 1  # (sets, tokens)
    kept = (texts.present & ~texts.generated).repeat(len(sets), 1)
    kept[:, places] = has
    # every action out of every set: (set, token not in it), and stopping from the full set
    source, token = (~has).nonzero(as_tuple=True)
    source = torch.cat([source, sets[-1:]])
    token = torch.cat([places[token], torch.tensor([-2])])
    rows = torch.zeros_like(source)
    log_probs = _action_log_probs(model, texts, rows, kept[source], token, batch_size, kept_sets=(kept, source))
    reached = torch.full((len(sets),), -torch.inf, dtype=torch.double)
    reached[0] = 0.0
    added = torch.searchsorted(places, token[:-1])
    target = source[:-1] | (1 << added)
    size = has.sum(1)
    for step in range(length):  # sets of one size lead to those of the next
        moves = (size[source[:-1]] == step).nonzero().flatten()
        arriving = reached[source[moves]] + log_probs[moves].double()
        reached = torch.logaddexp(reached, row_logsumexp(arriving, target[moves], len(sets)))
    return float(reached[-1] + log_probs[-1])


def _action_log_probs(
    model: InsertionModel,
    texts: Texts,
    rows: Tensor,
    kept: Tensor,
    token: Tensor,
    batch_size: int,
    kept_sets: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Log p of the action that inserts a token of the text into the canvas of a kept set, or of stopping.

    Args:
        model: what scores the slots.
        texts: complete texts.
        rows: (actions,) the text of each action.
        kept: (actions, tokens) bool, the kept set before it.
        token: (actions,) the index in the text of the token to insert; -2 for stopping.
        batch_size: how many canvases to score together.
        kept_sets: the distinct kept sets and which of them each action starts from, to score each only once.
    """
    sets, source = (kept, torch.arange(len(kept))) if kept_sets is None else kept_sets
    set_rows = rows if kept_sets is None else rows[:1].expand(len(sets))
    out = torch.empty(len(token))
    for start in range(0, len(sets), batch_size):
        piece = slice(start, min(start + batch_size, len(sets)))
        canvases, slot_of = canvases_of(texts.select(set_rows[piece]), sets[piece])
        with torch.inference_mode():
            scores = model.score_slots(canvases.to(model.device))
        content = scores.content.float()
        log_content = content - content.logsumexp(1, keepdim=True)
        log_location, log_stop = scores.log_location()
        if log_stop is None:
            log_end = log_location + log_content[:, model.specials.end_of_slot_id]
            log_stop = row_logsumexp(log_end, scores.rows, len(canvases))
        number = torch.full(canvases.open_slots.shape, -1, device=scores.rows.device)
        number[scores.rows, scores.slots] = torch.arange(len(scores.rows), device=scores.rows.device)
        mine = ((source >= piece.start) & (source < piece.stop)).nonzero().flatten()
        here, which = (source[mine] - piece.start), token[mine]
        inserts = which >= 0
        safe = which.clamp(min=0)
        slot = slot_of[here, safe]
        index = number.cpu()[here, slot]
        content_ids = texts.batch.token_ids[rows[mine], safe]
        log_insert = log_content.cpu()[index, content_ids] + log_location.cpu()[index]
        out[mine] = torch.where(inserts, log_insert, log_stop.cpu()[here])
    return out


def _generated_length(text: Sequence[Sequence[int]], factorization: Factorization) -> int:
    return sum(len(tokens) for segment, tokens in enumerate(text) if Segment(segment) in factorization.generated)
