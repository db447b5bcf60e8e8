"""The moving average of the weights, which is evaluated and saved: it translates better than the last weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn


class MovingAverage:
    """An exponential moving average of a model's trainable parameters.

    The decay after step t is min(decay, (1 + t) / (10 + t)), so that the first steps quickly lose their influence.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._live = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._average = self._copied()

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Include the weights after update number `step` (from 1)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        live = [weight.detach() for weight in self._live.values()]
        torch._foreach_lerp_(list(self._average.values()), live, 1.0 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights inside this context."""
        own = self._copied()
        _copy(self._average, self._live)
        try:
            yield
        finally:
            _copy(own, self._live)

    def save(self, path: Path) -> None:
        """Write the average as safetensors."""
        save_file({name: tensor.contiguous() for name, tensor in self._average.items()}, path)

    def load(self, path: Path) -> None:
        """Read what `save` wrote."""
        _copy(load_file(path), self._average)

    def _copied(self) -> dict[str, Tensor]:
        return {name: weight.detach().clone() for name, weight in self._live.items()}


@torch.no_grad()
def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    for name, tensor in target.items():
        tensor.copy_(source[name])
