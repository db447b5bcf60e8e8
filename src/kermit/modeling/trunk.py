"""`KermitModel`: any bidirectional encoder of transformers, fed with canvases.

Every trunk gets segments and restarting positions. A trunk with two or more token types of its own takes segments as
those; for the others a segment embedding is added to the word embeddings. Trunks that number positions from their
padding index (RoBERTa, MPNet) get the offset they expect. Trunks that know the distance of two tokens alone (DeBERTa)
take no notice of positions: for them Y goes on where X ends. A trunk with a causal mask is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Container
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from kermit.errors import ModelError
from kermit.modeling.config import KermitConfig


class KermitPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    """What all KERMIT models share."""

    config_class = KermitConfig
    base_model_prefix = "kermit"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True

    @property
    def trunk(self) -> PreTrainedModel:
        """The encoder inside."""
        return self.base_model.encoder

    def get_input_embeddings(self) -> nn.Embedding:
        """The trunk's word embedding."""
        return self.trunk.get_input_embeddings()  # type: ignore[no-any-return]

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the trunk's word embedding."""
        self.trunk.set_input_embeddings(value)

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *arguments: Any, **settings: Any) -> Any:
        """As every transformers model does; the insertion head's bias goes along, 0 for tokens that are new."""
        embedding = super().resize_token_embeddings(new_num_tokens, *arguments, **settings)
        head = getattr(self, "head", None)
        if head is not None:
            old, rows = head.bias, embedding.num_embeddings
            bias = nn.functional.pad(old.detach()[:rows], (0, max(0, rows - len(old))))
            head.bias = nn.Parameter(bias, requires_grad=old.requires_grad)
        return embedding


class KermitModel(KermitPreTrainedModel):
    """The trunk: canvases to hidden states."""

    _keys_to_ignore_on_load_unexpected = (r"^(head|pooler|classifier|next_sentence)\.",)

    def __init__(self, config: KermitConfig) -> None:
        super().__init__(config)
        if getattr(config.trunk_config, "is_decoder", False):
            raise ModelError("the trunk's config has is_decoder set, a causal mask; KERMIT sees the whole canvas")
        # in the format of the whole model, whatever the one that a checkpoint's trunk was saved in
        self.encoder = AutoModel.from_config(config.trunk_config, dtype=torch.get_default_dtype())
        if getattr(self.encoder, "pooler", None) is not None:
            self.encoder.pooler = None
        accepted = inspect.signature(self.encoder.forward).parameters
        if reason := _unfit(self.encoder, accepted):
            raise ModelError(
                f"{type(self.encoder).__name__} cannot be a trunk: {reason}. "
                "Choose an encoder such as BERT, ModernBERT, RoBERTa, DeBERTa, ELECTRA or DistilBERT"
            )
        types = getattr(config.trunk_config, "type_vocab_size", 0)
        if "token_type_ids" not in accepted or types < 2:
            self.segment_embeddings: nn.Embedding | None = nn.Embedding(
                2, self.encoder.get_input_embeddings().embedding_dim
            )
        else:
            self.segment_embeddings = None
        self.position_offset: int = first_position(self.encoder)
        self._restarts: bool = config.positions == "restart"
        self.post_init()

    @property
    def max_positions(self) -> int | None:
        """How many positions the trunk has, or None if there is no limit."""
        limit: int | None = getattr(self.config.trunk_config, "max_position_embeddings", None)
        return None if limit is None else limit - self.position_offset

    def position_ids(self, segment_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The positions of canvas tokens, as the config says; (batch, length)."""
        positions = torch.arange(segment_ids.shape[1], device=segment_ids.device).expand_as(segment_ids)
        if self._restarts:
            x_length = ((segment_ids == 0) & attention_mask).sum(1, keepdim=True)
            positions = positions - segment_ids * (x_length - 1)
        return positions * attention_mask + self.position_offset

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Hidden states of canvases.

        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), False or 0 at padding; None for no padding.
            segment_ids: (batch, length), 0 for X and 1 for Y; None for X alone. ``token_type_ids`` is taken for it.
            kwargs: passed on to the trunk.
        """
        token_types = kwargs.pop("token_type_ids", None)
        segment_ids = segment_ids if segment_ids is not None else token_types
        segment_ids = torch.zeros_like(input_ids) if segment_ids is None else segment_ids
        mask = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        positions = self.position_ids(segment_ids, mask)
        if self.segment_embeddings is None:
            inputs: dict[str, Tensor] = {"input_ids": input_ids, "token_type_ids": segment_ids}
        else:
            embedded = self.get_input_embeddings()(input_ids)
            inputs = {"inputs_embeds": embedded + self.segment_embeddings(segment_ids)}
        seen = None if attention_mask is None else mask.long()
        return self.encoder(**inputs, attention_mask=seen, position_ids=positions, **kwargs)


def _unfit(encoder: PreTrainedModel, accepted: Container[str]) -> str | None:
    """Why a model whose forward takes these arguments cannot be a trunk; None if it can."""
    if missing := [name for name in ("attention_mask", "inputs_embeds", "position_ids") if name not in accepted]:
        return f"its forward takes no {', '.join(missing)}"
    if any(getattr(module, "is_causal", False) for module in encoder.modules()):
        return "its attention has a causal mask, and KERMIT sees the whole canvas"
    return None


def first_position(encoder: PreTrainedModel) -> int:
    """The number of the first position: 0, or one after the padding index where a trunk numbers from there."""
    embeddings = getattr(encoder, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return 0 if padding is None else padding + 1
