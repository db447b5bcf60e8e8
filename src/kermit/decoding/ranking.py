"""What candidates are ranked by, once they are complete.

The log-probability of the decisions as they were made says little about a text, because most were made on a nearly
empty canvas. Once the text is complete, the model can be asked again for each inserted token, with its neighbours in
place, and whether anything is still missing (`again`); and, if one side was given whole, for each token of that side
given the other (`both_ways`), which finds what a translation leaves out. Every other token is removed at once, so two
forward passes cover a side.

A model that also generates from left to right scores a text exactly in one pass: the inserted tokens alone
(`left_to_right`), or every side that has blanks as if all of it had been generated (`whole_text`). In the latter, the
given words after a blank tell which fill they follow. Equal texts are ranked once, and cached given parts are reused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from kermit.canvas import Canvas, CanvasBatch, Segment
from kermit.canvas.arrays import Array, Integers
from kermit.decoding.asking import GivenCache, ask_canvases
from kermit.decoding.choosing import log_locations
from kermit.decoding.likelihood import left_to_right_log_probs
from kermit.decoding.rounds import Decoded
from kermit.decoding.settings import Finish, Ranking
from kermit.engines.engine import Engine
from kermit.errors import DecodingError
from kermit.objectives.training_canvases import Texts, canvases_of

GivenOf = Callable[[Integers], GivenCache | None]
"""Returns the given parts of texts by their numbers, if they have been read already."""

_APART = 2
"""Distance of tokens that are missing at once."""


def check_given(start: Canvas) -> None:
    """Raise unless one side is given whole and the other is generated."""
    if len(start.segments) < 2 or len(start.given_whole) != 1:
        raise DecodingError(
            "both_ways ranking needs one side given whole and the other generated; use the ranking again"
        )


def ranks(
    engine: Engine,
    candidates: Sequence[Decoded],
    ranking: Ranking,
    batch_size: int = 64,
    length_reward: float = 0.0,
    given: GivenOf | None = None,
) -> list[tuple[bool, float]]:
    """Return what candidates are compared by: whether one is finished, then a mean log-probability of a token.

    For `WHOLE_TEXT` it is the log-probability of the text, because all candidates share the given words. To either,
    `length_reward` times the logarithm of the number of inserted tokens is added.
    """
    if ranking is Ranking.LIKELIHOOD:
        # that nothing more belongs there counts as one more token
        means = [candidate.log_prob / (candidate.tokens + 1) for candidate in candidates]
    else:
        first: dict[object, int] = {}
        same = [first.setdefault((one.canvas, one.inserted), number) for number, one in enumerate(candidates)]
        distinct = sorted(first.values())
        found = _means(
            engine,
            [candidates[number] for number in distinct],
            ranking,
            batch_size,
            None if given is None else lambda numbers: given(np.array(distinct)[numbers]),
        )
        mean_of = dict(zip(distinct, found, strict=True))
        means = [mean_of[number] for number in same]
    return [
        (candidate.finish is Finish.FINISHED, mean + length_reward * math.log(max(1, candidate.tokens)))
        for candidate, mean in zip(candidates, means, strict=True)
    ]


def _means(
    engine: Engine, texts: Sequence[Decoded], ranking: Ranking, batch_size: int, given: GivenOf | None
) -> list[float]:
    if ranking is Ranking.LEFT_TO_RIGHT:
        return from_left_to_right(engine, texts, batch_size, given)
    if ranking is Ranking.WHOLE_TEXT:
        return of_whole_text(engine, texts, batch_size)
    means = again(engine, texts, batch_size, given)
    if ranking is Ranking.BOTH_WAYS:
        back = asked_again(engine, texts, inserted=False, batch_size=batch_size)
        return [sum(parts) for parts in zip(means, back, strict=True)]
    return means


def again(engine: Engine, texts: Sequence[Decoded], batch_size: int = 64, given: GivenOf | None = None) -> list[float]:
    """Return the mean log-probability of an inserted token, plus that of nothing being missing from an open slot.

    Where nothing was inserted, only the second; -inf where nothing is there at all.
    """
    tokens = asked_again(engine, texts, batch_size=batch_size, given=given)
    ends = nothing_missing(engine, texts, batch_size, given)
    return [
        (0.0 if math.isinf(token) and _holds_something(text) else token) + end
        for text, token, end in zip(texts, tokens, ends, strict=True)
    ]


def from_left_to_right(
    engine: Engine, texts: Sequence[Decoded], batch_size: int = 64, given: GivenOf | None = None
) -> list[float]:
    """Return the mean log-probability of the inserted tokens and of the end of each span, from left to right."""

    def means(part: Sequence[Decoded], given: GivenCache | None) -> Array:
        complete = _complete(part, inserted=True)
        return left_to_right_log_probs(engine, complete, given) / (complete.lengths + 1)

    return _by_length(texts, means, batch_size, given)


def of_whole_text(engine: Engine, texts: Sequence[Decoded], batch_size: int = 64) -> list[float]:
    """Return the log-probability of every side that was open, from left to right, given the sides that were not."""

    def sums(part: Sequence[Decoded], given: GivenCache | None) -> Array:
        del given  # these sides were read as given text
        batch = CanvasBatch.from_canvases([text.canvas for text in part])
        sides = [[side < len(one.canvas.segments) and one.canvas.is_open(side) for side in Segment] for one in part]
        return left_to_right_log_probs(engine, Texts.of_sides(batch, np.array(sides)))

    return _by_length(texts, sums, batch_size, None)


def _holds_something(text: Decoded) -> bool:
    """Return whether every side that was open holds a token."""
    canvas = text.canvas
    return all(tokens or not canvas.is_open(Segment(side)) for side, tokens in enumerate(canvas.segments))


def nothing_missing(
    engine: Engine, texts: Sequence[Decoded], batch_size: int = 64, given: GivenOf | None = None
) -> list[float]:
    """Return the mean log-probability of end-of-slot over the open slots, or that of stopping; 0 without open slots."""

    def means(part: Sequence[Decoded], given: GivenCache | None) -> Array:
        flags = [text.inserted for text in part]
        canvases = CanvasBatch.from_canvases([text.canvas for text in part], inserted=flags)
        found = ask_canvases(engine, canvases, given=given)
        answer = found.answer
        if answer.stop is not None:
            _, stopping = log_locations(found.rows, answer.location, answer.stop, len(part))
            assert stopping is not None
            return np.where(canvases.open_slots.any(1), stopping, 0)
        sums = np.bincount(found.rows, answer.end, len(part))
        return np.asarray(sums / np.maximum(canvases.open_slots.sum(1), 1))

    return _by_length(texts, means, batch_size, given)


def asked_again(
    engine: Engine,
    texts: Sequence[Decoded],
    *,
    inserted: bool = True,
    batch_size: int = 64,
    given: GivenOf | None = None,
) -> list[float]:
    """Return the mean log-probability of the inserted tokens, or of the given side's, each with its neighbours there.

    It is -inf for a text without such tokens.
    """

    def means(part: Sequence[Decoded], given: GivenCache | None) -> Array:
        complete = _complete(part, inserted)
        sums = sum(_log_prob_of_part(engine, complete, number, given) for number in range(_APART))
        return np.where(complete.lengths > 0, sums / np.maximum(complete.lengths, 1), -math.inf)

    return _by_length(texts, means, batch_size, given)


def _by_length(
    texts: Sequence[Decoded],
    means: Callable[[Sequence[Decoded], GivenCache | None], Array],
    batch_size: int,
    given: GivenOf | None,
) -> list[float]:
    """Return one number per text, computed for texts of about the same length together."""
    found: dict[int, float] = {}
    by_length = sorted(range(len(texts)), key=lambda number: len(texts[number].canvas))
    for start in range(0, len(by_length), batch_size):
        part = by_length[start : start + batch_size]
        cached = None if given is None else given(np.array(part))
        found |= dict(zip(part, means([texts[number] for number in part], cached).tolist(), strict=True))
    return [found[number] for number in range(len(texts))]


def _complete(texts: Sequence[Decoded], inserted: bool) -> Texts:
    """Return complete texts that generate the inserted tokens, or those of sides that were given whole."""
    flags = [text.inserted for text in texts]
    batch = CanvasBatch.from_canvases([text.canvas for text in texts], inserted=flags)
    generated = np.zeros_like(batch.valid)
    open_segments = np.zeros((len(batch), len(Segment)), dtype=bool)
    for row, text in enumerate(texts):
        for segment, new in enumerate(text.inserted):
            whole = not text.canvas.is_open(Segment(segment))
            generated[row, text.canvas.slots(Segment(segment))[:-1]] = new if inserted else whole
            open_segments[row, segment] = whole != inserted
    return Texts(batch, batch.valid, generated, open_segments, batch.marked if inserted else None)


def _log_prob_of_part(engine: Engine, texts: Texts, part: int, given: GivenCache | None) -> Array:
    """Return (batch,), the sum over the generated tokens of one part, which are missing at once."""
    missing = texts.generated & (texts.generated.cumsum(1) % _APART == part)
    rows, tokens = missing.nonzero()
    if not len(rows):
        return np.zeros(len(missing))
    canvases, slot = canvases_of(texts, texts.present & ~missing)
    slots = slot[rows, tokens]
    wanted = np.full(canvases.open_slots.shape, -1)
    wanted[rows, slots] = texts.batch.token_ids[rows, tokens]  # a slot lacks one token at most
    found = ask_canvases(engine, canvases, asked=wanted >= 0, wanted=wanted, given=given)
    assert found.answer.wanted is not None
    return np.bincount(found.rows, found.answer.wanted, len(missing))
