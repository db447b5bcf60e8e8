"""Families of models: what the trainer needs of any of them.

A family is one object with these methods; the recipe names it by `model.family`, a saved model by its config's
`model_type` where that tells it. A task asks more of those that serve it: translation a `translate`
(`kermit.tasks.translator.TranslationFamily`), pretraining a `recover` (`kermit.tasks.held_out.PretrainingFamily`). To
add a family: write a class with `Family`'s methods, and a line in `_FAMILIES` (or call `register`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kermit.data.batching import WHOLE, RankShare
from kermit.errors import ModelError
from kermit.training.registry import Registry
from kermit.training.settings import FamilySettings, Settings

if TYPE_CHECKING:
    import numpy as np
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from kermit.canvas.arrays import Array
    from kermit.data.encoding import Row
    from kermit.training.recipe import Recipe

ITEMS = "items"
"""Key of a batch's normaliser: (rows,) floats, what each row counts for in the loss's mean."""


class Collator(Protocol):
    """Rows to arrays. All randomness comes from the generator, and does not depend on the share.

    The batch holds what the model's loss needs, and under `ITEMS` what each row counts for in the mean.
    """

    def __call__(
        self, rows: Sequence[Row], generator: np.random.Generator, share: RankShare = WHOLE
    ) -> dict[str, Array]:
        """Make the batch, and return one process's share of it."""
        ...


class Family(Protocol):
    """A kind of model that can be trained by a recipe, for the tasks that it names.

    Attributes:
        name: as recipes name it.
        tasks: the names of the tasks that it serves.
        model_type: that of its saved models' configs, or None where that does not tell the family.
    """

    name: str
    tasks: tuple[str, ...]
    model_type: str | None
    model_settings: type[FamilySettings]
    objective_settings: type[Settings]
    decoding_settings: type[Settings]

    def check(self, recipe: Recipe) -> None:
        """Raise a RecipeError for a recipe whose parts do not go together."""
        ...

    def build(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """A new model with random weights, drawn from torch's global generator, which the caller has seeded."""
        ...

    def load(self, path: Path) -> PreTrainedModel:
        """A model from a folder of safetensors and a config, ready for evaluation, in float32 however it was saved."""
        ...

    def collator(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Collator:
        """What makes this family's training batches."""
        ...

    def loss(self, model: torch.nn.Module, batch: dict[str, torch.Tensor], recipe: Recipe) -> torch.Tensor:
        """The loss summed over the batch's items (a scalar); call `model(...)` once, as it may be wrapped by DDP."""
        ...


_FAMILIES: Registry[Family] = Registry(
    "family",
    {
        "transformer": "kermit.baselines.transformer:TRANSFORMER",
        "kermit": "kermit.tasks.families:KERMIT",
        "insertion_transformer": "kermit.baselines.insertion_transformer:INSERTION_TRANSFORMER",
        "masked_lm": "kermit.baselines.masked_lm:MASKED_LM",
        "causal_lm": "kermit.baselines.causal_lm:CAUSAL_LM",
    },
)
_OF_MODEL_TYPE = {"marian": "transformer", "kermit": "kermit", "insertion_transformer": "insertion_transformer"}


def family_names() -> list[str]:
    """Every family that a recipe can name."""
    return _FAMILIES.names()


def register(family: Family) -> None:
    """Make a family known by its name, in place of one of the same name."""
    _FAMILIES.add(family.name, family)


def get_family(name: str) -> Family:
    """The family of that name."""
    return _FAMILIES.get(name)


def family_of_model_type(model_type: str) -> Family:
    """The family whose saved models have this `model_type` in their config."""
    if model_type in _OF_MODEL_TYPE:
        return get_family(_OF_MODEL_TYPE[model_type])
    for family in _FAMILIES.loaded():
        if family.model_type == model_type:
            return family
    raise ModelError(f"models of type {model_type!r} cannot be translated with; known: {', '.join(_OF_MODEL_TYPE)}")
