"""ONNX graphs built by hand: nodes, constants and layers.

Every method adds nodes and returns the name of their output, so that the code of a network reads like its formulas. The
graph is in float32; `kermit.engines.quantize` turns it into int8. This module knows no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from torch import Tensor, nn

from kermit.canvas.arrays import Array

Shape = Sequence[int | str]

OPSET, IR_VERSION = 23, 10
"""The first opset with `Attention` and `RotaryEmbedding`, and the oldest file format that supports it."""

_NORMS = ("LayerNormalization", "RMSNormalization")

_SMALL = 64
"""Equal constants up to this size are shared."""


class Graph:
    """A graph under construction.

    `normalised` names activations that have about the same magnitude for every token, because a layer norm made them.
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.normalised: set[str] = set()
        self._inputs: dict[str, onnx.ValueInfoProto] = {}
        self._outputs: dict[str, onnx.ValueInfoProto] = {}
        self._shared: dict[tuple[Any, ...], str] = {}
        self._count = 0

    def input(self, name: str, dtype: Any, shape: Shape) -> str:
        """Declare an input; named dimensions may differ between calls."""
        self._inputs[name] = _value(name, dtype, shape)
        return name

    def output(self, name: str, dtype: Any, shape: Shape) -> None:
        """Declare an output; a node must compute it under that name."""
        self._outputs[name] = _value(name, dtype, shape)

    def constant(self, value: Any, dtype: Any = None, *, name: str | None = None) -> str:
        """Add a constant; weights of torch in float32."""
        if isinstance(value, Tensor):
            value = value.detach().float().cpu().numpy()
        array = np.ascontiguousarray(value, dtype=dtype).reshape(np.shape(value))
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= _SMALL and name is None else None
        if key is not None and key in self._shared:
            return self._shared[key]
        name = name or self._new("constant")
        self.constants[name] = array
        if key is not None:
            self._shared[key] = name
        return name

    def add(self, operator: str, *inputs: str, name: str | None = None, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output, and return its name."""
        return self.add_several(operator, *inputs, names=[name], domain=domain, **attributes)[0]

    def add_several(
        self, operator: str, *inputs: str, names: Sequence[str | None], domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node with several outputs, each named or not, and return their names."""
        outputs = [self._new(operator) if name is None else name for name in names]
        self.nodes.append(helper.make_node(operator, inputs, outputs, domain=domain, **attributes))
        return outputs

    def linear(self, states: str, layer: nn.Linear | Tensor | Array) -> str:
        """Add a linear layer, or a product with weights (out, in)."""
        weight, bias = (layer.weight, layer.bias) if isinstance(layer, nn.Linear) else (layer, None)
        found = self.add("MatMul", states, self.constant(weight.T))
        return found if bias is None else self.add("Add", found, self.constant(bias))

    def layer_norm(self, states: str, layer: nn.LayerNorm) -> str:
        """Add a layer norm over the last axis."""
        scales = [self.constant(weight) for weight in (layer.weight, layer.bias) if weight is not None]
        found = self.add("LayerNormalization", states, *scales, axis=-1, epsilon=layer.eps)
        self.normalised.add(found)
        return found

    def graft(self, model: onnx.ModelProto, prefix: str) -> None:
        """Add the nodes of another model; inputs and outputs keep their names, all others get the prefix."""
        kept = {value.name for value in (*model.graph.input, *model.graph.output)} | {""}

        def renamed(names: Sequence[str]) -> list[str]:
            return [name if name in kept else prefix + name for name in names]

        for tensor in model.graph.initializer:
            self.constants[renamed([tensor.name])[0]] = numpy_helper.to_array(tensor)
        for node in model.graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.ClearField("name")
            copy.ClearField("doc_string")
            copy.ClearField("metadata_props")
            copy.input[:], copy.output[:] = renamed(node.input), renamed(node.output)
            self.nodes.append(copy)
            if node.op_type in _NORMS:
                self.normalised.add(copy.output[0])

    def without_nodes(self) -> Graph:
        """Return a graph with the same inputs, outputs and constants."""
        copy = Graph()
        copy.constants, copy.normalised, copy._shared = dict(self.constants), set(self.normalised), dict(self._shared)
        copy._inputs, copy._outputs, copy._count = dict(self._inputs), dict(self._outputs), self._count
        return copy

    def model(self, metadata: Mapping[str, str], *, also: Sequence[str] = ()) -> onnx.ModelProto:
        """Return the graph as a model without unread inputs and constants; `also` names further values to return."""
        read = {name for node in self.nodes for name in node.input}
        seen = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in also]
        graph = helper.make_graph(
            self.nodes,
            "kermit",
            [value for name, value in self._inputs.items() if name in read],
            [*self._outputs.values(), *seen],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items() if name in read],
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="kermit")
        helper.set_model_props(model, dict(metadata))
        return model

    def _new(self, operator: str) -> str:
        self._count += 1
        return f"{operator}_{self._count}"


def _value(name: str, dtype: Any, shape: Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))
