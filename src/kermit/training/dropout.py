"""Fast dropout on a CPU.

torch draws a dropout mask on the CPU in one thread, one number per value, which was a third of a training step. Here a
mask is one random byte per value, from NumPy's SFC64, compared with a threshold; the probability is rounded to 1/256,
and values are scaled by the rounded probability, so the expectation is exact.

`FastDropout` is a context in which every call of `torch.nn.functional.dropout` on a CPU works that way, from an
`nn.Dropout` or from a model's own code. It is seeded when it is made, so a step that makes it from (seed, step) is the
same after resuming. It cannot be combined with gradient checkpointing, which replays only torch's generator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode


class FastDropout(TorchFunctionMode):
    """Computes `functional.dropout` on CPU tensors with random bytes seeded by `entropy`."""

    def __init__(self, entropy: Sequence[int]) -> None:
        super().__init__()
        self._bits = np.random.SFC64(np.random.SeedSequence([*entropy, 0xD0]))

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.nn.functional.dropout:
            return self._dropout(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _dropout(
        self, input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        if not training or p == 0.0:
            return input
        if input.device.type != "cpu" or inplace or p >= 1.0:
            return torch.nn.functional.dropout(input, p, training, inplace)
        threshold = min(max(round(p * 256), 1), 255)
        keep = self._bytes(input.numel()).view(input.shape) >= threshold
        return _Masked.apply(input, keep, 256 / (256 - threshold))  # type: ignore[no-untyped-call, no-any-return]

    def _bytes(self, count: int) -> torch.Tensor:
        words = self._bits.random_raw((count + 7) // 8)
        return torch.from_numpy(words.view(np.uint8))[:count]


class _Masked(torch.autograd.Function):
    """Values where the mask is set, times the scale; zero elsewhere. Only the mask is kept for the backward pass."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor, keep: torch.Tensor, scale: float) -> torch.Tensor:
        context.save_for_backward(keep)
        context.scale = scale
        return (values * keep).mul_(scale)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (keep,) = context.saved_tensors
        return (gradient * keep).mul_(context.scale), None, None
