"""Text embeddings: the trunk's hidden states of a complete canvas with no open slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

import numpy as np

from kermit.canvas import CanvasBatch
from kermit.canvas.arrays import Array, Floats
from kermit.decoding.asking import by_length, whole_rows
from kermit.engines.engine import Engine
from kermit.errors import check_known
from kermit.results import Pooling


def embed(
    engine: Engine,
    texts: Sequence[Sequence[Sequence[int]]],
    pooling: Pooling,
    *,
    batch_size: int = 64,
    on_progress: Callable[[int], object] | None = None,
) -> Floats:
    """Return the pooled hidden states, (texts, width), of one or two segments of content tokens per text."""
    check_known("pooling", pooling, get_args(Pooling))
    out = np.zeros((len(texts), engine.info.hidden_size), dtype=np.float32)
    for part in by_length([sum(map(len, text)) for text in texts], batch_size):
        batch = CanvasBatch.from_segments(engine.info.specials, [texts[number] for number in part])
        hidden = engine.hidden(whole_rows(engine.info, batch))
        out[part] = hidden[:, 0] if pooling == "first" else _mean(batch, hidden)
        if on_progress is not None:
            on_progress(len(batch))
    return out


def _mean(batch: CanvasBatch, hidden: Floats) -> Array:
    """Return (batch, width): the mean state of each canvas's content tokens, or of its frame if it has none."""
    content = batch.valid & ~batch.framing
    content |= batch.valid & ~content.any(1, keepdims=True)
    return np.asarray((hidden * content[..., None]).sum(1) / content.sum(1, keepdims=True))
