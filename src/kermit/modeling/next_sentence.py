"""BERT's next-sentence task on any model: does y continue x, read from the hidden state of `[CLS]`?

The head is added to a model that is there already and saved with its weights; whoever loads the model without it
leaves these weights aside. The pooler is the one that classifiers have, so finetuning starts from it.
"""

from __future__ import annotations

from pathlib import Path

from safetensors import safe_open
from torch import Tensor, nn
from transformers import PreTrainedModel

from kermit.loading import weight_files
from kermit.modeling.classification import Pooler

NOT_ASKED = -100
"""The label of a text of which it is not asked."""
PARTS = ("pooler.", "next_sentence.")
"""What the names of its weights begin with."""


def add_next_sentence_head(model: PreTrainedModel) -> PreTrainedModel:
    """Give a model the head, with new weights, and let its config say so."""
    width = model.config.hidden_size
    model.pooler, model.next_sentence = Pooler(width), nn.Linear(width, 2)
    for layer in (model.pooler.dense, model.next_sentence):
        nn.init.normal_(layer.weight, std=model.config.initializer_range)
        nn.init.zeros_(layer.bias)
    model.config.next_sentence = True
    return model


def load_next_sentence_head(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """Give a model that was loaded from a folder the head that was saved there, if one was."""
    if getattr(model.config, "next_sentence", False):
        add_next_sentence_head(model)
        weights: dict[str, Tensor] = {}
        for file in weight_files(folder):
            with safe_open(file, "pt") as saved:
                names = [name for name in saved.keys() if name.startswith(PARTS)]  # noqa: SIM118 (no mapping)
                weights |= {name: saved.get_tensor(name) for name in names}
        for part in PARTS:
            own = {name.removeprefix(part): value for name, value in weights.items() if name.startswith(part)}
            model.get_submodule(part.removesuffix(".")).load_state_dict(own)
    return model


def next_sentence_logits(model: PreTrainedModel, hidden: Tensor) -> Tensor:
    """(batch, 2): y is from elsewhere, y continues x; from hidden states (batch, length, hidden)."""
    logits: Tensor = model.next_sentence(model.pooler(hidden))
    return logits


def next_sentence_loss(model: PreTrainedModel, hidden: Tensor, follows: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of the cross-entropies.

    Args:
        model: one with the head.
        hidden: (batch, length, hidden).
        follows: (batch,) 1, 0 or `NOT_ASKED`.
        weights: (batch,).
    """
    logits = next_sentence_logits(model, hidden).float()
    losses = nn.functional.cross_entropy(logits, follows, ignore_index=NOT_ASKED, reduction="none")
    return (losses * weights).sum()
