"""KERMIT's own trunk as an ONNX graph, with keys, values and final states of earlier tokens as inputs and outputs.

It is built node by node rather than traced: fractional positions, the cache and attention then take one operator each,
and a call spends its time in matrix products.
"""

from __future__ import annotations

import numpy as np

from kermit.engines.graph import Graph
from kermit.engines.weights import array_of, norm
from kermit.modeling.encoder import Encoder


def add_encoder(graph: Graph, encoder: Encoder, embedded: str, *, caches: bool) -> str:
    """Add the trunk, which reads `positions` (batch, length) and `mask` (batch, length, past + length).

    Only attention sees padded rows. Everything else sees a flat list of the real tokens: `real` (tokens,) holds their
    places in the flattened rows, and `places` (batch, length) the index of the token at each place, arbitrary at
    padding.

    With a cache, it takes `past_keys_N`, `past_values_N` (batch, heads, past, width) and `past_states` (batch, past,
    hidden), and returns `keys_N`, `values_N` and `states` of past and new tokens.

    Args:
        graph: the graph to extend.
        encoder: the trunk.
        embedded: (batch, length, hidden), the sum of all embeddings.
        caches: whether to add a cache.

    Returns:
        The name of the states, (batch, past + length, hidden).
    """
    config = encoder.config
    heads, size = config.num_attention_heads, config.hidden_size
    width = size // heads
    real = graph.input("real", np.int64, ["tokens"])
    places = graph.input("places", np.int64, ["batch", "length"])
    flat = graph.constant([-1, size])
    rates = config.rotary_base ** -(np.arange(width // 2, dtype=np.float32) / (width // 2))
    angles = graph.add("Mul", graph.add("Unsqueeze", "positions", graph.constant([2])), graph.constant(rates))
    turn = (graph.add("Cos", angles), graph.add("Sin", angles))
    seen = graph.add("Unsqueeze", "mask", graph.constant([1]))
    hidden = norm(graph, graph.add("Gather", graph.add("Reshape", embedded, flat), real), encoder.embedding_norm)
    for number, layer in enumerate(encoder.layers):
        weights = {name: array_of(weight) for name, weight in layer.state_dict().items()}
        states = graph.layer_norm(hidden, weights["attention_norm.weight"], None, config.norm_eps)
        projected = graph.add("Gather", graph.linear(states, weights["attention.qkv.weight"]), places)
        query, key, value = graph.add_several("Split", projected, names=[None] * 3, axis=2, num_outputs=3)
        query, key = (graph.add("RotaryEmbedding", part, *turn, num_heads=heads) for part in (query, key))
        kept = [f"{kind}_{number}" for kind in ("keys", "values")] if caches else []
        past = [graph.input(f"past_{name}", np.float32, ["batch", heads, "past", width]) for name in kept]
        attended = graph.add_several(
            "Attention", query, key, value, seen, *past, names=[None, *kept], q_num_heads=heads, kv_num_heads=heads
        )[0]
        for name in kept:
            graph.output(name, np.float32, ["batch", heads, "all", width])
        attended = graph.add("Gather", graph.add("Reshape", attended, flat), real)
        hidden = graph.add("Add", hidden, graph.linear(attended, weights["attention.out.weight"]))
        states = graph.layer_norm(hidden, weights["mlp_norm.weight"], None, config.norm_eps)
        gate, up = (graph.linear(states, part) for part in np.split(weights["up.weight"], 2))
        inner = graph.add("Mul", graph.add("Gelu", gate, approximate="tanh"), up)
        hidden = graph.add("Add", hidden, graph.linear(inner, weights["down.weight"]))
    hidden = norm(graph, hidden, encoder.norm)
    if not caches:
        return graph.add("Gather", hidden, places, name="states")
    past_states = graph.input("past_states", np.float32, ["batch", "past", size])
    return graph.add("Concat", past_states, graph.add("Gather", hidden, places), name="states", axis=1)
