"""Any trunk of transformers as an ONNX graph, traced by torch. It has no cache: a call contains whole rows.

Positions and masks are handled as in `kermit.modeling.trunk`, but without branching on values, as tracing requires: a
position table is interpolated, and layers with a sliding window see what is near in the text.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from kermit.engines.graph import OPSET, Graph
from kermit.errors import ModelError, in_a_line
from kermit.modeling import KermitForInsertion
from kermit.modeling.trunk import KermitModel, added, between, near, position_table

_WINDOW = "sliding_attention"


class _Trunk(nn.Module):
    """Computes final states from embedded tokens."""

    def __init__(self, model: KermitModel) -> None:
        super().__init__()
        self.encoder = model.encoder
        self.offset = model.position_offset
        self.limit = model.max_positions
        self.types = model.segment_embeddings is None
        self.cached_context: bool = model.config.cached_context
        trunk = model.config.trunk_config
        windowed = _WINDOW in (getattr(trunk, "layer_types", None) or ())
        self.window: int | None = trunk.sliding_window if windowed else None

    def forward(self, embedded: Tensor, segment_ids: Tensor, positions: Tensor, orders: Tensor, mask: Tensor) -> Tensor:
        """Return final states (batch, length, hidden); `embedded` is the sum of all embeddings."""
        types = {"token_type_ids": segment_ids} if self.types else {}
        if self.cached_context:
            embedded, places = self._between(embedded, positions)
            seen: Any = added(mask[:, None], embedded)
            if self.window is not None:
                within = near(segment_ids, positions, orders, mask, self.window)
                seen = {"full_attention": seen, _WINDOW: added(within[:, None], embedded)}
        else:
            places, seen = positions.long() + self.offset, mask[:, 0].long()  # [CLS] sees everything but padding
        states: Tensor = self.encoder(inputs_embeds=embedded, attention_mask=seen, position_ids=places, **types)[0]
        return states

    def _between(self, embedded: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Interpolate the position table: add the fractional share to the embedding, and return integer positions."""
        table = position_table(self.encoder)
        if table is None:
            return embedded, positions
        limit = self.limit or table.num_embeddings - self.offset
        places, share = between(table, positions, self.offset, limit)
        return embedded + share, places


def add_traced(graph: Graph, model: KermitForInsertion, embedded: str) -> str:
    """Trace the trunk of a model in evaluation mode and float32; return the name of the states."""
    import onnxscript  # noqa: F401  fail here with a clear message if it is missing

    batch, length = 2, 7
    width = model.get_input_embeddings().embedding_dim
    whole = torch.zeros(batch, length, dtype=torch.long)
    example = {
        embedded: torch.zeros(batch, length, width),
        "segment_ids": whole,
        "positions": torch.arange(length).float().repeat(batch, 1),
        "orders": whole + 1,
        "mask": torch.ones(batch, length, length, dtype=torch.bool),
    }
    rows, tokens = torch.export.Dim("batch", min=1, max=2**16), torch.export.Dim("length", min=2, max=2**16)
    shapes = [{0: rows, 1: tokens}] * 4 + [{0: rows, 1: tokens, 2: tokens}]
    try:
        with torch.no_grad(), _silence():
            program = torch.onnx.export(
                _Trunk(model.kermit).eval(),
                tuple(example.values()),
                dynamo=True,
                opset_version=OPSET,
                input_names=list(example),
                output_names=["states"],
                dynamic_shapes=tuple(shapes),
                verbose=False,
            )
    except Exception as error:  # torch raises many types
        raise ModelError(f"{type(model.trunk).__name__} cannot be exported: {in_a_line(error)}") from error
    assert program is not None
    traced: onnx.ModelProto = program.model_proto
    graph.graft(traced, "trunk/")
    return "states"


@contextmanager
def _silence() -> Iterator[None]:
    """Silence torch's warnings about its own exporter."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
