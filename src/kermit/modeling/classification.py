"""Classifiers: a label or a number for a text or a pair of texts (the paper's section 4.2).

`KermitForSequenceClassification` reads complete canvases with no open slot. The hidden state of the first token
passes through BERT's pooler and a linear layer with one output per label. The insertion head of the checkpoint
is kept unchanged, so that a finetuned model can still be loaded to generate.

`LastTokenForSequenceClassification` takes any encoder with a causal mask (BERT's `is_decoder`), such as this project's
own causal language model. For such an encoder the classifier of transformers would read the first token, which attends
only to itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.configuration_utils import SubConfigSpec
from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput
from transformers.models.bert.modeling_bert import BertPooler

from kermit.modeling.config import KermitConfig
from kermit.modeling.insertion import SlotHead
from kermit.modeling.trunk import KermitModel, KermitPreTrainedModel


class KermitForSequenceClassification(KermitPreTrainedModel):
    """An encoder that classifies canvases, or predicts one number per canvas if the config has one label.

    With `keep_insertion_head` the insertion head of the checkpoint, if it has one, is kept, and `KermitForInsertion`
    can load the result too.
    """

    _keys_to_ignore_on_load_unexpected = (r"^(head|next_sentence)\.",)
    accepts_loss_kwargs = False

    def __init__(self, config: KermitConfig) -> None:
        super().__init__(config)
        self.kermit = KermitModel(config)
        self.pooler = BertPooler(config)  # a linear layer and tanh on the first token's state
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.head: SlotHead | None = None
        if config.keep_insertion_head:
            self.head = SlotHead(config, self.kermit.get_input_embeddings().embedding_dim).requires_grad_(False)
        self.post_init()

    @classmethod
    def from_pretrained(cls, *arguments: Any, output_loading_info: bool = False, **settings: Any) -> Any:
        """Load the checkpoint of any KERMIT model, as transformers' `from_pretrained` does."""
        model, info = super().from_pretrained(*arguments, output_loading_info=True, **settings)
        absent = {name for name in info["missing_keys"] if name.startswith("head.")}
        if absent:
            model.head, model.config.keep_insertion_head = None, False
            info["missing_keys"] = type(info["missing_keys"])(set(info["missing_keys"]) - absent)
        return (model, info) if output_loading_info else model

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Return logits of complete canvases, and their mean loss if labels are given.

        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), False or 0 at padding.
            segment_ids: (batch, length), 0 for X and 1 for Y; ``token_type_ids`` is an alias.
            labels: (batch,) label indices (cross-entropy), or numbers (squared error) if the config has one label.
            kwargs: passed on to the trunk.
        """
        found = self.kermit(input_ids, attention_mask, segment_ids, **kwargs)
        logits = self.classifier(self.dropout(self.pooler(found.last_hidden_state)))
        return _classified(self, logits, labels, found)


class LastTokenConfig(PreTrainedConfig):  # type: ignore[misc]
    """The configuration of `LastTokenForSequenceClassification`, whose trunk is an encoder with a causal mask."""

    model_type = "kermit_last_token"
    sub_configs_defaults = {"trunk_config": SubConfigSpec(config_class=AutoConfig, model_type="bert")}  # noqa: RUF012

    trunk_config: Any = None
    initializer_range: float = 0.02


class LastTokenForSequenceClassification(PreTrainedModel):  # type: ignore[misc]
    """A trunk with a causal mask and a linear layer that classifies its last token."""

    config_class = LastTokenConfig
    base_model_prefix = "trunk"
    accepts_loss_kwargs = False
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True

    def __init__(self, config: LastTokenConfig) -> None:
        super().__init__(config)
        self.trunk = _without_pooler(AutoModel.from_config(config.trunk_config))
        self.score = nn.Linear(config.trunk_config.hidden_size, config.num_labels, bias=False)
        self.post_init()

    @classmethod
    def from_trunk(cls, trunk: PreTrainedModel, **settings: Any) -> LastTokenForSequenceClassification:
        """Create a classifier from a loaded trunk, which it owns from then on, and a new layer."""
        model = cls(LastTokenConfig(trunk_config=trunk.config, **settings))
        model.trunk = _without_pooler(trunk)
        return model

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Return logits of texts, and their mean loss if labels (batch,) are given; token types are ignored."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
        found = self.trunk(input_ids, attention_mask=mask, use_cache=False, **kwargs)
        last = (mask * torch.arange(mask.shape[1], device=mask.device)).argmax(1)
        logits = self.score(found.last_hidden_state[torch.arange(len(last), device=last.device), last])
        return _classified(self, logits, labels, found)


def _without_pooler(trunk: PreTrainedModel) -> PreTrainedModel:
    if getattr(trunk, "pooler", None) is not None:
        trunk.pooler = None
    return trunk


def _classified(
    model: PreTrainedModel, logits: Tensor, labels: Tensor | None, found: BaseModelOutput
) -> SequenceClassifierOutput:
    """Return logits, and their mean loss if labels are given."""
    loss = None
    if labels is not None:
        loss = model.loss_function(labels=labels, pooled_logits=logits, config=model.config)
    return SequenceClassifierOutput(
        loss=loss, logits=logits, hidden_states=found.hidden_states, attentions=found.attentions
    )
