"""The moving average of the weights, which is evaluated and saved: it translates better than the last weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn


class MovingAverage:
    """An exponential moving average of a model's trainable parameters.

    The decay after step t is min(decay, (1 + t) / (10 + t)), so that the first steps quickly lose their influence.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        self._names, self._live = [name for name, _ in named], [parameter for _, parameter in named]
        self._average = [parameter.detach().clone() for parameter in self._live]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Include the weights after update number `step` (from 1)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._average, [parameter.detach() for parameter in self._live], 1.0 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights inside this context."""
        own = [parameter.detach().clone() for parameter in self._live]
        self._copy(self._average)
        try:
            yield
        finally:
            self._copy(own)

    @torch.no_grad()
    def _copy(self, tensors: list[torch.Tensor]) -> None:
        for parameter, tensor in zip(self._live, tensors, strict=True):
            parameter.copy_(tensor)

    def save(self, path: Path) -> None:
        """Write the average as safetensors."""
        save_file({name: tensor.contiguous() for name, tensor in zip(self._names, self._average, strict=True)}, path)

    def load(self, path: Path) -> None:
        """Read what `save` wrote."""
        saved = load_file(path)
        for name, tensor in zip(self._names, self._average, strict=True):
            tensor.copy_(saved[name])
