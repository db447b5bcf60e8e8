"""The parts of an ONNX graph around a trunk: the embeddings before it, and the slot head after it.

Log-probabilities over the vocabulary and the best tokens are computed inside the graph. The embedding is one constant
that both ends read, so that a file holds it once.
"""

from __future__ import annotations

import numpy as np

from kermit.engines.copy_graph import add_copy_nodes
from kermit.engines.graph import Graph
from kermit.engines.weights import array_of, linear, norm
from kermit.modeling import KermitForInsertion

EMBEDDING = "embedding"
"""The name of the word embedding."""


def add_embedding(graph: Graph, model: KermitForInsertion) -> str:
    """Add the sum of the embeddings of `token_ids`, `segment_ids` and `orders`, and return its name."""
    for name in ("token_ids", "segment_ids", "orders"):
        graph.input(name, np.int64, ["batch", "length"])
    table = array_of(model.get_input_embeddings().weight)
    embedded = graph.add("Gather", graph.constant(table, name=EMBEDDING), "token_ids")
    if model.kermit.segment_embeddings is not None:
        segments = graph.constant(array_of(model.kermit.segment_embeddings.weight))
        embedded = graph.add("Add", embedded, graph.add("Gather", segments, "segment_ids"))
    if model.kermit.order_embeddings is not None:
        orders = np.pad(array_of(model.kermit.order_embeddings.weight), [(1, 0), (0, 0)])  # given tokens have none
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
    vectors = norm(graph, graph.add("Gelu", linear(graph, read, head.project)), head.norm)
    bias = graph.constant(array_of(model.content_bias))
    logits = graph.add("Gemm", vectors, EMBEDDING, bias, transB=1)
    if head.copying is not None:
        logits = add_copy_nodes(graph, head.copying, model.config.vocab_size, model.specials, states, logits)
    log_probs = graph.add("LogSoftmax", logits, name="content", axis=-1)
    graph.output("content", np.float32, ["slots", model.config.vocab_size])
    end_id = model.specials.end_of_slot_id
    graph.add("Gather", log_probs, graph.constant(end_id), name="end", axis=1)
    one = graph.constant([1])
    token = graph.add("Unsqueeze", "wanted", one)
    graph.add("Squeeze", graph.add("GatherElements", log_probs, token, axis=1), one, name="wanted_log_probs")
    graph.output("wanted_log_probs", np.float32, ["slots"])
    _add_best(graph, log_probs, model.config.vocab_size, end_id)
    location = graph.linear(vectors, array_of(head.location.weight))
    graph.add("Squeeze", location, graph.constant([1]), name="location")
    graph.output("tokens", np.int64, ["slots", "best"])
    graph.output("log_probs", np.float32, ["slots", "best"])
    graph.output("end", np.float32, ["slots"])
    graph.output("location", np.float32, ["slots"])
    if head.completion is not None:
        logit = graph.add("Squeeze", linear(graph, vectors, head.completion), graph.constant([1]))
        graph.add("Neg", graph.add("Softplus", graph.add("Neg", logit)), name="completion")  # log of the sigmoid
        graph.output("completion", np.float32, ["slots"])
    if head.stop is not None:
        first = graph.add("Gather", states, graph.constant(0), axis=1)
        graph.add("Squeeze", linear(graph, first, head.stop), graph.constant([1]), name="stop")
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
