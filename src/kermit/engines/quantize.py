"""Quantize a float32 graph to int8: weights per channel, activations per token.

Matrix products run in integers: weights are int8 with one scale per output, activations uint8 around 128. The
activations of a token are scaled by their own maximum, so that the predictions for a text do not depend on the rest of
its batch. The output of a layer norm has the same magnitude for every token, so its range is measured once, on
calibration rows. The word embedding is int8 with one scale per token, and stored once for both ends.

The dynamic quantization of ONNX Runtime has one scale per tensor, shared by all texts of a batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import onnx

from kermit.canvas.arrays import Array
from kermit.engines.graph import Graph

RANGE_MARGIN = 1.1
"""How far the output of a layer norm may exceed its range on calibration rows before it is clipped."""

_ZERO, _STEPS = 128, 127
"""The uint8 that stands for 0, and the number of steps on either side."""

_NARROW = 8
"""Products with at most this many outputs stay in float32."""


def static_activations(graph: Graph) -> list[str]:
    """Return the normalised activations that matrix products read; `quantize` needs their ranges."""
    read = {node.input[0] for node in graph.nodes if node.op_type in ("MatMul", "Gemm")}
    return sorted(read & graph.normalised)


def quantize(graph: Graph, embedding: str, ranges: Mapping[str, float]) -> Graph:
    """Return a graph in int8; `ranges` are the largest absolute values of its `static_activations`."""
    return _Quantizer(graph, embedding, ranges).run()


class _Quantizer:
    """Copies a graph node by node, and rewrites matrix products and the embedding."""

    def __init__(self, graph: Graph, embedding: str, ranges: Mapping[str, float]) -> None:
        self.source, self.embedding, self.ranges = graph, embedding, ranges
        self.target = graph.without_nodes()
        self.readers = Counter(name for node in graph.nodes for name in node.input)
        self.without_bias: dict[str, onnx.NodeProto] = {}  # products that can take a bias, by output name
        table, scales = _rounded(self.target.constants.pop(embedding))
        self.table = self.target.constant(table, name=f"{embedding}_int8")
        self.table_scales = self.target.constant(scales, name=f"{embedding}_scales")
        self.activations: dict[str, tuple[str, str, str | None]] = {}

    def run(self) -> Graph:
        for node in self.source.nodes:
            match node.op_type:
                case "Gather" if node.input[0] == self.embedding:
                    self._look_up(node)
                case "Gemm" if node.input[1] == self.embedding:
                    transposed = self.target.add("Transpose", self.table, perm=[1, 0])  # folded at session creation
                    self._multiply(node.input[0], transposed, self.table_scales, node.output[0], *node.input[2:])
                case "MatMul" if (weight := self._weight(node.input[1])) is not None:
                    matrix, scales = _rounded(weight.T)
                    constants = self.target.constant(matrix.T), self.target.constant(scales)
                    self._multiply(node.input[0], *constants, node.output[0])
                case "Add" if (product := self._product_before(node)) is not None:
                    product.input.extend(["", next(name for name in node.input if name in self.source.constants)])
                    product.output[0] = node.output[0]
                case _:
                    self.target.nodes.append(node)
        return self.target

    def _weight(self, name: str) -> Array | None:
        """Return a constant that is worth quantizing, or None."""
        array = self.source.constants.get(name)
        return array if array is not None and array.ndim == 2 and array.shape[1] > _NARROW else None

    def _look_up(self, node: onnx.NodeProto) -> None:
        """Add the embedding of tokens."""
        table, scales = (self.target.add("Gather", part, node.input[1]) for part in (self.table, self.table_scales))
        values = self.target.add("Cast", table, to=onnx.TensorProto.FLOAT)
        scales = self.target.add("Unsqueeze", scales, self.target.constant([-1]))
        self.target.add("Mul", values, scales, name=node.output[0])

    def _multiply(self, states: str, matrix: str, scales: str, output: str, *bias: str) -> None:
        """Add the product of activations and an int8 matrix, with an optional bias."""
        rounded, step, peak = self._activations(states)
        zero = self.target.constant(_ZERO, np.uint8)
        inputs, microsoft = (rounded, matrix, step, scales, zero), "com.microsoft"
        if peak is None:
            extra = ["", *bias] if bias else []
            self.target.add("MatMulIntegerToFloat", *inputs, *extra, name=output, domain=microsoft)
            if not bias and self.readers[output] == 1:
                self.without_bias[output] = self.target.nodes[-1]
            return
        product = self.target.add("MatMulIntegerToFloat", *inputs, domain=microsoft)
        scaled = self.target.add("Mul", product, peak, name=None if bias else output)
        if bias:
            self.target.add("Add", scaled, *bias, name=output)

    def _activations(self, states: str) -> tuple[str, str, str | None]:
        """Return activations in uint8, their step, and the factor for each token's product, if any."""
        if states not in self.activations:
            add, constant = self.target.add, self.target.constant
            zero = constant(_ZERO, np.uint8)
            if states in self.ranges:
                step, peak = constant(self.ranges[states] * RANGE_MARGIN / _STEPS, np.float32), None
                self.activations[states] = (add("QuantizeLinear", states, step, zero), step, peak)
            else:
                step = constant(1 / _STEPS, np.float32)
                peak = add("ReduceMax", add("Abs", states), constant([-1]), keepdims=1)
                rounded = add("QuantizeLinear", add("Div", states, peak), step, zero)  # 0 / 0 is later multiplied by 0
                self.activations[states] = (rounded, step, peak)
        return self.activations[states]

    def _product_before(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        """Return the product to which a node adds a bias, or None if it does something else."""
        products = [self.without_bias[name] for name in node.input if name in self.without_bias]
        biases = [self.source.constants[name] for name in node.input if name in self.source.constants]
        return products[0] if products and biases and biases[0].ndim == 1 else None


def _rounded(weight: Array) -> tuple[Array, Array]:
    """Return weights (outputs, inputs) in int8, and the scale of each output.

    CPUs without VNNI add the products of two neighbouring inputs in 16 bits. The weights are kept small enough not to
    overflow there, so that all CPUs compute the same.
    """
    even = np.pad(weight, [(0, 0), (0, weight.shape[1] % 2)])
    sides = [np.maximum(sign * even, 0) for sign in (1, -1)]
    scales = np.max([(side[:, ::2] + side[:, 1::2]).max(1) for side in sides], 0) / _STEPS
    scales[scales == 0] = 1.0
    return np.round(weight / scales[:, None]).astype(np.int8), scales.astype(np.float32)
