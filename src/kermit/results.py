"""Results of the methods of `kermit.pipeline.Kermit`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kermit.decoding import Finish, Trace


@dataclass(frozen=True)
class Generation:
    """The result for one text or pair.

    Args:
        x: the text of the first side.
        y: the text of the second side, if any.
        rounds: number of forward passes.
        tokens: number of tokens inserted.
        finish: why decoding ended.
        log_prob: the sum of the log-probabilities of all decisions.
        trace: every round's insertions, if requested; None for a text of several sentences.
        sentences: the results of the sentences of a translated text that has more than one.
    """

    x: str
    y: str | None
    rounds: int
    tokens: int
    finish: Finish
    log_prob: float
    trace: Trace | None = None
    sentences: tuple[Generation, ...] = ()


@dataclass(frozen=True)
class Score:
    """The log-likelihood of a text, in nats.

    Args:
        log_prob: the log-likelihood, as the method gives it.
        method: ``exact``, ``importance``, ``bound`` (with the entropy of the order), ``paper_bound`` (without) or
            ``left_to_right``, exact under that order.
        standard_error: of an importance-weighted estimate; None for other methods, for a single order, and where the
            prior excludes some orders, which makes the estimate a lower bound.
    """

    log_prob: float
    method: str
    standard_error: float | None = None


ScoreMethod = Literal["exact", "importance", "bound", "paper_bound", "left_to_right"]
Pooling = Literal["mean", "first"]
