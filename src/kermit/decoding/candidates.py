"""Several texts for each canvas, of which the best is kept: what a beam search is to a left-to-right model.

Parallel decoding decides each of a round's insertions by itself, so the best tokens need not make the best text. Texts
that are drawn beside it differ where the model is in doubt, and the model itself tells which to trust
(`kermit.decoding.ranking`). All candidates of a canvas can be decoded side by side, so it takes no more rounds than the
slowest of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kermit.decoding.ranking import check_given, ranks
from kermit.decoding.settings import DecodingSettings, Ranking, Sampling

if TYPE_CHECKING:
    from kermit.decoding.rounds import Decoded
    from kermit.decoding.trace import Trace
    from kermit.slots import InsertionModel

CANDIDATE_TEMPERATURE = 0.5
"""At which candidates are drawn unless told otherwise; the first one then has the best tokens."""

_SEED_STEP = 0x9E3779B97F4A7C15  # far apart, for the seeds of neighbouring texts often follow one another

Decode = Callable[[Sequence["Trace"], DecodingSettings, Sequence[int], Sequence[int]], "list[Decoded]"]
"""Decodes one text per canvas, given the seeds and the most tokens to insert."""


def decode_candidates(
    model: InsertionModel,
    decode: Decode,
    begun: Sequence[Trace],
    settings: DecodingSettings,
    seeds: Sequence[int],
    limits: Sequence[int],
    batch_size: int = 64,
) -> list[Decoded]:
    """Decode several texts a canvas and keep the best of each.

    Args:
        model: what scores the slots.
        decode: what decodes one text a canvas.
        begun: the canvases at the start, with the rounds that are already decided.
        settings: how to decode, and how many candidates.
        seeds: one per canvas.
        limits: the most tokens to insert into each canvas.
        batch_size: how many candidates to rank together.

    Returns:
        One result a canvas, in order. Its rounds are those of the candidate that took the most.

    Raises:
        DecodingError: they are to be ranked both ways, and nothing is given whole.
    """
    if settings.ranking is Ranking.BOTH_WAYS:
        for trace in begun:
            if trace.start.open_slots:
                check_given(trace.start)
    alone = replace(settings, candidates=1, ranking=None, length_reward=None)
    drawn = replace(alone, sampling=settings.sampling or Sampling(CANDIDATE_TEMPERATURE))
    found = [[first] for first in decode(begun, alone, seeds, limits)]
    numbers = [number for number in range(len(begun)) for _ in range(1, settings.candidates)]
    others = [seed + candidate * _SEED_STEP for seed in seeds for candidate in range(1, settings.candidates)]
    starts, most = [begun[number] for number in numbers], [limits[number] for number in numbers]
    for number, other in zip(numbers, decode(starts, drawn, others, most), strict=True):
        found[number].append(other)
    every = [candidate for candidates in found for candidate in candidates]
    ranking = settings.ranking or Ranking.AGAIN
    rank = iter(ranks(model, every, ranking, batch_size, length_reward=settings.length_reward or 0.0))
    kept = [max(candidates, key=lambda _: next(rank)) for candidates in found]
    rounds = [max(candidate.rounds for candidate in candidates) for candidates in found]
    return [replace(one, rounds=most) for one, most in zip(kept, rounds, strict=True)]
