"""How likely a text is: exactly, by bounds, and by importance sampling (the paper's sections 3 and 3.1).

A text is made by actions, each an insertion, and then stops. The actions that lead to a text are in one-to-one
correspondence with the orders of its tokens, so p(text) is the sum over orders of the products of action probabilities.
The canvas is all that an action depends on, so that sum over n! orders is a sum over the 2^n sets of kept tokens.

Stopping is the stop action with sequence termination. With slot termination a slot is drawn and says end-of-slot: the
sum over slots of p(l) p(end-of-slot given l). Either way the probabilities of all texts, and of never stopping, sum
to 1.

All values are in nats. This module sees a model only through its engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kermit.canvas import CanvasBatch, Factorization
from kermit.canvas.arrays import Array, Booleans, Integers
from kermit.decoding.asking import GivenCache, ask_canvases, ask_rows, by_length, lay_out_for
from kermit.decoding.choosing import log_locations, row_logsumexp
from kermit.engines.engine import Asked, Engine
from kermit.errors import ModelError, member_of
from kermit.objectives.orders import OrderPrior, UniformPrior, checked_weights, draw_by_row
from kermit.objectives.training_canvases import Texts, canvases_of

MAX_EXACT_TOKENS = 12
"""The longest text whose likelihood is summed exactly: 4,096 canvases."""

_MAX_TOKENS = 2**13
"""Maximum number of tokens of canvases that are scored together: every slot has logits for the whole vocabulary."""
_STOP = -1
_NEVER = np.finfo(np.float32).tiny
"""A token of at most this weight is never drawn."""


@dataclass(frozen=True)
class Bounds:
    """Estimates of a text's log-likelihood from sampled orders.

    In expectation log p >= importance_weighted >= with_entropy >= paper.

    Args:
        paper: the paper's lower bound, the mean over orders of the log-probability of their actions. It leaves out the
            entropy of the order, so it is not as tight as it could be.
        with_entropy: the same plus the entropy of the order: the evidence lower bound.
        importance_weighted: the log of the mean importance weight.
        standard_error: of ``importance_weighted``, by the delta method; None for a single order, and where the prior
            excludes orders, so that ``importance_weighted`` tends to a value below log p.
        orders: number of orders drawn.
    """

    paper: float
    with_entropy: float
    importance_weighted: float
    standard_error: float | None
    orders: int


def exact_log_likelihood(
    engine: Engine,
    texts: Sequence[Sequence[Sequence[int]]],
    factorization: Factorization = Factorization.JOINT,
    *,
    batch_size: int = 256,
    on_batch: Callable[[], object] | None = None,
) -> list[float]:
    """Return the exact log-likelihood, as a sum over the sets of kept tokens.

    Args:
        texts: the content tokens of each text's one or two segments.
        factorization: what is generated; given and absent segments do not count.

    Raises:
        ModelError: a text with more than `MAX_EXACT_TOKENS` generated tokens.
    """
    factorization = member_of(Factorization, factorization, "factorization")
    sides = [sum(len(text[side]) for side in factorization.generated if side < len(text)) for text in texts]
    if too_long := [number for number, length in enumerate(sides) if length > MAX_EXACT_TOKENS]:
        raise ModelError(
            f"{sides[too_long[0]]} tokens to generate, but the exact sum takes at most {MAX_EXACT_TOKENS}; use the"
            " importance-weighted estimate",
            text=too_long[0],
            limit=MAX_EXACT_TOKENS,
        )
    score = _Scorer(engine, batch_size, on_batch)
    return [_exact(score, _one(engine, text, factorization)) for text in texts]


def bounds(
    engine: Engine,
    texts: Sequence[Sequence[Sequence[int]]],
    factorization: Factorization = Factorization.JOINT,
    *,
    prior: OrderPrior | None = None,
    orders: int = 16,
    seed: int = 0,
    batch_size: int = 256,
    on_batch: Callable[[], object] | None = None,
) -> list[Bounds]:
    """Return bounds and the importance-weighted estimate from random orders; texts do not affect each other.

    Args:
        texts: the content tokens of each text's one or two segments.
        prior: the distribution of orders; uniform by default. The better it fits the model, the tighter the bounds. The
            likelihood of orders that it hardly ever draws is missed, and the standard error does not show it.
        orders: number of orders per text, each of n + 1 canvases; canvases that orders share are scored once.
        seed: of the random orders; every text starts from it.

    Raises:
        ModelError: `orders` is below 1, or the prior's weights are not probabilities.
    """
    if orders < 1:
        raise ModelError(f"orders must be at least 1, not {orders}")
    score = _Scorer(engine, batch_size, on_batch)
    return [_bounds(score, _one(engine, text, factorization), prior or UniformPrior(), orders, seed) for text in texts]


def left_to_right_log_likelihood(
    engine: Engine,
    texts: Sequence[Sequence[Sequence[int]]],
    factorization: Factorization = Factorization.JOINT,
    *,
    batch_size: int = 64,
    on_batch: Callable[[], object] | None = None,
) -> list[float]:
    """Return the exact log-likelihood under the left-to-right order, in one forward pass per batch.

    This is the distribution of what the model generates with ``strategy="left_to_right"``, not that of the other
    functions.

    Raises:
        ModelError: the model was not trained left to right, or has no cached context.
    """
    if not (engine.info.inserts_left_to_right and engine.info.cached_context):
        raise ModelError(
            "left_to_right needs a model with cached_context that was trained with left_to_right among its orders, and"
            " this one was not; use another method"
        )
    found: dict[int, float] = {}
    for part in by_length([sum(map(len, text)) for text in texts], batch_size):
        batch = CanvasBatch.from_segments(engine.info.specials, [texts[number] for number in part])
        sums = left_to_right_log_probs(engine, Texts.of(batch, [factorization] * len(part)))
        found |= dict(zip(part, sums.tolist(), strict=True))
        if on_batch is not None:
            on_batch()
    return [found[number] for number in range(len(texts))]


def left_to_right_log_probs(engine: Engine, texts: Texts, given: GivenCache | None = None) -> Array:
    """Return the exact log-probability of what is generated of complete texts, from left to right; (batch,) in nats."""
    info, batch = engine.info, texts.batch
    rounds = np.zeros_like(batch.token_ids)
    layout = lay_out_for(info, texts.generations(rounds, np.ones(len(batch), dtype=bool)))
    slots = layout.slots
    # a slot asks for the token that it stands before, or for end-of-slot at the end of its span
    at = (slots.rows, slots.numbers)
    wanted = np.where(texts.generated[at], batch.token_ids[at], info.specials.end_of_slot_id)
    answer = ask_rows(engine, layout.rows, Asked(slots.left, slots.right, wanted=wanted, keep=False), given)
    assert answer.wanted is not None
    return np.bincount(slots.rows, answer.wanted, len(batch))


def _one(engine: Engine, text: Sequence[Sequence[int]], factorization: Factorization) -> Texts:
    return Texts.of(CanvasBatch.from_segments(engine.info.specials, [text]), [factorization])


def _bounds(score: _Scorer, text: Texts, prior: OrderPrior, orders: int, seed: int) -> Bounds:
    generator = np.random.default_rng(seed % 2**63)
    prior = prior.for_texts(np.repeat(text.batch.token_ids, orders, 0))
    present = np.repeat(text.present, orders, 0)
    kept = present & ~np.repeat(text.generated, orders, 0)
    log_order = np.zeros(orders)
    covered = True
    steps = []  # the kept sets on the way, and the tokens that come next
    each = np.arange(orders)
    for _ in range(int(text.lengths[0])):
        weights = checked_weights(prior, kept, present)
        covered = covered and bool((kept | ~present | (weights > _NEVER)).all())
        drawn = draw_by_row(weights, generator)
        log_order += np.log(weights[each, drawn])
        steps.append((kept.copy(), drawn))
        kept[each, drawn] = True
    steps.append((kept, np.full(orders, _STOP)))
    sets, source = np.unique(np.concatenate([before for before, _ in steps]), axis=0, return_inverse=True)
    log_probs = score(text, sets, source.ravel(), np.concatenate([token for _, token in steps]))
    return _summarise(log_probs.reshape(-1, orders).sum(0), log_order, covered=covered)


def _summarise(log_actions: Array, log_order: Array, *, covered: bool) -> Bounds:
    count = len(log_actions)
    log_weights = log_actions - log_order
    estimate = float(np.logaddexp.reduce(log_weights)) - math.log(count)
    weights = np.exp(log_weights - estimate)
    error = float(weights.std(ddof=1) / math.sqrt(count)) if covered and count > 1 else None
    return Bounds(float(log_actions.mean()), float(log_weights.mean()), estimate, error, count)


def _exact(score: _Scorer, text: Texts) -> float:
    places = np.flatnonzero(text.generated[0])
    length = len(places)
    sets = np.arange(2**length)
    has = (sets[:, None] >> np.arange(length)) & 1 == 1  # (sets, tokens)
    kept = np.repeat(text.present & ~text.generated, len(sets), 0)
    kept[:, places] = has
    # every action out of every set: (set, token not in it), and stopping from the full set
    source, added = (~has).nonzero()
    token = np.concatenate([places[added], [_STOP]])
    log_probs = score(text, kept, np.concatenate([source, sets[-1:]]), token)
    reached = np.full(len(sets), -np.inf)
    reached[0] = 0.0
    target = source | (1 << added)
    size = has.sum(1)
    for step in range(length):  # sets of one size lead to those of the next
        moves = np.flatnonzero(size[source] == step)
        arriving = reached[source[moves]] + log_probs[moves]
        reached = np.logaddexp(reached, row_logsumexp(arriving, target[moves], len(sets)))
    return float(reached[-1] + log_probs[-1])


@dataclass(frozen=True)
class _Scorer:
    """Log-probabilities of actions, canvases of like length together."""

    engine: Engine
    batch_size: int
    on_batch: Callable[[], object] | None

    def __call__(self, text: Texts, sets: Booleans, source: Integers, token: Integers) -> Array:
        """Return (actions,) log p of inserting tokens of one text into the canvases of kept sets, or of stopping.

        `sets` is (sets, tokens) bool, `source` (actions,) the set that each action starts from, `token` (actions,) the
        index in the text of the token that it inserts, or `_STOP`.
        """
        out = np.empty(len(token))
        most = max(1, min(self.batch_size, _MAX_TOKENS // text.batch.token_ids.shape[1]))
        by_size = sets.sum(1).argsort(kind="stable")
        for start in range(0, len(by_size), most):
            some = by_size[start : start + most]
            place = np.full(len(sets), -1)
            place[some] = np.arange(len(some))
            mine = np.flatnonzero(place[source] >= 0)
            out[mine] = self._batch(text, sets[some], place[source[mine]], token[mine])
            if self.on_batch is not None:
                self.on_batch()
        return out

    def _batch(self, text: Texts, sets: Booleans, source: Integers, token: Integers) -> Array:
        canvases, slot_of = canvases_of(text.select(np.zeros(len(sets), dtype=np.int64)), sets)
        found = ask_canvases(self.engine, canvases, full=True)
        answer = found.answer
        assert answer.content is not None
        log_location, log_stop = log_locations(found.rows, answer.location, answer.stop, len(canvases))
        if log_stop is None:
            log_stop = row_logsumexp(answer.end + log_location, found.rows, len(canvases))
        number = np.zeros(canvases.open_slots.shape, dtype=np.int64)  # of each open slot among the scored
        number[found.rows, found.slots] = np.arange(len(found.rows))
        inserted = np.maximum(token, 0)
        slot = number[source, slot_of[source, inserted]]
        log_insert = answer.content[slot, text.batch.token_ids[0, inserted]] + log_location[slot]
        return np.where(token == _STOP, log_stop[source], log_insert)
