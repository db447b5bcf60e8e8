"""Label-smoothed cross-entropy of a tied output layer, without ever holding all the logits.

The loss of a row with hidden vector h, target t and smoothing s over a vocabulary of V is

    logsumexp(W h) - (1 - s) (W h)_t - s mean(W h).

Rows are taken some hundred at a time, so that their logits stay in the processor's cache, and the gradients are made on
the way forward, while the logits are there: one pass over memory instead of five.
"""

from __future__ import annotations

from typing import Any

import torch

_ROWS = 256


class SmoothedCrossEntropy(torch.autograd.Function):
    """Sum over rows of the smoothed loss; gradients for the hidden vectors and the output matrix."""

    @staticmethod
    def forward(
        context: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, smoothing: float
    ) -> torch.Tensor:
        """`hidden` (rows, width), `weight` (vocab, width), `targets` (rows,); returns a scalar."""
        needed = any(context.needs_input_grad[:2])
        grad_hidden = torch.empty_like(hidden) if needed else None
        grad_weight = torch.zeros_like(weight) if needed else None
        loss = hidden.new_zeros(())
        for start in range(0, len(hidden), _ROWS):
            rows, wanted = hidden[start : start + _ROWS], targets[start : start + _ROWS, None]
            logits = rows @ weight.T
            normaliser = logits.logsumexp(-1, keepdim=True)
            target_logits = logits.gather(-1, wanted)
            loss += (normaliser - (1 - smoothing) * target_logits).sum()
            if smoothing:
                loss -= smoothing * logits.mean(-1).sum()
            if grad_hidden is not None and grad_weight is not None:
                slopes = logits.sub_(normaliser).exp_()
                if smoothing:
                    slopes.sub_(smoothing / weight.size(0))
                slopes.scatter_add_(-1, wanted, torch.full_like(target_logits, smoothing - 1))
                torch.mm(slopes, weight, out=grad_hidden[start : start + _ROWS])
                grad_weight.addmm_(slopes.T, rows)
        context.save_for_backward(grad_hidden, grad_weight)
        return loss

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        """The gradients made on the way forward, times the one that came back."""
        grad_hidden, grad_weight = context.saved_tensors
        return grad_hidden * gradient, grad_weight * gradient, None, None


def smoothed_cross_entropy(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, smoothing: float
) -> torch.Tensor:
    """The summed loss of rows `hidden` (rows, width) for `targets` (rows,) under the output matrix (vocab, width)."""
    if hidden.device.type == "cpu" and hidden.dtype == weight.dtype and not torch.is_autocast_enabled("cpu"):
        return SmoothedCrossEntropy.apply(hidden, weight, targets, smoothing)  # type: ignore[no-untyped-call, no-any-return]
    logits = torch.nn.functional.linear(hidden, weight).float()
    return torch.nn.functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
