"""Families of models: what the trainer, the translator and the evaluation need of any of them.

A family is one object with these methods; the recipe names it by `model.family`, a saved model by its config's
`model_type`. The three that translation knows are registered below by where they are, and imported when first asked
for. To add one: write a class with `Family`'s methods, and a line in `_FAMILIES` (or call `register`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kermit.errors import ModelError
from kermit.training.settings import FamilySettings, Settings

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from kermit.data.encoding import Row
    from kermit.tasks.translation import Direction, Translation
    from kermit.training.recipe import Recipe

ITEMS = "items"
"""Key of a batch's normaliser: (rows,) floats, what each row counts for in the loss's mean."""


class Collator(Protocol):
    """Rows to tensors. All randomness comes from the generator; every tensor's first dimension is the rows.

    The batch holds what the model's loss needs, and under `ITEMS` what each row counts for in the mean.
    """

    def __call__(self, rows: Sequence[Row], generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Make the batch."""
        ...


class Family(Protocol):
    """A kind of model that can be trained by a recipe and asked to translate."""

    name: str
    model_type: str
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
        """A model from a folder of safetensors and a config, ready for evaluation."""
        ...

    def collator(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Collator:
        """What makes this family's training batches."""
        ...

    def loss(self, model: torch.nn.Module, batch: dict[str, torch.Tensor], recipe: Recipe) -> torch.Tensor:
        """The loss summed over the batch's items (a scalar); call `model(...)` once, as it may be wrapped by DDP."""
        ...

    def translate(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        texts: Sequence[str],
        direction: Direction,
        decoding: Settings,
        *,
        trace: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> list[Translation]:
        """Translate the texts, in their order; `progress` is told how many more are done.

        The model is in evaluation mode. The result for a text must not depend on the others.
        """
        ...


@dataclass(frozen=True)
class _Entry:
    model_type: str
    place: str  # module:attribute


_FAMILIES: dict[str, _Entry] = {
    "transformer": _Entry("marian", "kermit.baselines.transformer:TRANSFORMER"),
    "kermit": _Entry("kermit", "kermit.tasks.families:KERMIT"),
    "insertion_transformer": _Entry(
        "insertion_transformer", "kermit.baselines.insertion_transformer:INSERTION_TRANSFORMER"
    ),
}
_LOADED: dict[str, Family] = {}


def family_names() -> list[str]:
    """Every family that a recipe can name."""
    return sorted({*_FAMILIES, *_LOADED})


def register(family: Family) -> None:
    """Make a family known by its name, in place of one of the same name."""
    _LOADED[family.name] = family


def get_family(name: str) -> Family:
    """The family of that name."""
    if name not in _LOADED:
        if name not in _FAMILIES:
            raise ModelError(f"there is no family {name!r}; there are {', '.join(family_names())}")
        module, _, attribute = _FAMILIES[name].place.partition(":")
        try:
            _LOADED[name] = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise ModelError(f"the family {name!r} is not available in this version") from error
    return _LOADED[name]


def family_of_model_type(model_type: str) -> Family:
    """The family whose saved models have this `model_type` in their config."""
    for name, entry in _FAMILIES.items():
        if entry.model_type == model_type:
            return get_family(name)
    for family in _LOADED.values():
        if family.model_type == model_type:
            return family
    known = ", ".join(sorted(entry.model_type for entry in _FAMILIES.values()))
    raise ModelError(f"models of type {model_type!r} cannot be translated with; known: {known}")
