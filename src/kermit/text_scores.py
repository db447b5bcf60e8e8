"""Log-likelihoods of texts, by any method of `kermit.decoding.likelihood`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

from kermit.canvas import Factorization, Segment
from kermit.decoding.likelihood import bounds, exact_log_likelihood, left_to_right_log_likelihood
from kermit.engines.engine import Engine
from kermit.errors import DataError, DecodingError, check_known, member_of
from kermit.objectives.orders import OrderPrior
from kermit.results import Score, ScoreMethod


def scored_way(alone: Segment | None, factorization: Factorization | str | None) -> Factorization:
    """Resolve the factorization to score; `alone` is the only side that was given, None for pairs."""
    given = {None: Factorization.JOINT, Segment.X: Factorization.X, Segment.Y: Factorization.Y}[alone]
    if factorization is None:
        return given
    way = member_of(Factorization, factorization, "factorization", DecodingError)
    if alone is not None and way not in (given, Factorization.JOINT):
        other = "second" if alone is Segment.X else "first"
        raise DataError(
            f"the factorization {way.value} needs the {other} side of every text, which is missing; give it, or score"
            f" with {given.value}"
        )
    return way


def scores(
    engine: Engine,
    texts: Sequence[Sequence[Sequence[int]]],
    way: Factorization,
    *,
    method: ScoreMethod = "importance",
    prior: OrderPrior | None = None,
    orders: int = 16,
    seed: int = 0,
    on_batch: Callable[[], object] | None = None,
    batch_size: int = 64,
) -> list[Score]:
    """Return the log-likelihood of texts, one or two segments of content tokens each; see `ScoreOptions`."""
    check_known("method", method, get_args(ScoreMethod))
    if method == "exact":
        return [Score(value, method) for value in exact_log_likelihood(engine, texts, way, on_batch=on_batch)]
    if method == "left_to_right":
        found = left_to_right_log_likelihood(engine, texts, way, batch_size=batch_size, on_batch=on_batch)
        return [Score(value, method) for value in found]
    estimates = bounds(engine, texts, way, prior=prior, orders=orders, seed=seed, on_batch=on_batch)
    match method:
        case "importance":
            return [Score(one.importance_weighted, method, one.standard_error) for one in estimates]
        case "bound":
            return [Score(one.with_entropy, method) for one in estimates]
        case "paper_bound":
            return [Score(one.paper, method) for one in estimates]
