"""`TorchEngine`: a KERMIT model of torch as an engine.

Models whose trunk is `kermit.modeling.encoder.Encoder` keep what they read; the others read the whole row in every
call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from kermit.context import ContextRows
from kermit.engines.engine import Answer, Asked, Floats, Integers, ModelInfo, Rows
from kermit.engines.model_info import model_info
from kermit.modeling import KermitForInsertion
from kermit.modeling.encoder import Cache as Layers
from kermit.modeling.encoder import Encoder


@dataclass(frozen=True)
class TorchCache:
    """Keys and values of every layer, (batch, heads, length, width) each, and final states, (batch, length, hidden)."""

    layers: Layers
    states: Tensor

    @property
    def length(self) -> int:
        """Number of places per row, padding included."""
        return self.states.shape[1]

    def select(self, rows: Integers) -> TorchCache:
        """Return the cache of some rows, in that order; a row may be repeated."""
        index = torch.as_tensor(rows)
        return TorchCache(tuple((keys[index], values[index]) for keys, values in self.layers), self.states[index])

    def first(self, length: int) -> TorchCache:
        """Return the cache of the first `length` places of every row."""
        layers = tuple((keys[:, :, :length], values[:, :, :length]) for keys, values in self.layers)
        return TorchCache(layers, self.states[:, :length])


class _MaskedRows(ContextRows):
    """Rows that come with their mask."""

    seen: Tensor

    def mask(self) -> Tensor:
        """(batch, 1, length, length) bool."""
        return self.seen[:, None]


class TorchEngine:
    """A model of torch that reads rows.

    Args:
        model: the model, in evaluation mode.
    """

    def __init__(self, model: KermitForInsertion) -> None:
        self.model = model
        self.info: ModelInfo = model_info(
            model.config.to_dict(),
            vocab_size=model.config.vocab_size,
            hidden_size=model.config.hidden_size,
            max_positions=model.kermit.max_positions,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
        )
        self.caches: bool = self.info.cached_context and isinstance(model.kermit.encoder, Encoder)

    @torch.inference_mode()
    def ask(self, rows: Rows, asked: Asked) -> Answer:
        """Read rows and answer for slots."""
        cache = self._read(rows)
        left, right = torch.as_tensor(asked.left), torch.as_tensor(asked.right)
        head = self.model.head
        vectors = head.vectors(cache.states, left, right)
        token_ids = torch.as_tensor(rows.token_ids)
        log_probs = self.model._content(cache.states, token_ids, right, vectors).log_softmax(1)
        end_id = self.info.specials.end_of_slot_id
        end = log_probs[:, end_id].clone()
        full = log_probs.clone().numpy() if asked.full else None
        log_probs[:, end_id] = -torch.inf
        best, tokens = log_probs.topk(asked.top, dim=1)
        return Answer(
            tokens=tokens.numpy(),
            log_probs=best.numpy(),
            end=end.numpy(),
            location=head.location(vectors).squeeze(1).numpy(),
            stop=None if head.stop is None else head.stop(cache.states[:, 0]).squeeze(1).numpy(),
            content=full,
            cache=cache if self.caches else None,
        )

    @torch.inference_mode()
    def hidden(self, rows: Rows) -> Floats:
        """Return the final states of rows, (batch, length, hidden)."""
        return np.asarray(self._read(rows).states.numpy(), dtype=np.float32)

    def _read(self, rows: Rows) -> TorchCache:
        """Read rows after those of a cache, and return all of it; without layers if the trunk keeps none."""
        planes = (rows.token_ids, rows.segment_ids, rows.positions, rows.orders, rows.mask)
        token_ids, segment_ids, positions, orders, mask = map(torch.as_tensor, planes)
        valid = token_ids != self.info.specials.pad_id
        kermit = self.model.kermit
        if not self.info.cached_context:
            return TorchCache((), kermit(token_ids, valid, segment_ids).last_hidden_state)
        if not self.caches:
            blocks = torch.where(valid, (orders > 0).long(), -1)
            read = _MaskedRows(token_ids, segment_ids, positions, blocks, 0 * blocks, (orders == 2).any(1))
            object.__setattr__(read, "seen", mask)
            return TorchCache((), kermit.read(read))
        past = cast("TorchCache | None", rows.past)
        assert kermit.order_embeddings is not None
        assert kermit.segment_embeddings is not None
        order = torch.nn.functional.pad(kermit.order_embeddings.weight, (0, 0, 1, 0))
        embedded = kermit.get_input_embeddings()(token_ids) + kermit.segment_embeddings(segment_ids) + order[orders]
        found = kermit.encoder(
            inputs_embeds=embedded,
            attention_mask=mask[:, None],
            position_ids=positions,
            past=None if past is None else past.layers,
            use_cache=True,
        )
        states = found.last_hidden_state
        return TorchCache(found.cache, states if past is None else torch.cat([past.states, states], 1))
