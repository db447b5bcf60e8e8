"""Muon: momentum with orthogonalised steps, for the matrices inside the layers.

The update is that of torch.optim.Muon, which always orthogonalises in bfloat16; on CPUs without bfloat16 that takes a
hundred times as long as float32. Here matrices of the same shape are orthogonalised together, in their own dtype by
default, and in three iterations instead of five: they are divided by a tighter bound of their largest singular value,
and each iteration has its own polynomial.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

# Coefficients of x (a + b x^2 + c x^4), applied in order; they minimise the distance to 1 on [0.01, 1], at most 0.29.
_POLYNOMIALS = ((4.5909, -13.3846, 9.8828), (4.3068, -9.9649, 6.0889), (3.8863, -6.2671, 3.1398))


def orthogonalised(matrices: Tensor) -> Tensor:
    """Return matrices (number, rows, columns) with the same singular vectors and singular values near 1."""
    tall = matrices.shape[1] > matrices.shape[2]
    found = matrices.mT if tall else matrices
    found = found / found.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    gram = found @ found.mT
    largest = gram.norm(dim=(1, 2), keepdim=True).sqrt().clamp(min=1e-7)  # an upper bound of the largest singular value
    found, gram = found / largest, gram / largest**2
    for index, (a, b, c) in enumerate(_POLYNOMIALS):
        if index:
            gram = found @ found.mT
        found = torch.baddbmm(found, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), found, beta=a)
    return found.mT if tall else found


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised and scaled to the size of AdamW's steps, with AdamW's weight decay.

    It orthogonalises in the matrices' own dtype unless another is given.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
        orthogonalise_in: torch.dtype | None = None,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.orthogonalise_in = orthogonalise_in

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            by_shape: defaultdict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.shape].append(parameter)
            for shape, parameters in by_shape.items():
                self._update(parameters, group, lr=group["lr"] * 0.2 * math.sqrt(max(shape)))

    def _update(self, parameters: list[Tensor], group: dict[str, float], *, lr: float) -> None:
        directions = []
        for parameter in parameters:
            gradient, state = parameter.grad, self.state[parameter]
            assert gradient is not None
            if not state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
            directions.append(gradient.lerp(state["momentum_buffer"], group["momentum"]))
        updates = orthogonalised(torch.stack(directions).to(self.orthogonalise_in))
        for parameter, update in zip(parameters, updates, strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-lr)
