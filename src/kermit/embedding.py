"""Texts as vectors: a complete canvas with no slot open, and the trunk's hidden states of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kermit.canvas_batch import CanvasBatch
from kermit.modeling import KermitForInsertion
from kermit.results import Pooling


@torch.inference_mode()
def embed(
    model: KermitForInsertion,
    texts: Sequence[Sequence[Sequence[int]]],
    pooling: Pooling,
    *,
    batch_size: int = 64,
    on_progress: Callable[[int], object] | None = None,
) -> NDArray[np.float32]:
    """The hidden states of texts, pooled.

    Args:
        model: the model, in evaluation mode.
        texts: each one or two segments of content tokens.
        pooling: the mean over content tokens, or the state of [CLS].
        batch_size: how many texts go through the trunk together; it does not change the result.
        on_progress: called with the number of texts that were just finished.

    Returns:
        (texts, width).
    """
    out = np.zeros((len(texts), model.config.hidden_size), dtype=np.float32)
    by_length = sorted(range(len(texts)), key=lambda number: sum(map(len, texts[number])))
    for start in range(0, len(texts), batch_size):
        part = by_length[start : start + batch_size]
        batch = CanvasBatch.from_segments(model.specials, [texts[number] for number in part]).to(model.device)
        hidden = model.kermit(batch.token_ids, batch.valid, batch.segment_ids).last_hidden_state
        found = hidden[:, 0] if pooling == "first" else _mean(batch, hidden)
        out[part] = found.float().cpu().numpy()
        if on_progress is not None:
            on_progress(len(batch))
    return out


def _mean(batch: CanvasBatch, hidden: Tensor) -> Tensor:
    """(batch, width): the mean state of each canvas's content tokens; of its frame where it has none."""
    framing = (batch.token_ids == batch.specials.cls_id) | (batch.token_ids == batch.specials.sep_id)
    content = batch.valid & ~framing
    content |= batch.valid & ~content.any(1, keepdim=True)
    return (hidden * content[..., None]).sum(1) / content.sum(1, keepdim=True)
