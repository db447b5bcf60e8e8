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
        exact = torch.promote_types(vectors.dtype, torch.float32)
        chunk = max(1, chunk_elements // embedding.shape[0])
        mass = torch.zeros_like(slot_weights).index_add_(0, target_slots, target_weights.to(slot_weights.dtype))
        scale = (slot_weights * mass).to(exact)
        pull = (1 - smoothing) * (target_weights * slot_weights[target_slots]).to(exact)  # of each target
        starts = torch.arange(0, len(vectors) + chunk, chunk, device=vectors.device)
        edges = torch.searchsorted(target_slots, starts).tolist()
        loss = vectors.new_zeros((), dtype=exact)
        grad_vectors = torch.empty_like(vectors) if needs_grad else None
        grad_embedding = torch.zeros_like(embedding) if needs_grad else None
        grad_bias = torch.zeros_like(bias) if needs_grad else None
        for number, start in enumerate(range(0, len(vectors), chunk)):
            piece, asked = slice(start, start + chunk), slice(edges[number], edges[number + 1])
            part = vectors[piece]
            logits = torch.addmm(bias.to(part.dtype), part, embedding.t()).to(exact)
            loss -= (pull[asked] * logits[target_slots[asked] - start, target_tokens[asked]]).sum()
            peak = logits.amax(1, keepdim=True)
            exponentials = logits.sub_(peak).exp_()
            total = exponentials.sum(1)
            loss += (scale[piece] * (peak.squeeze(1) + total.log())).sum()
            if grad_vectors is None or grad_embedding is None or grad_bias is None:
                continue
            rate = (scale[piece] / total).to(part.dtype)[:, None]
            exponentials = exponentials.to(part.dtype)
            torch.mm(exponentials, embedding, out=grad_vectors[piece]).mul_(rate)
            grad_embedding.addmm_(exponentials.t(), part * rate)
            grad_bias += (exponentials.t() @ rate).squeeze(1).to(bias.dtype)
        if grad_vectors is not None and grad_embedding is not None and grad_bias is not None:
            weight = -pull.to(vectors.dtype)[:, None]
            grad_vectors.index_add_(0, target_slots, embedding[target_tokens] * weight)
            grad_embedding.index_add_(0, target_tokens, vectors[target_slots] * weight)
            grad_bias.index_add_(0, target_tokens, weight.squeeze(1).to(bias.dtype))
        if smoothing:
            loss -= _spread_target(vectors, embedding, bias, smoothing * scale, grad_vectors, grad_embedding, grad_bias)
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


def _spread_target(
    vectors: Tensor,
    embedding: Tensor,
    bias: Tensor,
    scale: Tensor,
    grad_vectors: Tensor | None,
    grad_embedding: Tensor | None,
    grad_bias: Tensor | None,
) -> Tensor:
    """The weighted sum of each slot's mean logit, which needs the mean of the embedding alone, and its gradients."""
    allowed = bias.isfinite()
    share = allowed.to(bias.dtype) / allowed.sum()
    mean = share.to(embedding.dtype) @ embedding
    weight = scale.to(vectors.dtype)
    pulled = weight @ vectors
    if grad_vectors is not None and grad_embedding is not None and grad_bias is not None:
        grad_vectors.addr_(weight, mean, alpha=-1)
        grad_embedding.addr_(share.to(embedding.dtype), pulled, alpha=-1)
        grad_bias -= scale.sum().to(bias.dtype) * share
    return (pulled @ mean).to(scale.dtype) + scale.sum() * (share * bias.where(allowed, 0)).sum().to(scale.dtype)


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
