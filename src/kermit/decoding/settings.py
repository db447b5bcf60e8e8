"""How to decode: the strategy, the choice of tokens, the limits and what may be inserted where."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Integral

from kermit.canvas.arrays import Booleans, Integers
from kermit.errors import DecodingError, member_of

MAX_TOKENS = 512
"""Default limit on the tokens inserted into a text."""

MAX_REPEATS = 3
"""Default limit on repeats of one token in a row, for translations."""

LENGTH_REWARD = 0.5
"""Default for translations: because mean log-probabilities favour short texts."""


EARLY_FINISH = 0.6
"""Default probability at which parallel decoding ends a text without a round that finds nothing more to insert."""


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number, of Python or NumPy."""
    return isinstance(value, Integral)


class Strategy(StrEnum):
    """One insertion per round, one at every unfinished slot per round, or token after token from left to right."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    LEFT_TO_RIGHT = "left_to_right"


class Ranking(StrEnum):
    """What candidates are ranked by; see `kermit.decoding.candidates`.

    The log-probability of the decisions as they were made; that of the tokens and ends of the complete text, asked for
    again; the same plus that of the given side given the text; the log-probability of what was inserted from left to
    right; or that of the whole text.
    """

    LIKELIHOOD = "likelihood"
    AGAIN = "again"
    BOTH_WAYS = "both_ways"
    LEFT_TO_RIGHT = "left_to_right"
    WHOLE_TEXT = "whole_text"

    @property
    def passes(self) -> int:
        """Number of forward passes: two for the tokens of a side and one for the ends; one from left to right."""
        passes = {Ranking.LIKELIHOOD: 0, Ranking.AGAIN: 3, Ranking.BOTH_WAYS: 5}
        return passes.get(self, 1)

    @property
    def is_left_to_right(self) -> bool:
        """Whether the model must have been trained from left to right."""
        return self in (Ranking.LEFT_TO_RIGHT, Ranking.WHOLE_TEXT)


class Finish(StrEnum):
    """Why a decode ended."""

    FINISHED = "finished"
    MAX_ROUNDS = "max_rounds"
    MAX_TOKENS = "max_tokens"
    REPETITION = "repetition"
    ABANDONED = "abandoned"


@dataclass(frozen=True)
class Sampling:
    """Draw tokens instead of taking the best.

    Args:
        temperature: below 1 sharpens, above 1 flattens.
        top_k: draw from the k best only, end-of-slot among them.
        top_p: draw from the fewest best that together reach this probability.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise DecodingError(
                f"temperature must be a number above 0, not {self.temperature}; leave sampling out for the best"
            )
        if self.top_k is not None and self.top_k < 1:
            raise DecodingError(f"top_k must be at least 1, not {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise DecodingError(f"top_p must be above 0 and at most 1, not {self.top_p}")


DEFAULT_SAMPLING = Sampling(temperature=0.7, top_p=0.95)
"""How texts are drawn if nothing else is requested; temperature 1 is the model's own distribution.

Trained with label smoothing, a model gives every token of the vocabulary some probability; a long text is likely to
draw such a token somewhere, often one of the other language.
"""


@dataclass(frozen=True, eq=False)
class Constraints:
    """What may be inserted where; a blank is a slot that is open at the start, with everything inserted there.

    Args:
        never: tokens that are never inserted.
        min_tokens_per_blank: fewest tokens to insert into each blank; None is 1 for `Kermit.infill`, 0 elsewhere.
        max_tokens_per_blank: most tokens to insert into each blank.
        continues_word: (vocab,) bool, the tokens that continue the word on their left. Nothing is then glued to the
            end of a given word, unless the blank touches it.
        digit_of: (vocab,) the digit that a token writes, -1 for other tokens. From left to right, a number that begins
            as one of the given text is then finished as one of them.
    """

    never: frozenset[int] = field(default_factory=frozenset)
    min_tokens_per_blank: int | None = None
    max_tokens_per_blank: int | None = None
    continues_word: Booleans | None = None
    digit_of: Integers | None = None

    def __post_init__(self) -> None:
        for token_id in self.never:
            if not is_whole(token_id) or token_id < 0:
                raise DecodingError(f"never must hold token ids, whole numbers from 0 on, not {token_id!r}")
        least = self.min_tokens_per_blank or 0
        if least < 0:
            raise DecodingError(f"min_tokens_per_blank must be at least 0, not {least}")
        if self.max_tokens_per_blank is not None and self.max_tokens_per_blank < max(1, least):
            raise DecodingError(
                f"max_tokens_per_blank must be at least 1 and no less than min_tokens_per_blank ({least}), "
                f"not {self.max_tokens_per_blank}"
            )


@dataclass(frozen=True, eq=False)
class DecodingSettings:
    """How to decode.

    Args:
        strategy: serial, parallel or left to right, which the model must have been trained for; None for the model's
            own.
        sampling: how to draw tokens; None takes the best.
        termination_penalty: taken off the log-probability of end-of-slot, or of stopping; None for the model's own
            where a whole side is translated, and for none elsewhere.
        early_finish: in parallel, end a text without asking again when a round's tokens are right and complete their
            slots with at least this probability together; 1 always asks again. None for `EARLY_FINISH` if the model
            predicts completion.
        max_rounds: end after this many forward passes.
        max_tokens: insert at most this many tokens per text; None for `MAX_TOKENS`, and for at most 2 n + 10 where a
            text of n tokens is translated.
        max_repeats: insert no token more often than this in a row, unless the given text does; None for `MAX_REPEATS`
            where a whole side is translated, and for no limit elsewhere.
        constraints: what may be inserted where.
        beams: from left to right, number of texts that are continued together; see `kermit.decoding.beams`.
        candidates: number of texts to decode per canvas, of which the best is kept; see
            `kermit.decoding.candidates`.
        ranking: what candidates are ranked by; None for `again`.
        length_reward: added to a candidate's rank, times the logarithm of its inserted tokens; None for
            `LENGTH_REWARD` where a whole side is translated, and for none elsewhere.
    """

    strategy: Strategy | None = None
    sampling: Sampling | None = None
    termination_penalty: float | None = None
    early_finish: float | None = None
    max_rounds: int | None = None
    max_tokens: int | None = None
    max_repeats: int | None = None
    constraints: Constraints = field(default_factory=Constraints)
    beams: int = 1
    candidates: int = 1
    ranking: Ranking | None = None
    length_reward: float | None = None

    def __post_init__(self) -> None:
        for name, kind in (("strategy", Strategy), ("ranking", Ranking)):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, member_of(kind, value, name, DecodingError))
        for name in ("termination_penalty", "length_reward"):
            if (value := getattr(self, name)) is not None and not math.isfinite(value):
                raise DecodingError(f"{name} must be a finite number, not {value}")
        for name in ("max_rounds", "max_tokens", "max_repeats", "beams", "candidates"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise DecodingError(f"{name} must be at least 1, not {value}")
        if self.early_finish is not None and not 0 < self.early_finish <= 1:
            raise DecodingError(f"early_finish must be above 0 and at most 1, not {self.early_finish}")
        if self.beams > 1 and (self.candidates > 1 or self.sampling is not None):
            raise DecodingError("beams cannot be combined with candidates or sampling; leave one of them out")
        for name in ("ranking", "length_reward"):
            if self.candidates == 1 and getattr(self, name) is not None:
                raise DecodingError(
                    f"{name} needs more than one candidate; set candidates above 1, or leave {name} out"
                )

    @property
    def ranked_by(self) -> Ranking | None:
        """What candidates are ranked by; None if there is only one."""
        return (self.ranking or Ranking.AGAIN) if self.candidates > 1 else None

    @property
    def draws(self) -> bool:
        """Whether the result depends on the seed."""
        return self.sampling is not None or self.candidates > 1
