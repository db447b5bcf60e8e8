"""Tiny models of one shape, for tests that need a real but not a good model."""

from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, PreTrainedTokenizerFast

from kermit import KermitConfig, KermitForInsertion
from kermit.data.joint_tokenizer import end_of_slot_id
from kermit.modeling import special_token_settings

EN_DE = {"languages": {"x": "en", "y": "de"}}


def shape(*, width: int = 16, layers: int = 1, heads: int = 2, positions: int = 64) -> dict[str, int]:
    """The shape of a trunk, as most configurations of transformers name it."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 2 * width,
        "max_position_embeddings": positions,
    }


def bert(tokenizer: PreTrainedTokenizerFast, *, dropout: float = 0.0, **sizes: int) -> BertConfig:
    """A BERT for a tokenizer; sizes as in `shape`."""
    end_of_slot_id(tokenizer)  # which is added to a tokenizer that lacks it
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return BertConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **shape(**sizes), **rates)


def kermit_model(
    tokenizer: PreTrainedTokenizerFast, trunk: Any = None, *, seed: int = 0, **settings: Any
) -> KermitForInsertion:
    """A KERMIT model with random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        trunk = bert(tokenizer) if trunk is None else trunk
        return KermitForInsertion(KermitConfig(trunk_config=trunk, **special_token_settings(tokenizer), **settings))


def save(model: Any, tokenizer: PreTrainedTokenizerFast, folder: Path) -> Path:
    """Write a model and its tokenizer into a folder."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
