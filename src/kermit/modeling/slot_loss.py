"""The content loss over many slots, without ever holding all their logits.

The loss of a slot is logsumexp(logits) minus the weighted sum of its target logits. Slots are worked off in chunks: the
logits of a chunk are made, turned in place into their own gradient and folded into those of the slot vectors and of the
embedding, so the vocabulary-sized memory is that of one chunk, and the logits are computed once, not twice.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = 4 * 1024 * 1024
"""The most logits to hold at once."""


class _ChunkedSlotLoss(torch.autograd.Function):
    """Sum of weighted slot losses; its gradient is computed on the way forward."""

    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        embedding: Tensor,
        bias: Tensor,
        slot_weights: Tensor,
        target_slots: Tensor,
        target_tokens: Tensor,
        target_weights: Tensor,
        smoothing: float,
        chunk_elements: int,
    ) -> Tensor:
        needs_grad = any(ctx.needs_input_grad[:3])
        vocab = embedding.shape[0]
        chunk = max(1, chunk_elements // vocab)
        mass = torch.zeros_like(slot_weights).index_add_(0, target_slots, target_weights.to(slot_weights.dtype))
        target_weights = target_weights * slot_weights[target_slots]
        allowed = bias.isfinite()
        spread = (allowed / allowed.sum()).float() if smoothing else None
        starts = torch.arange(0, len(vectors) + chunk, chunk, device=vectors.device)
        edges = torch.searchsorted(target_slots, starts).tolist()
        loss = vectors.new_zeros((), dtype=torch.float32)
        grad_vectors = torch.empty_like(vectors) if needs_grad else None
        grad_embedding = torch.zeros_like(embedding) if needs_grad else None
        grad_bias = torch.zeros_like(bias) if needs_grad else None
        for number, start in enumerate(range(0, len(vectors), chunk)):
            piece = slice(start, start + chunk)
            asked = slice(edges[number], edges[number + 1])
            part = vectors[piece]
            logits = torch.addmm(bias.to(part.dtype), part, embedding.t()).float()
            places = (target_slots[asked] - start, target_tokens[asked])
            weights = target_weights[asked].float()
            scale = (slot_weights[piece] * mass[piece]).float()
            found = logits[places]
            normaliser = torch.logsumexp(logits, 1)
            loss += (scale * normaliser).sum() - (1 - smoothing) * (weights * found).sum()
            if spread is not None:
                mean = torch.where(allowed, logits, 0).mv(spread)
                loss -= smoothing * (scale * mean).sum()
            if grad_vectors is None or grad_embedding is None or grad_bias is None:
                continue
            gradient = logits.sub_(normaliser[:, None]).exp_().mul_(scale[:, None])
            if spread is not None:
                gradient.addr_(scale, spread, alpha=-smoothing)
            gradient.index_put_(places, weights * (smoothing - 1), accumulate=True)
            gradient = gradient.to(part.dtype)
            torch.mm(gradient, embedding, out=grad_vectors[piece])
            grad_embedding.addmm_(gradient.t(), part)
            grad_bias += gradient.sum(0).to(grad_bias.dtype)
        ctx.save_for_backward(grad_vectors, grad_embedding, grad_bias)
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        vectors, embedding, bias = ctx.saved_tensors
        scaled = (
            grad * upstream.to(grad.dtype) if needed else None
            for grad, needed in zip((vectors, embedding, bias), ctx.needs_input_grad[:3], strict=True)
        )
        return (*scaled, None, None, None, None, None, None)


def slot_loss(
    vectors: Tensor,
    embedding: Tensor,
    bias: Tensor,
    slot_weights: Tensor,
    target_slots: Tensor,
    target_tokens: Tensor,
    target_weights: Tensor,
    *,
    smoothing: float = 0.0,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> Tensor:
    """The weighted sum of slot losses.

    Args:
        vectors: (slots, width).
        embedding: (vocab, width), the output embedding.
        bias: (vocab,), -inf at what may never be inserted.
        slot_weights: (slots,).
        target_slots: (targets,) ascending.
        target_tokens: (targets,).
        target_weights: (targets,).
        smoothing: the share of each slot's target that is spread over what may be inserted.
        chunk_elements: the most logits to hold at once.

    Returns:
        A scalar, differentiable once.
    """
    if torch.is_autocast_enabled(vectors.device.type):
        dtype = torch.get_autocast_dtype(vectors.device.type)
        vectors, embedding = vectors.to(dtype), embedding.to(dtype)
    loss: Tensor = _ChunkedSlotLoss.apply(  # type: ignore[no-untyped-call]
        vectors,
        embedding,
        bias,
        slot_weights,
        target_slots,
        target_tokens,
        target_weights,
        smoothing,
        chunk_elements,
    )
    return loss
