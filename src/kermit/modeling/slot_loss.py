"""The content loss over many slots, without holding all their logits in memory.

The loss of a slot is logsumexp(logits) minus the weighted sum of its target logits. Slots are processed in chunks: the
logits of a chunk are computed, turned into their gradient in place, and accumulated into the gradients of the slot
vectors and the embedding. So only one chunk of logits is held at a time, and logits are computed once, not twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK_ELEMENTS = 4 * 1024 * 1024
"""Maximum number of logits held at a time."""


class _ChunkedSlotLoss(torch.autograd.Function):
    """Sum of weighted slot losses; the gradient is computed in the forward pass.

    Matrices are multiplied in ``dtype``, but sums are accumulated in float32 or better: in half precision the row of a
    token that is the target of thousands of slots, such as end-of-slot, would soon stop changing.
    """

    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        embedding: Tensor,
        bias: Tensor,
        targets: tuple[Tensor, ...],
        slot_copies: Tensor | None,
        target_copies: Tensor | None,
        smoothing: float,
        chunk_elements: int,
        dtype: torch.dtype,
    ) -> Tensor:
        needs_grad = any(ctx.needs_input_grad[:3])
        slot_weights, target_slots, target_tokens, target_weights = targets
        exact = torch.promote_types(dtype, torch.float32)
        vectors, embedding = vectors.to(dtype), embedding.to(dtype)
        chunk = max(1, chunk_elements // embedding.shape[0])
        mass = torch.zeros_like(slot_weights).index_add_(0, target_slots, target_weights.to(slot_weights.dtype))
        scale = (slot_weights * mass).to(exact)
        # the weight of each target's logit
        pull = (1 - smoothing) * (target_weights * slot_weights[target_slots]).to(exact)
        starts = torch.arange(0, len(vectors) + chunk, chunk, device=vectors.device)
        edges = torch.searchsorted(target_slots, starts).tolist()
        loss = vectors.new_zeros((), dtype=exact)
        grads = _Gradients.of(vectors, embedding, bias, exact) if needs_grad else None
        by_word = pull.clone()  # the share that does not go to copies
        by_copy = None if slot_copies is None else torch.zeros_like(scale)
        for number, start in enumerate(range(0, len(vectors), chunk)):
            piece, asked = slice(start, start + chunk), slice(edges[number], edges[number + 1])
            part = vectors[piece]
            logits = torch.addmm(bias.to(dtype), part, embedding.t()).to(exact)
            found = logits[target_slots[asked] - start, target_tokens[asked]]
            if target_copies is not None:
                either = torch.logaddexp(found, target_copies[asked].to(exact))
                by_word[asked] *= (found - either).exp()
                found = either
            loss -= (pull[asked] * found).sum()
            peak = logits.amax(1, keepdim=True)
            if slot_copies is not None:
                peak = torch.maximum(peak, slot_copies[piece, None].to(exact))
            exponentials = logits.sub_(peak).exp_()
            total = exponentials.sum(1)
            if slot_copies is not None and by_copy is not None:
                copies = (slot_copies[piece].to(exact) - peak.squeeze(1)).exp()
                total = total + copies
                by_copy[piece] = scale[piece] * copies / total
            loss += (scale[piece] * (peak.squeeze(1) + total.log())).sum()
            if grads is not None:
                rate = (scale[piece] / total)[:, None]
                exponentials = exponentials.to(dtype)
                grads.vectors[piece] = (exponentials @ embedding) * rate
                grads.add_to_embedding(exponentials, (part * rate).to(dtype))
                grads.bias.add_((exponentials.t() @ rate.to(dtype)).squeeze(1))
        if grads is not None:
            weight = -by_word[:, None]
            grads.vectors.index_add_(0, target_slots, embedding[target_tokens] * weight)
            grads.embedding.index_add_(0, target_tokens, vectors[target_slots] * weight)
            grads.bias.index_add_(0, target_tokens, weight.squeeze(1))
        if smoothing:
            loss -= _spread_target(vectors.to(exact), embedding.to(exact), bias.to(exact), smoothing * scale, grads)
        ctx.save_for_backward(*(grads or (None, None, None)), by_copy, None if by_copy is None else by_word - pull)
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        *grads, slot_copies, target_copies = (  # in float32 or better; autograd casts each to its input's dtype
            None if grad is None else grad * upstream for grad in ctx.saved_tensors
        )
        return (*grads, None, slot_copies, target_copies, None, None, None)


class _Gradients(NamedTuple):
    """Accumulated gradients of the slot vectors, the embedding and the bias."""

    vectors: Tensor
    embedding: Tensor
    bias: Tensor

    @classmethod
    def of(cls, vectors: Tensor, embedding: Tensor, bias: Tensor, exact: torch.dtype) -> _Gradients:
        return cls(*(torch.zeros_like(tensor, dtype=exact) for tensor in (vectors, embedding, bias)))

    def add_to_embedding(self, exponentials: Tensor, rated: Tensor) -> None:
        """Add the product of the transposed (slots, vocab) and (slots, width)."""
        if exponentials.dtype == self.embedding.dtype:
            self.embedding.addmm_(exponentials.t(), rated)
        else:
            self.embedding.add_(exponentials.t() @ rated)


def _spread_target(vectors: Tensor, embedding: Tensor, bias: Tensor, scale: Tensor, grads: _Gradients | None) -> Tensor:
    """Return the weighted sum of mean logits, computed from the mean of the embedding, and add its gradients."""
    allowed = bias.isfinite()
    share = allowed.to(bias.dtype) / allowed.sum()
    mean = share @ embedding
    pulled = scale @ vectors
    if grads is not None:
        grads.vectors.addr_(scale, mean, alpha=-1)
        grads.embedding.addr_(share, pulled, alpha=-1)
        grads.bias.sub_(scale.sum() * share)
    return pulled @ mean + scale.sum() * (share * bias.where(allowed, 0)).sum()


def slot_loss(
    vectors: Tensor,
    embedding: Tensor,
    bias: Tensor,
    slot_weights: Tensor,
    target_slots: Tensor,
    target_tokens: Tensor,
    target_weights: Tensor,
    *,
    slot_copies: Tensor | None = None,
    target_copies: Tensor | None = None,
    smoothing: float = 0.0,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> Tensor:
    """Compute the weighted sum of slot losses.

    Args:
        vectors: (slots, width); logits are computed in their dtype, or in that of autocast.
        embedding: (vocab, width), the output embedding.
        bias: (vocab,), -inf at tokens that are never inserted.
        slot_weights: (slots,).
        target_slots: (targets,) ascending.
        target_tokens: (targets,).
        target_weights: (targets,).
        slot_copies: (slots,) log of what copies contribute to the slot's softmax; None if the model does not copy.
        target_copies: (targets,) log of what copies of the target token contribute.
        smoothing: share of each slot's target that is spread over the tokens that may be inserted.
        chunk_elements: maximum number of logits held at a time.

    Returns:
        A scalar, differentiable once.
    """
    device = vectors.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else vectors.dtype
    with torch.autocast(device, enabled=False):
        loss: Tensor = _ChunkedSlotLoss.apply(  # type: ignore[no-untyped-call]
            vectors,
            embedding,
            bias,
            (slot_weights, target_slots, target_tokens, target_weights),
            slot_copies,
            target_copies,
            smoothing,
            chunk_elements,
            dtype,
        )
    return loss
