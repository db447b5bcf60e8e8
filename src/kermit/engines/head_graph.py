"""The parts of an ONNX graph around a trunk: the embeddings before it, and the slot head after it.

Log-probabilities over the vocabulary and the best tokens are computed inside the graph. The embedding is one constant
that both ends read, so that a file holds it once. With `kermit.modeling.copying`, a canvas's tokens add to the softmax
of its slots.
"""

from __future__ import annotations

import numpy as np
from torch import nn

from kermit.canvas import SpecialTokens
from kermit.engines.graph import Graph
from kermit.modeling import KermitForInsertion
from kermit.modeling.copying import NEVER, Copying

EMBEDDING = "embedding"
"""The name of the word embedding."""


def add_embedding(graph: Graph, model: KermitForInsertion) -> str:
    """Add the sum of the embeddings of `token_ids`, `segment_ids` and `orders`, and return its name."""
    for name in ("token_ids", "segment_ids", "orders"):
        graph.input(name, np.int64, ["batch", "length"])
    table = graph.constant(model.get_input_embeddings().weight, name=EMBEDDING)
    embedded = graph.add("Gather", table, "token_ids")
    if model.kermit.segment_embeddings is not None:
        segments = graph.constant(model.kermit.segment_embeddings.weight)
        embedded = graph.add("Add", embedded, graph.add("Gather", segments, "segment_ids"))
    if model.kermit.order_embeddings is not None:
        orders = nn.functional.pad(model.kermit.order_embeddings.weight, (0, 0, 1, 0))  # given tokens have none
        embedded = graph.add("Add", embedded, graph.add("Gather", graph.constant(orders), "orders"))
    return embedded


def add_head(graph: Graph, model: KermitForInsertion, states: str) -> None:
    """Add the predictions for the slots `left`, `right` (slots,), their `top` (1,) best tokens and `wanted` tokens."""
    for name in ("left", "right", "wanted"):
        graph.input(name, np.int64, ["slots"])
    graph.input("top", np.int64, [1])
    head, width = model.head, model.config.hidden_size
    flat = graph.add("Reshape", states, graph.constant([-1, width]))
    read = graph.add("Gather", flat, "right")
    if head.reads_both:
        read = graph.add("Concat", graph.add("Gather", flat, "left"), read, axis=1)
    graph.normalised.add(read)
    vectors = graph.layer_norm(graph.add("Gelu", graph.linear(read, head.project)), head.norm)
    logits = graph.add("Gemm", vectors, EMBEDDING, graph.constant(model.content_bias), transB=1)
    if head.copying is not None:
        logits = _add_copies(graph, head.copying, model.config.vocab_size, model.specials, states, logits)
    log_probs = graph.add("LogSoftmax", logits, name="content", axis=-1)
    graph.output("content", np.float32, ["slots", model.config.vocab_size])
    end_id = model.specials.end_of_slot_id
    graph.add("Gather", log_probs, graph.constant(end_id), name="end", axis=1)
    one = graph.constant([1])
    token = graph.add("Unsqueeze", "wanted", one)
    graph.add("Squeeze", graph.add("GatherElements", log_probs, token, axis=1), one, name="wanted_log_probs")
    graph.output("wanted_log_probs", np.float32, ["slots"])
    _add_best(graph, log_probs, model.config.vocab_size, end_id)
    location = graph.linear(vectors, head.location.weight)
    graph.add("Squeeze", location, graph.constant([1]), name="location")
    graph.output("tokens", np.int64, ["slots", "best"])
    graph.output("log_probs", np.float32, ["slots", "best"])
    graph.output("end", np.float32, ["slots"])
    graph.output("location", np.float32, ["slots"])
    if head.completion is not None:
        logit = graph.add("Squeeze", graph.linear(vectors, head.completion), graph.constant([1]))
        graph.add("Neg", graph.add("Softplus", graph.add("Neg", logit)), name="completion")  # log of the sigmoid
        graph.output("completion", np.float32, ["slots"])
    if head.stop is not None:
        first = graph.add("Gather", states, graph.constant(0), axis=1)
        graph.add("Squeeze", graph.linear(first, head.stop), graph.constant([1]), name="stop")
        graph.output("stop", np.float32, ["batch"])


def _add_best(graph: Graph, log_probs: str, vocab_size: int, end_id: int) -> None:
    """Add `tokens` and `log_probs`, the `top` best without end-of-slot; ties go to the smaller id.

    The search goes by blocks of the vocabulary: the k + 1 blocks with the highest maxima contain the k + 1 best tokens.
    A maximum is several times cheaper than a top-k.
    """
    width = _block_width(vocab_size)
    blocks = graph.add("Reshape", log_probs, graph.constant([-1, vocab_size // width, width]))
    maxima = graph.add("ReduceMax", blocks, graph.constant([2]), keepdims=0)
    some = graph.add("Add", "top", graph.constant([1]))  # end-of-slot may be the best of its block
    some = graph.add("Min", some, graph.constant([vocab_size // width]))
    chosen = graph.add_several("TopK", maxima, some, names=[None, None])[1]
    chosen = graph.add_several("TopK", chosen, some, names=[None, None], largest=0)[0]  # in the order of ids
    chosen = graph.add("Unsqueeze", chosen, graph.constant([2]))
    values = graph.add("GatherND", blocks, chosen, batch_dims=1)
    start = graph.add("Mul", chosen, graph.constant(width))
    tokens = graph.add("Add", start, graph.constant(np.arange(width)))
    ends = graph.add("Equal", tokens, graph.constant(end_id))
    values = graph.add("Where", ends, graph.constant(-np.inf, np.float32), values)
    flat = graph.add("Flatten", values, axis=1)
    place = graph.add_several("TopK", flat, "top", names=["log_probs", None])[1]
    graph.add("GatherElements", graph.add("Flatten", tokens, axis=1), place, name="tokens", axis=1)


def _block_width(vocab_size: int) -> int:
    """Return the divisor of a vocabulary's size that is nearest to its square root; 1 if the size is prime."""
    root = vocab_size**0.5
    return min((d for d in range(1, vocab_size) if vocab_size % d == 0), key=lambda d: abs(d - root), default=1)


def _add_copies(
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
    asking = graph.add("Concat", graph.linear(beside, copying.around), graph.linear(beside, copying.ask), axis=1)
    neighbours = graph.add("Concat", _rolled(graph, states, -1), _rolled(graph, states, 1), axis=2)
    around, answer = graph.linear(neighbours, copying.around), graph.linear(states, copying.answer)
    answering = graph.add("Gather", graph.add("Concat", around, answer, axis=2), rows)
    products = graph.add("MatMul", answering, graph.add("Unsqueeze", asking, graph.constant([2])))
    products = graph.add("Squeeze", products, graph.constant([2]))
    scaled = graph.add("Mul", products, graph.constant(copying.scale, np.float32))
    return graph.add("Add", scaled, graph.constant(copying.bias))


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
