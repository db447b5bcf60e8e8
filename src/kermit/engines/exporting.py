"""Export a KERMIT model of torch to ONNX files that `OnnxEngine` runs.

One graph serves the first and later calls for a text. KERMIT's own trunk is built node by node; others are traced. The
graph is checked against torch before its file replaces an old one.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kermit.engines.comparison import Difference, compare, sample_length, sample_rows
from kermit.engines.encoder_graph import add_context, add_encoder
from kermit.engines.engine import Asked
from kermit.engines.exported_files import FilePrecision, context_file
from kermit.engines.graph import Graph
from kermit.engines.head_graph import EMBEDDING, add_embedding, add_head
from kermit.engines.onnx_engine import GRAPH_VERSION, OnnxEngine, weights_checksum
from kermit.engines.quantize import quantize, static_activations
from kermit.engines.torch_engine import TorchEngine
from kermit.engines.traced_graph import add_traced
from kermit.errors import ModelError
from kermit.loading import load_whole, read_config
from kermit.modeling import KermitConfig, KermitForInsertion
from kermit.modeling.encoder import Encoder
from kermit.modeling.trunk import position_table
from kermit.provenance import partial

TOLERANCE = 1e-3
"""The largest difference from torch that a float32 file may have."""

_CALIBRATIONS = 4
"""Number of batches of synthetic rows on which ranges are measured."""

_BESIDE = ("config.json", "tokenizer.json", "tokenizer_config.json", "README.md")
"""The files to copy to another output folder, so that it is a complete model."""


@dataclass(frozen=True)
class ExportedFile:
    """An exported file; `size` in bytes includes the file for given text, `difference` is that from torch."""

    path: Path
    precision: FilePrecision
    size: int
    difference: Difference


def export_model(
    folder: Path, output: Path | None = None, *, precisions: Sequence[FilePrecision] = tuple(FilePrecision)
) -> list[ExportedFile]:
    """Write the ONNX files of a model to `onnx/` in its folder, or in `output` with its config and tokenizer."""
    kind = read_config(folder).get("model_type")
    if kind != KermitConfig.model_type:
        raise ModelError(f"{folder} is a model of type {kind}; only models of type kermit can be exported")
    model = load_whole(KermitForInsertion, folder)
    reference = TorchEngine(model)
    graphs = build_graphs(model)
    written = []
    for precision in precisions:
        contents = serialize(graphs, model, precision, weights=weights_checksum(folder))
        difference = compare(engine_of(contents, model), reference)
        if not difference.largest < (TOLERANCE if precision is FilePrecision.FLOAT32 else np.inf):
            raise ModelError(
                f"the {precision} graph differs from the model by {difference.largest:.2g}; its file was not written"
            )
        path = precision.file_in(output or folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        for file, content in reversed(list(zip((path, context_file(path)), contents, strict=False))):
            partial(file).write_bytes(content)
            partial(file).replace(file)
        written.append(ExportedFile(path, precision, sum(map(len, contents)), difference))
    if output is not None:
        for name in _BESIDE:
            if (folder / name).is_file() and output.resolve() != folder.resolve():
                shutil.copyfile(folder / name, output / name)
    return written


def build_graphs(model: KermitForInsertion) -> list[Graph]:
    """Build the graphs of a model in evaluation mode, in float32.

    With `given_layers`, the graph that reads given tokens is the second.
    """
    trunk = model.trunk
    if not (isinstance(trunk, Encoder) and trunk.config.given_layers):
        return [_model_graph(model)]
    context = Graph()
    context.input("positions", np.float32, ["batch", "length"])
    context.input("mask", np.bool_, ["batch", "length", "length"])
    states = add_context(context, trunk, add_embedding(context, model))
    context.output(states, np.float32, ["batch", "length", model.config.hidden_size])
    return [_model_graph(model), context]


def _model_graph(model: KermitForInsertion) -> Graph:
    graph = Graph()
    graph.input("positions", np.float32, ["batch", "length"])
    trunk, caches = model.trunk, model.config.cached_context
    embedded = add_embedding(graph, model)
    if isinstance(trunk, Encoder):
        graph.input("mask", np.bool_, ["batch", "length", "all"])
        states = add_encoder(graph, trunk, embedded, caches=caches)
    else:
        graph.input("mask", np.bool_, ["batch", "length", "length"])
        states = add_traced(graph, model, embedded)
    graph.output(states, np.float32, ["batch", "all", model.config.hidden_size])
    add_head(graph, model, states)
    return graph


def engine_of(contents: Sequence[bytes], model: KermitForInsertion) -> OnnxEngine:
    """Return the engine that runs the files of a model."""
    own, *context = contents
    return OnnxEngine.of(own, model.config.to_dict(), context=context[0] if context else None)


def serialize(
    graphs: Sequence[Graph], model: KermitForInsertion, precision: FilePrecision, *, weights: str = ""
) -> list[bytes]:
    """Return the bytes of the exported files, one per graph; `weights` is the checksum of the weights."""
    limit, table = model.kermit.max_positions, position_table(model.trunk)
    about = {
        "graph_version": GRAPH_VERSION,
        "precision": precision,
        "weights": weights,
        "parameters": str(sum(parameter.numel() for parameter in model.parameters())),
        "max_positions": "" if limit is None else str(limit),
        "table_size": "" if table is None else str(limit or table.num_embeddings - model.kermit.position_offset),
    }
    if precision is FilePrecision.INT8:
        graphs = _quantized(graphs, model, about)
    return [graph.model(about).SerializeToString() for graph in graphs]


def _quantized(graphs: Sequence[Graph], model: KermitForInsertion, about: Mapping[str, str]) -> list[Graph]:
    """Return the graphs in int8, with activation ranges measured on synthetic rows."""
    names = [static_activations(graph) for graph in graphs]
    measured = [graph.model(about, also=own).SerializeToString() for graph, own in zip(graphs, names, strict=True)]
    engine = engine_of(measured, model)
    ranges: list[dict[str, float]] = [{} for _ in graphs]
    for seed in range(_CALIBRATIONS):
        length = sample_length(engine.info, 24)
        rows = sample_rows(engine.info, seed, batch=16, length=length, order=1 + seed % 2)
        place = np.arange(rows.token_ids.size)
        for own, found in zip(ranges, engine.values(rows, Asked(place, place), names), strict=True):
            for name, value in found.items():
                own[name] = max(own.get(name, 0.0), float(np.abs(value).max()))
    return [quantize(graph, EMBEDDING, own) for graph, own in zip(graphs, ranges, strict=True)]
