"""Add weights and layers of torch to a graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from kermit.engines.graph import Graph


def array_of(weight: Tensor) -> NDArray[np.float32]:
    """Return a weight as an array, in float32."""
    return np.asarray(weight.detach().float().cpu().numpy(), dtype=np.float32)


def linear(graph: Graph, states: str, layer: nn.Linear) -> str:
    """Add a linear layer of torch."""
    return graph.linear(states, array_of(layer.weight), None if layer.bias is None else array_of(layer.bias))


def norm(graph: Graph, states: str, layer: nn.LayerNorm, *, name: str | None = None) -> str:
    """Add a layer norm of torch."""
    bias = None if layer.bias is None else array_of(layer.bias)
    return graph.layer_norm(states, array_of(layer.weight), bias, layer.eps, name=name)
