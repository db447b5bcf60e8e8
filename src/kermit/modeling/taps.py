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
    """The model that a wrapper for several processes holds, or the model itself."""
    return getattr(model, "module", model)


class Tap:
    """What went through, once the model has run."""

    def __init__(self) -> None:
        self._value: Tensor | None = None

    def fill(self, value: Tensor) -> None:
        """Keep what went through."""
        self._value = value

    @property
    def value(self) -> Tensor:
        """What went through last."""
        if self._value is None:
            raise RuntimeError("the model has not run yet")
        return self._value


@contextmanager
def withheld_from(module: nn.Module) -> Iterator[Tap]:
    """The input of a module, (..., length, width), which itself gets one of no length and so has nothing to do."""
    tap = Tap()

    def keep(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        tap.fill(inputs[0])
        return (inputs[0][..., :0, :], *inputs[1:])

    handle = module.register_forward_pre_hook(keep)
    try:
        yield tap
    finally:
        handle.remove()
