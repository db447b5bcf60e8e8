"""Alternatives to an inserted token: ask the model about the canvas of a trace up to a round again.

To pick one, send a new generating request whose field `begun` holds the rounds up to there and the picked insertion.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kermit.canvas import Canvas, CanvasBatch
from kermit.decoding import DecodingSettings, Strategy, Trace, check_lengths, strategies_of
from kermit.decoding.asking import ask_canvases
from kermit.decoding.strategies import check_strategy
from kermit.errors import DecodingError
from kermit.pipeline import Kermit
from kermit.serving.answers import Alternative, Alternatives
from kermit.serving.schemas import AlternativesRequest, Request, rounds_of


def alternatives(kermit: Kermit, request: Request) -> Alternatives:
    """List the most likely tokens of a slot."""
    assert isinstance(request, AlternativesRequest)
    check_ids(kermit, [token_id for side in request.start for token_id in side])
    check_ids(kermit, [decided.token_id for decisions in request.rounds for decided in decisions])
    start = Canvas(kermit.specials, tuple(map(tuple, request.start)), frozenset(request.open_slots))
    trace = Trace(start, rounds_of(request.rounds))
    canvas = trace.canvases()[-1]
    if request.slot not in canvas.open_slots:
        raise DecodingError(f"slot {request.slot} is not open; the open slots are {sorted(canvas.open_slots)}")
    check_lengths(kermit.info, [canvas])
    strategy = request.strategy or strategies_of(kermit.info)[0]
    check_strategy(kermit.info, DecodingSettings(strategy=strategy))
    tokens = trace.tokens()
    frame = (kermit.specials.cls_id, kermit.specials.sep_id)
    inserted = [
        [token.round > 0 for token in tokens if token.segment == segment and token.token_id not in frame]
        for segment in range(len(canvas.segments))
    ]
    batch = CanvasBatch.from_canvases([canvas], inserted=[inserted])
    asked = np.zeros_like(batch.open_slots)
    asked[0, request.slot] = True
    top = min(request.count, kermit.info.vocab_size - 1)
    left_to_right = strategy is Strategy.LEFT_TO_RIGHT
    answer = ask_canvases(kermit.engine, batch, asked=asked, left_to_right=left_to_right, top=top).answer
    readable = kermit.readable(trace)
    assert readable is not None
    return Alternatives(
        results=[
            Alternative(token_id=token_id, text=readable.text(token_id), log_prob=round(log_prob, 4))
            for token_id, log_prob in zip(answer.tokens[0].tolist(), answer.log_probs[0].tolist(), strict=True)
            if log_prob > -np.inf
        ],
        end_log_prob=round(max(float(answer.end[0]), -1e6), 4),
    )


def check_ids(kermit: Kermit, token_ids: Sequence[int]) -> None:
    """Raise if a token is not in the model's vocabulary."""
    size = kermit.info.vocab_size
    if unknown := [token_id for token_id in token_ids if token_id >= size]:
        raise DecodingError(f"token {unknown[0]} is unknown; the vocabulary ends at {size - 1}")
