"""The base of masked and causal language models: any model of transformers, with the loss at chosen positions.

The model keeps its class, so `AutoModelForMaskedLM` or `AutoModelForCausalLM` can load it. In training its forward runs
up to the output layer; logits are then computed in chunks, and only where needed.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerFast

from kermit.data.joint_tokenizer import end_of_slot_id
from kermit.families.base import HeldOutBatch, Recovered
from kermit.families.trunk_settings import TrunkSettings, made, new_trunk_config
from kermit.modeling.slot_loss import slot_loss
from kermit.validated_settings import FamilySettings, Settings

if TYPE_CHECKING:
    from kermit.training.recipe import Recipe

_ROWS = 256  # positions whose logits are computed at a time


class LanguageModelFamily:
    """What the families of language models share.

    Attributes:
        kind: the class of transformers.
        role: values that the trunk's configuration needs, where it has them.
    """

    kind: type[AutoModelForMaskedLM] | type[AutoModelForCausalLM]
    tasks: tuple[str, ...] = ("pretraining",)
    model_type: str | None = None
    model_settings: type[FamilySettings] = TrunkSettings
    objective_settings: type[Settings] = Settings
    decoding_settings: type[Settings] = Settings
    role: Mapping[str, Any] = {}

    def check(self, recipe: Recipe) -> None:
        """Do nothing: there are no constraints between sections."""

    def build(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """Build a new model, or start from a checkpoint, adding a new head if it has none.

        Like KERMIT's trunk, it has an embedding row for every token of the tokenizer, including end-of-slot.
        """
        settings: TrunkSettings = recipe.model
        end_of_slot_id(tokenizer)
        if settings.trunk_from is not None:
            model = settings.load(self.kind, **self.role)
        else:
            config = new_trunk_config(settings, tokenizer, **self.role)
            model = made("model.trunk", lambda: self.kind.from_config(config))
        if len(tokenizer) > model.get_input_embeddings().num_embeddings:
            model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        return model

    def load(self, path: Path) -> PreTrainedModel:
        """Load a saved model."""
        return self.kind.from_pretrained(path, dtype=torch.float32)


def recovered(model: PreTrainedModel, held_out: HeldOutBatch, vectors: Tensor) -> Recovered:
    """Compare the dropped tokens with the best ones, given a vector (batch, tokens, width) for each."""
    dropped, correct = held_out.dropped, np.zeros_like(held_out.dropped)
    best = best_tokens(model, vectors[torch.as_tensor(dropped, device=model.device)])
    correct[dropped] = best.cpu().numpy() == held_out.texts.batch.token_ids[dropped]
    return Recovered(correct)


def run(model: nn.Module, token_ids: Tensor, valid: Tensor, **more: Any) -> Tensor:
    """Run a model without its output layer; return that layer's input, (batch, length, width)."""
    captured: list[Tensor] = []

    def withhold(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        captured.append(inputs[0])
        return (inputs[0][..., :0, :], *inputs[1:])  # the output layer gets an empty input

    handle = inner_model(model).get_output_embeddings().register_forward_pre_hook(withhold)
    try:
        model(input_ids=token_ids, attention_mask=valid.long(), **more)
    finally:
        handle.remove()
    return captured[0]


def inner_model(model: nn.Module) -> PreTrainedModel:
    """Return the model inside a DDP wrapper, or the model itself."""
    return getattr(model, "module", model)


def token_loss(model: nn.Module, vectors: Tensor, tokens: Tensor) -> Tensor:
    """Return the summed cross-entropy of tokens (positions,) given vectors (positions, width)."""
    return position_loss(vectors, *_output(model), tokens)


def position_loss(vectors: Tensor, weight: Tensor, bias: Tensor, tokens: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the summed cross-entropy of tokens for a given output layer, computed as slots with one missing token."""
    each = torch.ones_like(tokens, dtype=torch.float32)
    rows = torch.arange(len(tokens), device=tokens.device)
    return slot_loss(vectors, weight, bias, each, rows, tokens, each, smoothing=smoothing)


def best_tokens(model: nn.Module, vectors: Tensor) -> Tensor:
    """Return the most likely token at each position, given vectors (positions, width)."""
    weight, bias = _output(model)
    vectors = vectors.to(weight.dtype)  # autocast may have cast them to half precision
    parts = [nn.functional.linear(part, weight, bias).argmax(1) for part in torch.split(vectors, _ROWS)]
    return torch.cat(parts) if parts else vectors.new_zeros(0, dtype=torch.long)


def _output(model: nn.Module) -> tuple[Tensor, Tensor]:
    layer = inner_model(model).get_output_embeddings()
    return layer.weight, layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias


def segment_inputs(model: nn.Module, segment_ids: Tensor) -> dict[str, Tensor]:
    """Return segments as an input of the model, or nothing if it has no token types."""
    inner = inner_model(model)
    knows = getattr(inner.config, "type_vocab_size", 0) >= 2
    takes = "token_type_ids" in inspect.signature(inner.forward).parameters
    return {"token_type_ids": segment_ids} if knows and takes else {}
