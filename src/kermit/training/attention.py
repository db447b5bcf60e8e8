"""Attention in float32 for training in half precision on a CPU.

A CPU may multiply matrices faster in bfloat16, but torch's backward pass of attention takes five times as long in it as
in float32, which is a fifth of a training step. `SingleAttention` is a context in which every call of
`scaled_dot_product_attention` computes in float32 and returns the input's format. It cannot be combined with gradient
checkpointing, which recomputes outside of the context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class SingleAttention(TorchFunctionMode):
    """Computes `scaled_dot_product_attention` on CPU tensors in float32."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **given)
        query = args[0] if args else given["query"]
        if query.device.type != "cpu":
            return func(*args, **given)
        with torch.autocast("cpu", enabled=False):
            found: Tensor = func(*map(_single, args), **{name: _single(value) for name, value in given.items()})
        return found.to(query.dtype)


def _single(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value
