"""Small models and the graphs that they are exported as."""

from functools import cache
from typing import Any

import torch
from insertion_models import CACHED, cached_model, trunk_config

from kermit.engines import exporting
from kermit.engines.exported_files import FilePrecision
from kermit.engines.exporting import build_graphs, serialize
from kermit.engines.graph import Graph
from kermit.engines.onnx_engine import OnnxEngine
from kermit.engines.torch_engine import TorchEngine
from kermit.modeling import EncoderConfig, KermitConfig, KermitForInsertion

VOCABULARY = 42
SETTINGS: dict[str, dict[str, Any]] = {
    "bert cached": CACHED,
    "modernbert cached": CACHED,
    "roberta": {"positions": "continue", "slot_vector": "both", "termination": "sequence", "copy_width": 4},
}
"""Trunks of transformers: position tables, rotary positions, windows, an offset, and all options of heads."""

OWN = ("own cached", "own apart", "own")
"""With cached context, with separate layers for given and inserted tokens, and with full attention."""
MODELS = (*OWN, *SETTINGS)


@cache
def model_of(name: str) -> KermitForInsertion:
    if name == "own cached":
        model: KermitForInsertion = cached_model(vocab_size=VOCABULARY)
        return model
    if name == "own apart":
        return own_model(VOCABULARY, layers=4, given_layers=2, predicts_completion=True, **CACHED)
    return own_model(VOCABULARY) if name == "own" else traced_model(name.removesuffix(" cached"), **SETTINGS[name])


def traced_model(family: str, **settings: Any) -> KermitForInsertion:
    """A model with a trunk of transformers, whose windows, if it has any, are shorter than rows."""
    trunk = trunk_config(family, vocab_size=VOCABULARY)
    if family == "modernbert":
        trunk.local_attention = 8
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = KermitForInsertion(KermitConfig(trunk_config=trunk, **settings)).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


def own_model(
    vocab_size: int, width: int = 16, layers: int = 2, given_layers: int = 0, **settings: Any
) -> KermitForInsertion:
    """A model with our own trunk, by default with full attention."""
    trunk = EncoderConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        num_hidden_layers=layers,
        given_layers=given_layers,
        num_attention_heads=2,
        intermediate_size=2 * width,
        initializer_range=0.3,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return KermitForInsertion(KermitConfig(trunk_config=trunk, **settings)).eval()


@cache
def graphs_of(name: str) -> list[Graph]:
    return build_graphs(model_of(name))


def graph_of(name: str) -> Graph:
    return graphs_of(name)[0]


@cache
def torch_of(name: str) -> TorchEngine:
    return TorchEngine(model_of(name))


@cache
def onnx_of(name: str, precision: str = "float32") -> OnnxEngine:
    return engine_of(model_of(name), graphs_of(name), precision)


def engine_of(model: KermitForInsertion, graphs: list[Graph] | None = None, precision: str = "float32") -> OnnxEngine:
    return exporting.engine_of(serialize(graphs or build_graphs(model), model, FilePrecision(precision)), model)
