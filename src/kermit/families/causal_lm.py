"""The causal language model, like GPT (Radford et al., 2018): a baseline for KERMIT's pretraining.

It reads `[CLS] x [SEP] y [SEP]` from left to right and predicts each next token, including separators. It gets no
segments, so that plain `generate` continues a text as in training. A BERT trunk gets a causal mask (`is_decoder`), so
that it can start from the same checkpoint as the other families; GPT-2 and similar models also work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from kermit.canvas import SpecialTokens
from kermit.canvas.arrays import Array
from kermit.data.batching import WHOLE, RankShare
from kermit.families.base import ITEMS, Collator, HeldOutBatch, Recovered, complete_texts
from kermit.families.language_model import LanguageModelFamily, recovered, run, token_loss
from kermit.modeling import specials_of

if TYPE_CHECKING:
    from kermit.data.encoding import Row
    from kermit.training.recipe import Recipe


@dataclass(frozen=True)
class CausalCollator:
    """Turns rows into texts; nothing is random."""

    specials: SpecialTokens

    def __call__(
        self, rows: Sequence[Row], generator: np.random.Generator, share: RankShare = WHOLE
    ) -> dict[str, Array]:
        """Build a batch, and return one process's share of it."""
        batch = complete_texts(self.specials, rows).batch
        items = batch.valid.sum(1).astype(np.float32) - 1
        return share.of({"token_ids": batch.token_ids, "valid": batch.valid, ITEMS: items})


class CausalLMFamily(LanguageModelFamily):
    """Builds, trains and evaluates causal language models."""

    name = "causal_lm"
    kind = AutoModelForCausalLM
    role = {"is_decoder": True}  # noqa: RUF012

    def collator(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Collator:
        """Return a collator of whole texts."""
        return CausalCollator(specials_of(tokenizer))

    def loss(self, model: nn.Module, batch: dict[str, Tensor], recipe: Recipe) -> Tensor:
        """Compute the cross-entropy, summed over all tokens but the first of each text."""
        token_ids, valid = batch["token_ids"], batch["valid"]
        vectors = run(model, token_ids, valid, use_cache=False)
        return token_loss(model, vectors[:, :-1][valid[:, 1:]], token_ids[:, 1:][valid[:, 1:]])

    def recover(self, model: PreTrainedModel, held_out: HeldOutBatch) -> Recovered:
        """Predict each dropped token from everything before it."""
        batch = held_out.texts.batch
        planes = (torch.as_tensor(plane, device=model.device) for plane in (batch.token_ids, batch.valid))
        vectors = run(model, *planes, use_cache=False)
        return recovered(model, held_out, vectors.roll(1, 1))  # the first token is never dropped


CAUSAL_LM = CausalLMFamily()
