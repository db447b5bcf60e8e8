"""How well two sides of a pair agree: what candidates are ranked by, where a model knows both directions.

How likely a text was as it came about says little of a translation that leaves something out, or of what it says twice.
Once it is complete, the model can be asked for each of its tokens given the source, and for each of the source's given
it. Every other token of a side is missing at once, so four forward passes ask for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kermit.canvas import Canvas, Factorization, Segment
from kermit.canvas_batch import CanvasBatch
from kermit.errors import DecodingError
from kermit.objective import Texts, canvases_of
from kermit.slots import InsertionModel


def check_given(start: Canvas) -> None:
    """Raise where no side is given whole beside one that is to be written."""
    sides = [Segment(side) for side in range(len(start.segments))]
    given = [side for side in sides if start.segments[side] and start.open_slots.isdisjoint(start.slots(side))]
    if len(sides) < 2 or len(given) != 1:
        raise DecodingError(
            "both_ways ranks candidates by the side that was given, and here none is given whole beside one to write;"
            " leave it out"
        )


@torch.inference_mode()
def agreement(model: InsertionModel, pairs: Sequence[Canvas], batch_size: int = 64) -> list[float]:
    """The mean log-probability of a token of X given Y, plus that of a token of Y given X; -inf where a side is empty.

    Args:
        model: what scores the slots.
        pairs: complete pairs.
        batch_size: how many go through the model together.
    """
    found: dict[int, float] = {}
    by_length = sorted(range(len(pairs)), key=lambda number: len(pairs[number]))
    for start in range(0, len(by_length), batch_size):
        part = by_length[start : start + batch_size]
        batch = CanvasBatch.from_segments(model.specials, [pairs[number].segments for number in part])
        sums = sum(_mean_log_prob(model, batch.to(model.device), way) for way in _WAYS)
        assert isinstance(sums, Tensor)
        found |= dict(zip(part, sums.tolist(), strict=True))
    return [found[number] for number in range(len(pairs))]


_WAYS = (Factorization.X_GIVEN_Y, Factorization.Y_GIVEN_X)


def _mean_log_prob(model: InsertionModel, batch: CanvasBatch, way: Factorization) -> Tensor:
    """(batch,) the mean over the generated tokens."""
    texts = Texts.of(batch, [way] * len(batch))
    sums = _log_prob_of_half(model, texts, 0) + _log_prob_of_half(model, texts, 1)
    return torch.where(texts.lengths > 0, sums / texts.lengths, -math.inf)


def _log_prob_of_half(model: InsertionModel, texts: Texts, parity: int) -> Tensor:
    """(batch,) the sum over every other generated token, with those missing at once."""
    missing = texts.generated & (texts.generated.cumsum(1) % 2 == parity)
    canvases, slot = canvases_of(texts, texts.present & ~missing)
    scores = model.score_slots(canvases)
    numbers = torch.arange(len(scores.rows), device=missing.device)
    number = torch.zeros_like(canvases.token_ids).index_put((scores.rows, scores.slots), numbers)
    rows, tokens = missing.nonzero(as_tuple=True)
    content = scores.content[number[rows, slot[rows, tokens]]]
    each = content.gather(1, texts.batch.token_ids[rows, tokens][:, None])[:, 0] - content.logsumexp(1)
    return each.new_zeros(len(texts.batch)).index_add(0, rows, each)
