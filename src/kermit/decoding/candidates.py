"""Decode several texts per canvas and keep the best: the counterpart of beam search.

Parallel decoding decides each insertion of a round independently, so the best tokens need not make the best text.
Sampled candidates differ where the model is uncertain, and the model itself ranks them (`kermit.decoding.ranking`). All
candidates of a batch are decoded together, so they take as many rounds as the slowest one; they share the given part
and the first round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kermit.canvas import Canvas
from kermit.decoding.ranking import check_given, ranks
from kermit.decoding.rounds import Decoded, Rounds
from kermit.decoding.settings import DecodingSettings, Ranking, Sampling
from kermit.decoding.trace import TracedRounds
from kermit.engines.engine import Engine

CANDIDATE_TEMPERATURE, CANDIDATE_TOP_K = 0.5, 32
"""Default sampling of candidates; the first is then greedy."""

_SEED_STEP = 0x9E3779B97F4A7C15  # far apart, because neighbouring texts often have consecutive seeds


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
    rank = dict.fromkeys(range(len(found)), (True, 0.0)) | dict(
        zip(
            open_rows.tolist(),
            ranks(
                engine,
                [found[row] for row in open_rows],
                settings.ranking or Ranking.AGAIN,
                length_reward=settings.length_reward or 0.0,
                given=lambda numbers: rounds.given(open_rows[numbers] // count),
            ),
            strict=True,
        )
    )
    kept = []
    for first in range(0, len(found), count):
        best = max(range(first, first + count), key=lambda row: rank[row])
        kept.append(replace(found[best], rounds=max(one.rounds for one in found[first : first + count])))
    return kept
