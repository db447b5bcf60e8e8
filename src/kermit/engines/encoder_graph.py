"""KERMIT's own trunk as an ONNX graph, with keys, values and final states of earlier tokens as inputs and outputs.

It is built node by node rather than traced: fractional positions, the cache and attention then take one operator each,
and a call spends its time in matrix products. A trunk with `given_layers` becomes two graphs: that of `add_context`
reads the given tokens and returns the cache that the graph of `add_encoder` takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from kermit.engines.graph import Graph
from kermit.modeling.encoder import Encoder


def add_encoder(graph: Graph, encoder: Encoder, embedded: str, *, caches: bool) -> str:
    """Add the trunk, which reads `positions` (batch, length) and `mask` (batch, length, past + length).

    Only attention sees padded rows. Everything else sees a flat list of the real tokens: `real` (tokens,) holds their
    places in the flattened rows, and `places` (batch, length) the index of the token at each place, arbitrary at
    padding.

    With a cache, it takes `past_keys_N`, `past_values_N` (batch, heads, past, width) and `past_states` (batch, past,
    hidden), and returns `keys_N`, `values_N` and `states` of past and new tokens.

    The trunk's `given_layers` are left out. Returns the name of the states, (batch, past + length, hidden).
    """
    trunk = _Trunk(graph, encoder)
    hidden = trunk.start(embedded)
    for number, layer in enumerate(trunk.layers[encoder.config.given_layers :]):
        hidden = trunk.add_layer(hidden, layer, _kept(number) if caches else [])
    if not caches:
        return trunk.end(hidden, name="states")
    past_states = graph.input("past_states", np.float32, ["batch", "past", encoder.config.hidden_size])
    return graph.add("Concat", past_states, trunk.end(hidden), name="states", axis=1)


def add_context(graph: Graph, encoder: Encoder, embedded: str) -> str:
    """Add the layers that given tokens pass, and the keys and values that the others need of them.

    The inputs are those of `add_encoder` without a cache; the outputs are its cache. Returns the name of the states.
    """
    trunk = _Trunk(graph, encoder)
    hidden = trunk.start(embedded)
    for layer in trunk.layers[: encoder.config.given_layers]:
        hidden = trunk.add_layer(hidden, layer, [])
    for number, layer in enumerate(trunk.layers[encoder.config.given_layers :]):
        trunk.keep(hidden, layer, _kept(number))
    return trunk.end(hidden, name="states")


def _kept(number: int) -> list[str]:
    """Return the names of the keys and values of a layer."""
    return [f"{kind}_{number}" for kind in ("keys", "values")]


class _Trunk:
    """The parts that a trunk's graph is made of; hidden states are (tokens, hidden)."""

    def __init__(self, graph: Graph, encoder: Encoder) -> None:
        self.graph, self.encoder = graph, encoder
        self.heads, self.size = encoder.config.num_attention_heads, encoder.config.hidden_size
        self.layers: list[Any] = list(encoder.layers)
        self.real = graph.input("real", np.int64, ["tokens"])
        self.places = graph.input("places", np.int64, ["batch", "length"])
        self.flat = graph.constant([-1, self.size])
        half = self.size // self.heads // 2
        rates = encoder.config.rotary_base ** -(np.arange(half, dtype=np.float32) / half)
        angles = graph.add("Mul", graph.add("Unsqueeze", "positions", graph.constant([2])), graph.constant(rates))
        self.turn = (graph.add("Cos", angles), graph.add("Sin", angles))
        self.seen = graph.add("Unsqueeze", "mask", graph.constant([1]))

    def start(self, embedded: str) -> str:
        """Return the states before the first layer, of (batch, length, hidden) embeddings."""
        flat = self.graph.add("Reshape", embedded, self.flat)
        return self.graph.layer_norm(self.graph.add("Gather", flat, self.real), self.encoder.embedding_norm)

    def end(self, hidden: str, *, name: str | None = None) -> str:
        """Return the states after the last layer, (batch, length, hidden)."""
        return self.graph.add("Gather", self.graph.layer_norm(hidden, self.encoder.norm), self.places, name=name)

    def add_layer(self, hidden: str, layer: Any, kept: list[str]) -> str:
        """Add a layer; with the names of keys and values, it attends to earlier ones and returns all."""
        graph, heads = self.graph, self.heads
        query, key, value = self._projected(hidden, layer, layer.attention.qkv.weight, 3)
        query, key = (graph.add("RotaryEmbedding", part, *self.turn, num_heads=heads) for part in (query, key))
        shape = ["batch", heads, "past", self.size // heads]
        past = [graph.input(f"past_{name}", np.float32, shape) for name in kept]
        attended = graph.add_several(
            "Attention", query, key, value, self.seen, *past, names=[None, *kept], q_num_heads=heads, kv_num_heads=heads
        )[0]
        for name in kept:
            graph.output(name, np.float32, ["batch", heads, "all", self.size // heads])
        attended = graph.add("Gather", graph.add("Reshape", attended, self.flat), self.real)
        hidden = graph.add("Add", hidden, graph.linear(attended, layer.attention.out.weight))
        states = graph.layer_norm(hidden, layer.mlp_norm)
        gate, up = (graph.linear(states, part) for part in layer.up.weight.chunk(2))
        inner = graph.add("Mul", graph.add("Gelu", gate, approximate="tanh"), up)
        return graph.add("Add", hidden, graph.linear(inner, layer.down.weight))

    def keep(self, hidden: str, layer: Any, kept: list[str]) -> None:
        """Add the keys and values of tokens that do not pass a layer but are attended to there."""
        graph, heads, width = self.graph, self.heads, self.size // self.heads
        key, value = self._projected(hidden, layer, layer.attention.qkv.weight[self.size :], 2)
        key = graph.add("RotaryEmbedding", key, *self.turn, num_heads=heads)
        for name, part in zip(kept, (key, value), strict=True):
            by_head = graph.add("Reshape", part, graph.constant([0, 0, heads, width]))
            graph.add("Transpose", by_head, name=name, perm=[0, 2, 1, 3])
            graph.output(name, np.float32, ["batch", heads, "length", width])

    def _projected(self, hidden: str, layer: Any, matrix: Tensor, parts: int) -> list[str]:
        """Return what attention projects states to, (batch, length, hidden) each."""
        graph = self.graph
        states = graph.layer_norm(hidden, layer.attention_norm)
        projected = graph.add("Gather", graph.linear(states, matrix), self.places)
        return graph.add_several("Split", projected, names=[None] * parts, axis=2, num_outputs=parts)
