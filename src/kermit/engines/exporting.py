"""Export a KERMIT model of torch to ONNX files that `OnnxEngine` runs.

One graph serves the first and later calls for a text. KERMIT's own trunk is built node by node; others are traced. The
graph is checked against torch before its file replaces an old one.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kermit.engines.check import Difference, compare, sample_length, sample_rows
from kermit.engines.encoder_graph import add_encoder
from kermit.engines.engine import Asked
from kermit.engines.exported_files import FilePrecision
from kermit.engines.graph import Graph
from kermit.engines.head_graph import EMBEDDING, add_embedding, add_head
from kermit.engines.onnx_engine import GRAPH_VERSION, OnnxEngine, weights_checksum
from kermit.engines.quantize import quantize, static_activations
from kermit.engines.torch_engine import TorchEngine
from kermit.engines.traced_graph import add_traced
from kermit.errors import ModelError
from kermit.loading import load_whole, read_config, reading
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
    """An exported file.

    Args:
        path: its path.
        precision: of its weights and matrix products.
        size: number of bytes.
        difference: its difference from torch.
    """

    path: Path
    precision: FilePrecision
    size: int
    difference: Difference


def export_model(
    folder: Path, output: Path | None = None, *, precisions: Sequence[FilePrecision] = tuple(FilePrecision)
) -> list[ExportedFile]:
    """Write the ONNX files of a model.

    Args:
        folder: the folder of the model.
        output: the folder to write `onnx/` to, with the model's config and tokenizer; the model's own by default.
        precisions: which files to write.

    Raises:
        ModelError: the folder holds no KERMIT model, or the model cannot be exported.
    """
    model = _load(folder)
    reference = TorchEngine(model)
    graph = build_graph(model)
    written = []
    for precision in precisions:
        content = serialize(graph, model, precision, weights=weights_checksum(folder))
        difference = compare(OnnxEngine.of(content, model.config.to_dict()), reference)
        _check(difference, precision)
        path = precision.file_in(output or folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial(path).write_bytes(content)
        partial(path).replace(path)
        written.append(ExportedFile(path, precision, len(content), difference))
    if output is not None:
        for name in _BESIDE:
            if (folder / name).is_file() and output.resolve() != folder.resolve():
                shutil.copyfile(folder / name, output / name)
    return written


def build_graph(model: KermitForInsertion) -> Graph:
    """Build the graph of a model, in float32.

    Args:
        model: the model, in evaluation mode.
    """
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


def _load(folder: Path) -> KermitForInsertion:
    kind = read_config(folder).get("model_type")
    if kind != KermitConfig.model_type:
        raise ModelError(f"{folder} is a model of type {kind}; only models of type kermit can be exported")
    with reading(folder):
        model: KermitForInsertion = load_whole(KermitForInsertion, folder)
    model.eval()
    return model


def serialize(graph: Graph, model: KermitForInsertion, precision: FilePrecision, *, weights: str = "") -> bytes:
    """Return the bytes of an exported file.

    Args:
        graph: the graph of the model, in float32.
        model: the model.
        precision: of the file.
        weights: the checksum of the weights.
    """
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
        names = static_activations(graph)
        engine = OnnxEngine.of(graph.model(about, also=names).SerializeToString(), model.config.to_dict())
        graph = quantize(graph, EMBEDDING, dict(zip(names, _ranges(engine, names), strict=True)))
    content: bytes = graph.model(about).SerializeToString()
    return content


def _ranges(engine: OnnxEngine, names: list[str]) -> list[float]:
    """Return the largest absolute values of the named activations of a graph on synthetic rows."""
    found = np.zeros(len(names))
    for seed in range(_CALIBRATIONS):
        length = sample_length(engine.info, 24)
        rows = sample_rows(engine.info, seed, batch=16, length=length, order=1 + seed % 2)
        place = np.arange(rows.token_ids.size)
        values = engine.session.run(names, engine.feeds(rows, Asked(place, place)))
        found = np.maximum(found, [np.abs(value).max() for value in values])
    return found.tolist()


def _check(difference: Difference, precision: FilePrecision) -> None:
    """Raise if a graph does not compute what the model does."""
    most = TOLERANCE if precision is FilePrecision.FLOAT32 else np.inf
    if not difference.largest < most:
        raise ModelError(
            f"the {precision} graph differs from the model by {difference.largest:.2g}; its file was not written"
        )
