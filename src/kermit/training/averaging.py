"""Averaged weights: a moving average during training, or the mean of saved checkpoints.

Averaged weights translate better than the last ones at no cost in training; they are evaluated and kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn


class MovingAverage:
    """An exponential moving average of a model's trainable parameters.

    The decay after step t is min(decay, (1 + t) / (10 + t)), so that the first steps are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._names, self._live = _trainable(model)
        self._average = [parameter.detach().clone() for parameter in self._live]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after update number `step` (from 1)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._average, [parameter.detach() for parameter in self._live], 1.0 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights inside this context."""
        with _weights(self._live, self._average):
            yield

    def save(self, path: Path) -> None:
        """Write the average as safetensors."""
        save_file({name: tensor.contiguous() for name, tensor in zip(self._names, self._average, strict=True)}, path)

    def load(self, path: Path) -> None:
        """Read what `save` wrote."""
        saved = load_file(path)
        for name, tensor in zip(self._names, self._average, strict=True):
            tensor.copy_(saved[name])


@contextmanager
def mean_with_checkpoints(model: nn.Module, folders: Sequence[Path]) -> Iterator[None]:
    """Give the model the mean of its own weights and those of earlier checkpoints inside this context."""
    names, live = _trainable(model)
    count = len(folders) + 1
    total = [parameter.detach() / count for parameter in live]
    for folder in folders:
        saved = load_file(folder / "model.safetensors")
        for name, tensor in zip(names, total, strict=True):
            tensor += saved[name].to(tensor.device) / count
    with _weights(live, total):
        yield


def _trainable(model: nn.Module) -> tuple[list[str], list[nn.Parameter]]:
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    return [name for name, _ in named], [parameter for _, parameter in named]


@contextmanager
def _weights(live: Sequence[nn.Parameter], other: Sequence[torch.Tensor]) -> Iterator[None]:
    own = [parameter.detach().clone() for parameter in live]
    with torch.no_grad():
        for parameter, tensor in zip(live, other, strict=True):
            parameter.copy_(tensor)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, tensor in zip(live, own, strict=True):
                parameter.copy_(tensor)
