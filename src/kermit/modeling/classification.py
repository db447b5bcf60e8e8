"""`KermitForSequenceClassification`: a label or a number for a text or a pair of texts (the paper's section 4.2).

The canvas is complete and has no open slot. The hidden state of its first token goes through a pooler as BERT's, and
a linear layer reads the labels from it. The insertion head of the checkpoint is carried along untrained, so that what
was finetuned to understand can still be loaded to generate.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput

from kermit.modeling.config import KermitConfig
from kermit.modeling.insertion import SlotHead
from kermit.modeling.trunk import KermitModel, KermitPreTrainedModel


class Pooler(nn.Module):
    """The first token's hidden state, through a linear layer and tanh."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """(batch, length, hidden) to (batch, hidden)."""
        return torch.tanh(self.dense(hidden[:, 0]))


class KermitForSequenceClassification(KermitPreTrainedModel):
    """An encoder that classifies canvases, or with a single label gives each a number.

    A checkpoint that has an insertion head keeps it where the config says `keep_insertion_head`, and is then loaded by
    `KermitForInsertion` as well; where the checkpoint has none, none is made up.
    """

    _keys_to_ignore_on_load_unexpected = (r"^(head|next_sentence)\.",)
    accepts_loss_kwargs = False

    def __init__(self, config: KermitConfig) -> None:
        super().__init__(config)
        self.kermit = KermitModel(config)
        self.pooler = Pooler(config.hidden_size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.head: SlotHead | None = None
        if config.keep_insertion_head:
            self.head = SlotHead(config, self.kermit.get_input_embeddings().embedding_dim).requires_grad_(False)
        self.post_init()

    @classmethod
    def from_pretrained(cls, *arguments: Any, output_loading_info: bool = False, **settings: Any) -> Any:
        """Load as every transformers model does, from the checkpoint of any KERMIT model."""
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
        """Logits of complete canvases, and their mean loss where labels are given.

        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), False or 0 at padding.
            segment_ids: (batch, length), 0 for X and 1 for Y; ``token_type_ids`` is taken for it.
            labels: (batch,) label numbers for the cross-entropy, or numbers for the squared error where the config
                has one label.
            kwargs: passed on to the trunk.
        """
        found = self.kermit(input_ids, attention_mask, segment_ids, **kwargs)
        logits = self.classifier(self.dropout(self.pooler(found.last_hidden_state)))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=found.hidden_states, attentions=found.attentions
        )
