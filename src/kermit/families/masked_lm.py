"""The masked language model of BERT (Devlin et al., 2019): a baseline for KERMIT's pretraining.

Of the tokens that KERMIT would drop, 80% become `[MASK]`, 10% a random token and 10% stay unchanged; the model predicts
all of them. Any masked language model of transformers works, new or from a checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerFast

from kermit.canvas import SpecialTokens
from kermit.canvas.arrays import Array, Booleans, Integers
from kermit.data.batching import WHOLE, RankShare
from kermit.errors import RecipeError
from kermit.families.base import ITEMS, Collator, HeldOutBatch, Recovered, complete_texts
from kermit.families.language_model import LanguageModelFamily, recovered, run, segment_inputs, token_loss
from kermit.modeling import specials_of
from kermit.objectives.dropping import sample_dropped
from kermit.validated_settings import Fraction, Settings

if TYPE_CHECKING:
    from kermit.data.encoding import Row
    from kermit.training.recipe import Recipe

_NO_LABEL = -100
_MASKED, _REPLACED = 0.8, 0.1  # shares of the tokens to predict


class MaskedLMObjective(Settings):
    """The probability of predicting a token, and the mean length of runs of such tokens."""

    drop_probability: Fraction = 0.15
    span_length: Annotated[float, Field(ge=1.0)] = 1.0


@dataclass(frozen=True)
class MaskingCollator:
    """Turns rows into texts with masked tokens; `ordinary` are the ids that random tokens are drawn from."""

    specials: SpecialTokens
    mask_id: int
    ordinary: Integers
    objective: MaskedLMObjective

    def __call__(
        self, rows: Sequence[Row], generator: np.random.Generator, share: RankShare = WHOLE
    ) -> dict[str, Array]:
        """Draw a batch, and return one process's share of it."""
        texts = complete_texts(self.specials, rows)
        token_ids, content = texts.batch.token_ids, texts.generated
        asked = self._asked(content, generator)
        fate = generator.random(content.shape)
        chosen = generator.integers(len(self.ordinary), size=content.shape)
        hidden = asked & (fate < _MASKED)
        changed = asked & ~hidden & (fate < _MASKED + _REPLACED)
        input_ids = np.where(hidden, self.mask_id, np.where(changed, self.ordinary[chosen], token_ids))
        arrays: dict[str, Array] = {
            "input_ids": input_ids,
            "segment_ids": texts.batch.segment_ids,
            "valid": texts.batch.valid,
            "labels": np.where(asked, token_ids, _NO_LABEL),
            ITEMS: asked.sum(1).astype(np.float32),
        }
        return share.of(arrays)

    def _asked(self, content: Booleans, generator: np.random.Generator) -> Booleans:
        """Draw the tokens to predict as KERMIT's dropped tokens are, but at least one per text, as in BERT."""
        shape = (content.shape[0], content.shape[1])
        span_length = self.objective.span_length
        asked = content & sample_dropped(shape, self.objective.drop_probability, generator, span_length=span_length)
        one = np.where(content, generator.random(shape), -1).argmax(1)
        some = content & (np.arange(shape[1]) == one[:, None])
        return np.where(asked.any(1, keepdims=True), asked, some)


class MaskedLMFamily(LanguageModelFamily):
    """Builds, trains and evaluates masked language models."""

    name = "masked_lm"
    kind = AutoModelForMaskedLM
    objective_settings: type[Settings] = MaskedLMObjective

    def build(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """Build a new model, or start from a checkpoint; the tokenizer must have a mask token."""
        if tokenizer.mask_token_id is None:
            raise RecipeError(
                "tokenizer: a masked language model needs a mask token, but this tokenizer has none; set one"
            )
        model = super().build(recipe, tokenizer)
        model.config.mask_token_id = tokenizer.mask_token_id
        return model

    def collator(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Collator:
        """Return a collator that masks tokens."""
        specials = specials_of(tokenizer)
        ordinary = [index for index in range(len(tokenizer)) if index not in specials.ids]
        return MaskingCollator(specials, tokenizer.mask_token_id, np.array(ordinary), recipe.objective)

    def loss(self, model: nn.Module, batch: dict[str, Tensor], recipe: Recipe) -> Tensor:
        """Compute the cross-entropy, summed over the tokens to predict."""
        labels = batch["labels"]
        vectors = _vectors(model, batch["input_ids"], batch["valid"], batch["segment_ids"])
        asked = labels != _NO_LABEL
        return token_loss(model, vectors[asked], labels[asked])

    def recover(self, model: PreTrainedModel, held_out: HeldOutBatch) -> Recovered:
        """Mask all dropped tokens and predict them."""
        batch = held_out.texts.batch
        hidden = np.where(held_out.dropped, model.config.mask_token_id, batch.token_ids)
        planes = (torch.as_tensor(plane, device=model.device) for plane in (hidden, batch.valid, batch.segment_ids))
        return recovered(model, held_out, _vectors(model, *planes))


def _vectors(model: nn.Module, input_ids: Tensor, valid: Tensor, segment_ids: Tensor) -> Tensor:
    return run(model, input_ids, valid, **segment_inputs(model, segment_ids))


MASKED_LM = MaskedLMFamily()
