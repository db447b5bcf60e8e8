"""Taps: what passes through a part of a model while the whole of it runs.

A training loss needs the states that a model would turn into logits at every position, and the logits at a few. With
these contexts that works for any model of transformers, whose forward stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel


def inner_model(model: nn.Module) -> PreTrainedModel:
    """Return the model inside a wrapper for several processes, or the model itself."""
    return getattr(model, "module", model)


class Tap:
    """What went through; it has no value before the model has run."""

    value: Tensor


@contextmanager
def withheld_from(module: nn.Module) -> Iterator[Tap]:
    """Yield the input of a module, (..., length, width); the module itself gets one of length 0, and does nothing."""
    tap = Tap()

    def keep(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        tap.value = inputs[0]
        return (inputs[0][..., :0, :], *inputs[1:])

    handle = module.register_forward_pre_hook(keep)
    try:
        yield tap
    finally:
        handle.remove()
