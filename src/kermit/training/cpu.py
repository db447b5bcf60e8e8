"""Faster training steps on a CPU: dropout from random bytes, and attention in float32 when training in half precision.

On a CPU, torch draws dropout masks in one thread, one number per value, which took a third of a training step; and the
backward pass of attention is five times slower in bfloat16 than in float32, a fifth of a step. Both remedies are
contexts that replace torch functions in any model. Neither works with gradient checkpointing, which recomputes outside
the context and replays only torch's generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from transformers import TrainingArguments


@contextmanager
def fast_on_cpu(entropy: Sequence[int], arguments: TrainingArguments) -> Iterator[None]:
    """Speed up a forward and a backward pass inside this context, if it runs on a CPU; `entropy` seeds dropout."""
    if arguments.device.type != "cpu" or arguments.gradient_checkpointing:
        yield
        return
    with FastDropout(entropy), SingleAttention() if arguments.bf16 or arguments.fp16 else nullcontext():
        yield


class FastDropout(TorchFunctionMode):
    """Computes `functional.dropout` on CPU tensors with random bytes.

    A mask is one byte per value, from NumPy's SFC64, compared with a threshold. The probability is rounded to a
    multiple of 1/256, and values are scaled by the rounded probability, so the expectation is exact. Seeded by (seed,
    step), a step is the same after resuming.
    """

    def __init__(self, entropy: Sequence[int]) -> None:
        super().__init__()
        self._bits = np.random.SFC64(np.random.SeedSequence([*entropy, 0xD0]))

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return (self._dropout if func is functional.dropout else func)(*args, **(kwargs or {}))

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0.0:
            return input
        if input.device.type != "cpu" or inplace or p >= 1.0:
            return functional.dropout(input, p, training, inplace)
        threshold = min(max(round(p * 256), 1), 255)
        words = self._bits.random_raw((input.numel() + 7) // 8)
        drawn = torch.from_numpy(words.view(np.uint8))[: input.numel()]
        keep = drawn.view(input.shape) >= threshold
        return (input * keep).mul_(256 / (256 - threshold))  # only the mask is saved for the backward pass


class SingleAttention(TorchFunctionMode):
    """Computes `scaled_dot_product_attention` on CPU tensors in float32, and returns the input's dtype."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func is not functional.scaled_dot_product_attention:
            return func(*args, **given)
        query = args[0] if args else given["query"]
        if query.device.type != "cpu":
            return func(*args, **given)
        with torch.autocast("cpu", enabled=False):
            found: Tensor = func(*map(_single, args), **{name: _single(value) for name, value in given.items()})
        return found.to(query.dtype)


def _single(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value
