"""Graphs in int8: single matrix products, and file sizes."""

import numpy as np
import onnxruntime
import pytest
from exported import graph_of, graphs_of, model_of, own_model

from kermit.engines.exported_files import FilePrecision
from kermit.engines.exporting import build_graphs, serialize
from kermit.engines.graph import Graph
from kermit.engines.quantize import quantize, static_activations

RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.standard_normal((24, 16)).astype(np.float32)
TABLE = RANDOM.standard_normal((9, 16)).astype(np.float32)


def run(graph: Graph, **inputs: object) -> np.ndarray:
    session = onnxruntime.InferenceSession(graph.model({}).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["output"], inputs)[0]  # type: ignore[no-any-return]


def product() -> Graph:
    """(rows, 16) times the weight."""
    graph = Graph()
    graph.constant(TABLE, name="table")
    states = graph.input("states", np.float32, ["rows", 16])
    graph.add("Identity", graph.linear(states, WEIGHT), name="output")
    graph.output("output", np.float32, ["rows", 24])
    return graph


def test_a_token_is_rounded_by_its_own_largest_value() -> None:
    states = RANDOM.standard_normal((3, 16)).astype(np.float32) * np.array([[1.0], [1e-4], [1e4]], np.float32)
    exact = states @ WEIGHT.T
    found = run(quantize(product(), "table", {}), states=states)
    assert (np.abs(found - exact).max(1) < 0.02 * np.abs(exact).max(1)).all()


def test_a_token_without_activations_gives_zero() -> None:
    states = np.zeros((2, 16), np.float32)
    states[1] = 1.0
    found = run(quantize(product(), "table", {}), states=states)
    assert found[0].tolist() == [0.0] * 24
    assert np.isfinite(found).all()


def test_normalised_activations_are_rounded_by_their_range() -> None:
    graph = product()
    assert static_activations(graph) == []
    graph.normalised.add("states")
    assert static_activations(graph) == ["states"]
    states = np.linspace(-2, 2, 32, dtype=np.float32).reshape(2, 16)
    exact = states @ WEIGHT.T
    close = run(quantize(graph, "table", {"states": 2.0}), states=states)
    assert np.abs(close - exact).max() < 0.1
    clipped = run(quantize(graph, "table", {"states": 0.5}), states=states)
    assert np.abs(clipped - exact).max() > 1


def test_every_token_embedding_has_its_own_scale() -> None:
    graph = Graph()
    table = TABLE * np.logspace(-3, 3, 9, dtype=np.float32)[:, None]
    ids = graph.input("ids", np.int64, ["rows"])
    graph.add("Gather", graph.constant(table, name="table"), ids, name="output")
    graph.output("output", np.float32, ["rows", 16])
    found = run(quantize(graph, "table", {}), ids=np.arange(9))
    assert (np.abs(found - table).max(1) <= np.abs(table).max(1) / 127).all()


def test_no_two_neighbouring_products_exceed_16_bits() -> None:
    """Otherwise CPUs without VNNI would saturate."""
    weight = np.ones((24, 16), np.float32)
    weight[::2, ::3] = -0.5
    graph = Graph()
    graph.constant(TABLE, name="table")
    graph.linear(graph.input("states", np.float32, ["rows", 16]), weight)
    matrices = [a for a in quantize(graph, "table", {}).constants.values() if a.dtype == np.int8]
    assert len(matrices) == 2
    inputs_first = (matrices[0].T, matrices[1])  # the table is held as tokens by inputs
    for matrix in inputs_first:
        pairs = matrix.astype(np.int64).reshape(8, 2, -1)
        highest, lowest = (255 * side.sum(1) for side in (np.maximum(pairs, 0), np.minimum(pairs, 0)))
        assert highest.max() <= 2**15 - 1
        assert lowest.min() >= -(2**15)
        assert np.abs(matrix).max() > 60


@pytest.mark.parametrize("name", ["own cached", "bert cached"])
def test_all_wide_products_are_in_integers(name: str) -> None:
    graph = quantize(graph_of(name), "embedding", dict.fromkeys(static_activations(graph_of(name)), 1.0))
    products = [node for node in graph.nodes if node.op_type in ("MatMul", "Gemm")]
    assert [graph.constants[node.input[1]].shape[1] for node in products] == [1]  # the location
    layers, per_layer = 2, 5 if name == "own cached" else 6  # ours has one for queries, keys and values
    integers = [node for node in graph.nodes if node.op_type == "MatMulIntegerToFloat"]
    assert len(integers) == layers * per_layer + 2  # slot vectors and the vocabulary


def test_files_contain_every_weight_once() -> None:
    model = own_model(3000, width=64)
    weights = sum(parameter.numel() for parameter in model.parameters())
    graphs = build_graphs(model)
    size = {precision: len(serialize(graphs, model, precision)[0]) for precision in FilePrecision}
    assert size[FilePrecision.FLOAT32] == pytest.approx(4 * weights, rel=0.05)
    assert size[FilePrecision.INT8] == pytest.approx(weights, rel=0.25)  # with scales, 4 bytes for each token


def test_the_float32_graph_is_not_modified() -> None:
    model, graphs = model_of("own"), graphs_of("own")
    before = serialize(graphs, model, FilePrecision.FLOAT32)
    serialize(graphs, model, FilePrecision.INT8)
    assert serialize(graphs, model, FilePrecision.FLOAT32) == before
