"""Capture the input of a module while the whole model runs.

A training loss needs the states before the output layer at every position, but logits only at a few. `withheld_from`
gets them from any model of transformers without changing its forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel


def inner_model(model: nn.Module) -> PreTrainedModel:
    """Return the model inside a DDP wrapper, or the model itself."""
    return getattr(model, "module", model)


class CapturedInput:
    """The input of a module; it has no value before the model has run."""

    value: Tensor


@contextmanager
def withheld_from(module: nn.Module) -> Iterator[CapturedInput]:
    """Yield the input of a module, (..., length, width); the module itself gets an empty input of length 0."""
    captured = CapturedInput()

    def keep(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        captured.value = inputs[0]
        return (inputs[0][..., :0, :], *inputs[1:])

    handle = module.register_forward_pre_hook(keep)
    try:
        yield captured
    finally:
        handle.remove()
