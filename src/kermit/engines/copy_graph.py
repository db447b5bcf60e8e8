"""Copying in an ONNX graph (`kermit.modeling.copying`): a canvas's tokens add to the softmax of its slots."""

from __future__ import annotations

import numpy as np

from kermit.canvas import SpecialTokens
from kermit.engines.graph import Graph
from kermit.engines.weights import array_of, linear
from kermit.modeling.copying import NEVER, Copying


def add_copy_nodes(
    graph: Graph, copying: Copying, vocab_size: int, specials: SpecialTokens, states: str, logits: str
) -> str:
    """Add the scores of copying a canvas's tokens to the (slots, vocab) logits; return the name of the sum."""
    length = graph.add("Shape", "token_ids", start=1, end=2)
    rows = graph.add("Div", "right", length)
    scores = _scores(graph, copying, states, rows)
    token_ids = graph.add("Gather", "token_ids", rows)
    allowed = _allowed(graph, token_ids, vocab_size, specials)
    never = graph.constant(NEVER, np.float32)
    scores = graph.add("Where", allowed, scores, never)
    peak = graph.add("ReduceMax", scores, graph.constant([1]), keepdims=1)
    zero = graph.constant(0.0, np.float32)
    each = graph.add("Where", allowed, graph.add("Exp", graph.add("Sub", scores, peak)), zero)
    nothing = graph.add("Expand", zero, graph.add("Shape", logits))
    mass = graph.add("ScatterElements", nothing, token_ids, each, axis=1, reduction="add")
    copied = graph.add("Greater", mass, zero)
    others = graph.add("Add", graph.add("Log", mass), peak)
    top = graph.add("Max", logits, others)
    parts = (graph.add("Exp", graph.add("Sub", part, top)) for part in (logits, others))
    both = graph.add("Add", graph.add("Log", graph.add("Add", *parts)), top)
    return graph.add("Where", copied, both, logits)


def _scores(graph: Graph, copying: Copying, states: str, rows: str) -> str:
    """Add the scores of all tokens of each slot's canvas; (slots, length)."""
    flat = graph.add("Reshape", states, graph.constant([-1, copying.answer.in_features]))
    beside = graph.add("Concat", *(graph.add("Gather", flat, side) for side in ("left", "right")), axis=1)
    graph.normalised.add(beside)
    asking = graph.add("Concat", linear(graph, beside, copying.around), linear(graph, beside, copying.ask), axis=1)
    neighbours = graph.add("Concat", _rolled(graph, states, -1), _rolled(graph, states, 1), axis=2)
    around, answer = linear(graph, neighbours, copying.around), linear(graph, states, copying.answer)
    answering = graph.add("Gather", graph.add("Concat", around, answer, axis=2), rows)
    products = graph.add("MatMul", answering, graph.add("Unsqueeze", asking, graph.constant([2])))
    products = graph.add("Squeeze", products, graph.constant([2]))
    scaled = graph.add("Mul", products, graph.constant(copying.scale, np.float32))
    return graph.add("Add", scaled, graph.constant(array_of(copying.bias)))


def _rolled(graph: Graph, states: str, start: int) -> str:
    """Rotate states (batch, length, hidden) along their length, so that they begin at a place."""
    far, axis = graph.constant([2**31]), graph.constant([1])
    place, zero = graph.constant([start]), graph.constant([0])
    return graph.add(
        "Concat", graph.add("Slice", states, place, far, axis), graph.add("Slice", states, zero, place, axis), axis=1
    )


def _allowed(graph: Graph, token_ids: str, vocab_size: int, specials: SpecialTokens) -> str:
    """Add a bool for every token: True unless it is special."""
    allowed = np.ones(vocab_size, dtype=bool)
    allowed[sorted(specials.ids)] = False
    return graph.add("Gather", graph.constant(allowed), token_ids)
