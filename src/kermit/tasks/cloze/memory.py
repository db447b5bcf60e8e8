"""What a left-to-right model keeps of texts that it has read, so that continuations are not read from their start."""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicLayer

from kermit.modeling.trunk import first_position


class Reader:
    """Calls a model on tokens that follow what it has read.

    Args:
        model: the model.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self.offset = model, first_position(model.base_model)
        self.accepted = inspect.signature(model.forward).parameters

    def __call__(self, token_ids: Tensor, mask: Tensor, positions: Tensor, cache: Any, **more: Any) -> Any:
        """Return the model's output.

        Args:
            token_ids: (rows, tokens).
            mask: (rows, columns) bool, False at padding.
            positions: (rows, tokens), from 0.
            cache: what was read before; it may grow.
            more: further inputs.
        """
        inputs: dict[str, Any] = {"input_ids": token_ids, "attention_mask": mask.long(), "use_cache": True, **more}
        if "position_ids" in self.accepted:
            inputs["position_ids"] = positions + self.offset
        if cache is not None:
            inputs["past_key_values"] = cache
        return self.model(**inputs)

    @torch.inference_mode()
    def read(self, token_ids: Tensor, valid: Tensor) -> tuple[Tensor, Memory]:
        """Read texts.

        Args:
            token_ids: (texts, tokens), padded on the left.
            valid: (texts, tokens) bool.

        Returns:
            (texts, vocabulary) logits of the next token, in float32, and the memory of each text.
        """
        positions = (valid.cumsum(1) - 1).clamp(min=0)
        last = {"logits_to_keep": 1} if "logits_to_keep" in self.accepted else {}
        out = self(token_ids, valid, positions, None, **last)
        return out.logits[:, -1].float(), Memory(out.past_key_values, valid)


@dataclass(frozen=True)
class Memory:
    """What was read, one row per continuation.

    Args:
        cache: the model's keys and values, or another state.
        valid: (rows, length) bool, what was read; padding is on the left.
    """

    cache: Any
    valid: Tensor

    def select(self, rows: Tensor) -> Memory:
        """Return a memory of some rows, with a cache of its own; a row may be repeated."""
        chosen = copy.copy(self.cache)
        # a layer of this kind replaces its tensors and never writes into them, so they need no copy
        chosen.layers = [
            (copy.copy if isinstance(layer, DynamicLayer) else copy.deepcopy)(layer) for layer in self.cache.layers
        ]
        chosen.reorder_cache(rows)
        return Memory(chosen, self.valid[rows])

    def grow(self, reader: Reader, tokens: Tensor) -> tuple[Tensor, Memory]:
        """Read one more token per continuation; (rows, vocabulary) logits of the next one. Uses up this memory."""
        valid = torch.nn.functional.pad(self.valid, (0, 1), value=True)
        out = reader(tokens[:, None], valid, self.valid.sum(1, keepdim=True), self.cache)
        return out.logits[:, -1].float(), Memory(out.past_key_values, valid)

    def look_ahead(self, reader: Reader, tokens: Tensor, there: Tensor) -> Tensor:
        """Return the logits after each of some more tokens. Uses up this memory.

        Args:
            reader: the model.
            tokens: (rows, tokens) of each continuation.
            there: (rows, tokens) bool, False at padding, which is on the right.

        Returns:
            (rows, tokens, vocabulary).
        """
        number = torch.arange(tokens.shape[1], device=tokens.device)
        positions = self.valid.sum(1, keepdim=True) + torch.where(there, number, 0)  # padding may have no position
        logits: Tensor = reader(tokens, torch.cat([self.valid, there], 1), positions, self.cache).logits
        return logits.float()
