"""`LastTokenForSequenceClassification`: a label or a number from an encoder that reads from left to right.

transformers has a classifier that reads the last token for each of its causal models. An encoder with a causal mask
(BERT's `is_decoder`), such as this project's own causal language model, has none there: its classifier would read the
first token, which has seen nothing but itself. This one takes any such encoder.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.configuration_utils import SubConfigSpec
from transformers.modeling_outputs import SequenceClassifierOutput


class LastTokenConfig(PreTrainedConfig):  # type: ignore[misc]
    """The configuration of `LastTokenForSequenceClassification`.

    Args:
        trunk_config: the configuration of an encoder with a causal mask.
        initializer_range: the spread of the new layer's weights.
    """

    model_type = "kermit_last_token"
    sub_configs_defaults = {"trunk_config": SubConfigSpec(config_class=AutoConfig, model_type="bert")}  # noqa: RUF012

    trunk_config: Any = None
    initializer_range: float = 0.02


class LastTokenForSequenceClassification(PreTrainedModel):  # type: ignore[misc]
    """A trunk with a causal mask, and a linear layer that reads the labels from its last token."""

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
        """A classifier with a loaded trunk, which it takes over, and a new layer.

        Args:
            trunk: the encoder.
            settings: of `LastTokenConfig`, such as the labels.
        """
        model = cls(LastTokenConfig(trunk_config=trunk.config, **settings))
        model.trunk = _without_pooler(trunk)
        return model

    def get_input_embeddings(self) -> nn.Module:
        """The trunk's word embedding."""
        return self.trunk.get_input_embeddings()  # type: ignore[no-any-return]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Logits of texts, and their mean loss where labels are given.

        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), False or 0 at padding.
            token_type_ids: (batch, length), not looked at: a causal language model is not told of segments.
            labels: (batch,) label numbers for the cross-entropy, or numbers for the squared error where the config has
                one label.
            kwargs: passed on to the trunk.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
        found = self.trunk(input_ids, attention_mask=mask, use_cache=False, **kwargs)
        last = (mask * torch.arange(mask.shape[1], device=mask.device)).argmax(1)
        logits = self.score(found.last_hidden_state[torch.arange(len(last), device=last.device), last])
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=found.hidden_states, attentions=found.attentions
        )


def _without_pooler(trunk: PreTrainedModel) -> PreTrainedModel:
    if getattr(trunk, "pooler", None) is not None:
        trunk.pooler = None
    return trunk
