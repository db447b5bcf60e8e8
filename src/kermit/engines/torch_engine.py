"""`TorchEngine`: an engine that runs a torch model on any device.

Models whose trunk is `kermit.modeling.encoder.Encoder` cache the given text; the others read the whole row in every
call. The model computes in the dtype of its weights; the engine returns float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from kermit.canvas.arrays import Floats, Integers
from kermit.engines.engine import MODEL_TYPE, Answer, Asked, ModelInfo, Rows
from kermit.engines.model_info import CONFIG_DEFAULTS, info_from_config
from kermit.modeling import KermitForInsertion
from kermit.modeling.encoder import LayerCache
from kermit.modeling.tensors import RowTensors


@dataclass(frozen=True)
class TorchCache:
    """Keys and values (batch, heads, length, width) of every layer, states (batch, length, hidden), and token ids."""

    layers: LayerCache
    states: Tensor
    token_ids: Tensor

    @property
    def length(self) -> int:
        """Number of places per row, padding included."""
        return self.states.shape[1]

    def select(self, rows: Integers) -> TorchCache:
        """Return the cache of some rows, in that order; a row may be repeated."""
        index = torch.as_tensor(rows, device=self.states.device)
        layers = tuple((keys[index], values[index]) for keys, values in self.layers)
        return TorchCache(layers, self.states[index], self.token_ids[index])

    def first(self, length: int) -> TorchCache:
        """Return the cache of the first `length` places of every row."""
        layers = tuple((keys[:, :, :length], values[:, :, :length]) for keys, values in self.layers)
        return TorchCache(layers, self.states[:, :length], self.token_ids[:, :length])


class TorchEngine:
    """An engine that runs a torch model, which is put in evaluation mode."""

    def __init__(self, model: KermitForInsertion) -> None:
        self.model: KermitForInsertion = model.eval() if model.training else model
        self.info = model_info(model)
        self.caches: bool = self.info.cached_context and model.kermit.caches

    @torch.inference_mode()
    def ask(self, rows: Rows, asked: Asked) -> Answer:
        """Read rows and answer for slots."""
        past = rows.past
        assert past is None or isinstance(past, TorchCache)
        cache = self._read(rows, past)
        left, right = (torch.as_tensor(slots, device=self.model.device) for slots in (asked.left, asked.right))
        logits = self.model.slot_logits(cache.states, cache.token_ids, left, right)
        log_probs = logits.content.log_softmax(1)
        end_id = self.info.specials.end_of_slot_id
        end = log_probs[:, end_id].clone()
        full = _array(log_probs.clone()) if asked.full else None
        wanted = None
        if asked.wanted is not None:
            tokens = torch.as_tensor(asked.wanted, device=self.model.device)
            wanted = _array(log_probs.gather(1, tokens[:, None])[:, 0])
        log_probs[:, end_id] = -torch.inf
        if asked.top == 1:
            best, tokens = log_probs.max(1, keepdim=True)  # faster on a CPU than topk
        else:
            best, tokens = log_probs.topk(min(asked.top, log_probs.shape[1]), dim=1)
        return Answer(
            tokens=tokens.cpu().numpy(),
            log_probs=_array(best),
            end=_array(end),
            location=_array(logits.location),
            stop=None if logits.stop is None else _array(logits.stop),
            completion=None if logits.completion is None else _array(nn.functional.logsigmoid(logits.completion)),
            content=full,
            wanted=wanted,
            cache=cache if self.caches and asked.keep else None,
        )

    @torch.inference_mode()
    def hidden(self, rows: Rows) -> Floats:
        """Return the final states of rows, (batch, length, hidden)."""
        assert rows.past is None
        return _array(self._read(rows, None).states.float())

    def _read(self, rows: Rows, past: TorchCache | None) -> TorchCache:
        """Read rows after those of a cache, and return the extended cache, without layers if the trunk has none."""
        if not self.info.cached_context:
            token_ids, segment_ids = (
                torch.as_tensor(plane, device=self.model.device) for plane in (rows.token_ids, rows.segment_ids)
            )
            valid = token_ids != self.info.specials.pad_id
            seen = None if bool(valid.all()) else valid
            return TorchCache((), self.model.kermit(token_ids, seen, segment_ids).last_hidden_state, token_ids)
        tensors = RowTensors.of(rows, self.model.device)
        layers = None if past is None else past.layers
        found = self.model.kermit.read(tensors, past=layers, use_cache=self.caches)
        states, token_ids = found.last_hidden_state, tensors.token_ids
        assert states is not None
        if past is not None:
            states = torch.cat([past.states, states], 1)
            token_ids = torch.cat([past.token_ids, token_ids], 1)
        return TorchCache(found.cache or (), states, token_ids)


def model_info(model: KermitForInsertion) -> ModelInfo:
    """Return the properties of a torch model."""
    config = model.config
    info = info_from_config(
        {name: getattr(config, name) for name in CONFIG_DEFAULTS} | {"model_type": MODEL_TYPE},
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        max_positions=model.kermit.max_positions,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
    )
    return replace(info, model_type=config.model_type, precision=str(model.dtype).removeprefix("torch."))


def _array(tensor: Tensor) -> Floats:
    return np.asarray(tensor.cpu().numpy(), dtype=np.float32)
