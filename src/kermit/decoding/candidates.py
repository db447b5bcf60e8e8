"""Decode several texts per canvas and keep the best: the counterpart of beam search.

Parallel decoding decides each insertion of a round independently, so the best tokens need not make the best text.
Sampled candidates differ where the model is uncertain, and the model itself ranks them. All candidates of a batch are
decoded together, so they take as many rounds as the slowest one; they share the given part and the first round.

The log-probability of the decisions as they were made says little about a text, because most were made on a nearly
empty canvas. Once the text is complete, the model can be asked again for each inserted token, with its neighbours in
place, and whether anything is still missing (`again`); and, if one side was given whole, for each token of that side
given the other (`both_ways`), which finds what a translation leaves out. Every other token is removed at once, so two
forward passes cover a side.

A model that also generates from left to right scores a text exactly in one pass: the inserted tokens alone
(`left_to_right`), or every side that has blanks as if all of it had been generated (`whole_text`). In the latter, the
given words after a blank tell which fill they follow, and the fill's own log-probability counts a little. Equal texts
are ranked once, and cached given parts are reused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from kermit.canvas import Canvas, CanvasBatch, Segment
from kermit.canvas.arrays import Array, Integers
from kermit.decoding.asking import GivenCache, ask_canvases, by_length
from kermit.decoding.choosing import log_locations
from kermit.decoding.likelihood import left_to_right_log_probs
from kermit.decoding.rounds import Decoded, Rounds
from kermit.decoding.settings import DecodingSettings, Finish, Ranking, Sampling
from kermit.decoding.trace import TracedRounds
from kermit.engines.engine import Engine
from kermit.errors import DecodingError
from kermit.objectives.training_canvases import Texts, canvases_of

CANDIDATE_TEMPERATURE, CANDIDATE_TOP_K = 0.5, 32
"""Default sampling of candidates; the first is then greedy."""

FILL_SHARE = 0.25
"""How much the log-probability of the insertions counts in `WHOLE_TEXT`, next to that of the text."""

_SEED_STEP = 0x9E3779B97F4A7C15  # far apart, because neighbouring texts often have consecutive seeds

_APART = 2
"""Distance of tokens that are missing at once."""


def decode_candidates(
    engine: Engine,
    canvases: Sequence[Canvas],
    seeds: Sequence[int],
    limits: Sequence[int],
    settings: DecodingSettings,
    *,
    trace: bool = False,
    begun: TracedRounds = (),
) -> list[Decoded]:
    """Decode several texts per canvas and keep the best of each; its rounds are those of the slowest candidate.

    `begun` are the rounds that are already decided, where there is a single canvas.
    """
    if settings.ranking is Ranking.BOTH_WAYS:
        for canvas in canvases:
            if canvas.open_slots:
                check_given(canvas)
    count = settings.candidates
    sampling = settings.sampling or Sampling(CANDIDATE_TEMPERATURE, top_k=CANDIDATE_TOP_K)
    drawn = None if settings.sampling else np.tile(np.arange(count) > 0, len(canvases))
    rounds = Rounds(
        engine,
        replace(settings, candidates=1, ranking=None, length_reward=None, sampling=sampling),
        canvases,
        [seed + candidate * _SEED_STEP for seed in seeds for candidate in range(count)],
        [limit for limit in limits for _ in range(count)],
        trace=trace,
        copies=count,
        drawn=drawn,
        begun=begun,
    )
    while len(rounds):
        rounds.round()
    found = [rounds.results[row] for row in range(len(canvases) * count)]
    open_rows = np.flatnonzero([len(canvases[row // count].open_slots) for row in range(len(found))])
    compared = ranks(
        engine,
        [found[row] for row in open_rows],
        settings.ranking or Ranking.AGAIN,
        length_reward=settings.length_reward or 0.0,
        given=lambda numbers: rounds.given(open_rows[numbers] // count),
    )
    rank = dict(zip(open_rows.tolist(), compared, strict=True))
    kept = []
    for first in range(0, len(found), count):
        best = max(range(first, first + count), key=lambda row: rank.get(row, (True, 0.0)))
        kept.append(replace(found[best], rounds=max(one.rounds for one in found[first : first + count])))
    return kept


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
    given: Callable[[Integers], GivenCache | None] | None = None,
) -> list[tuple[bool, float]]:
    """Return what candidates are compared by: whether one is finished, then a mean log-probability of a token.

    For `WHOLE_TEXT` it is the log-probability of the text, because all candidates share the given words, plus
    `FILL_SHARE` times that of what was inserted, which saw the words on both sides of a blank. To either,
    `length_reward` times the logarithm of the number of inserted tokens is added. `given` returns the given parts of
    candidates by their numbers, if they have been read already.
    """
    if ranking is Ranking.LIKELIHOOD:
        # that nothing more belongs there counts as one more token
        means = [candidate.log_prob / (candidate.tokens + 1) for candidate in candidates]
    else:
        first: dict[object, int] = {}
        same = [first.setdefault((one.canvas, one.inserted), number) for number, one in enumerate(candidates)]
        distinct, mean_of = np.array(sorted(first.values()), dtype=np.int64), dict[int, float]()
        for part in by_length([len(candidates[number].canvas) for number in distinct], batch_size):
            numbers = distinct[part]
            cache = None if given is None or ranking is Ranking.WHOLE_TEXT else given(numbers)
            found = _means(engine, [candidates[number] for number in numbers], ranking, cache)
            mean_of |= dict(zip(numbers.tolist(), found.tolist(), strict=True))
        means = [mean_of[number] for number in same]
        if ranking is Ranking.WHOLE_TEXT:
            means = [mean + FILL_SHARE * one.log_prob for mean, one in zip(means, candidates, strict=True)]
    return [
        (candidate.finish is Finish.FINISHED, mean + length_reward * math.log(max(1, candidate.tokens)))
        for candidate, mean in zip(candidates, means, strict=True)
    ]


def _means(engine: Engine, texts: Sequence[Decoded], ranking: Ranking, given: GivenCache | None) -> Array:
    """Return (texts,), what a ranking that asks the model compares."""
    match ranking:
        case Ranking.LEFT_TO_RIGHT:
            return from_left_to_right(engine, texts, given)
        case Ranking.WHOLE_TEXT:
            return of_whole_text(engine, texts)
        case Ranking.BOTH_WAYS:
            return again(engine, texts, given) + asked_again(engine, texts, inserted=False)
        case _:
            return again(engine, texts, given)


def again(engine: Engine, texts: Sequence[Decoded], given: GivenCache | None = None) -> Array:
    """Return the mean log-probability of an inserted token, plus that of nothing being missing from an open slot.

    Where nothing was inserted, only the second; -inf where nothing is there at all.
    """
    tokens = asked_again(engine, texts, given=given)
    filled = [_holds_something(text.canvas) for text in texts]
    return np.where(np.isinf(tokens) & filled, 0.0, tokens) + nothing_missing(engine, texts, given)


def _holds_something(canvas: Canvas) -> bool:
    """Return whether every side that was open holds a token."""
    return all(tokens or not canvas.is_open(Segment(side)) for side, tokens in enumerate(canvas.segments))


def from_left_to_right(engine: Engine, texts: Sequence[Decoded], given: GivenCache | None = None) -> Array:
    """Return the mean log-probability of the inserted tokens and of the end of each span, from left to right."""
    complete = _complete(texts, inserted=True)
    return left_to_right_log_probs(engine, complete, given) / (complete.lengths + 1)


def of_whole_text(engine: Engine, texts: Sequence[Decoded]) -> Array:
    """Return the log-probability of every side that was open, from left to right, given the sides that were not.

    Open sides were read as given text, so nothing that was cached can be used.
    """
    canvases = [text.canvas for text in texts]
    sides = [[side < len(one.segments) and one.is_open(side) for side in Segment] for one in canvases]
    return left_to_right_log_probs(engine, Texts.of_sides(CanvasBatch.from_canvases(canvases), np.array(sides)))


def nothing_missing(engine: Engine, texts: Sequence[Decoded], given: GivenCache | None = None) -> Array:
    """Return the mean log-probability of end-of-slot over the open slots, or that of stopping; 0 without open slots."""
    canvases = _canvases(texts)
    found = ask_canvases(engine, canvases, given=given)
    answer, asked = found.answer, canvases.open_slots.sum(1)
    if answer.stop is None:
        return np.asarray(np.bincount(found.rows, answer.end, len(texts)) / np.maximum(asked, 1))
    _, stopping = log_locations(found.rows, answer.location, answer.stop, len(texts))
    assert stopping is not None
    return np.where(asked > 0, stopping, 0)


def asked_again(
    engine: Engine, texts: Sequence[Decoded], *, inserted: bool = True, given: GivenCache | None = None
) -> Array:
    """Return the mean log-probability of the inserted tokens, or of the given side's, each with its neighbours there.

    It is -inf for a text without such tokens.
    """
    complete = _complete(texts, inserted)
    sums = sum(_log_prob_of_part(engine, complete, number, given) for number in range(_APART))
    return np.where(complete.lengths > 0, sums / np.maximum(complete.lengths, 1), -math.inf)


def _canvases(texts: Sequence[Decoded]) -> CanvasBatch:
    return CanvasBatch.from_canvases([text.canvas for text in texts], inserted=[text.inserted for text in texts])


def _complete(texts: Sequence[Decoded], inserted: bool) -> Texts:
    """Return complete texts that generate the inserted tokens, or those of sides that were given whole."""
    batch = _canvases(texts)
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
