"""What the trainer, the tasks and the verbs ask of a family of models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kermit.canvas import Factorization
from kermit.data.batching import WHOLE, RankShare
from kermit.errors import RecipeError
from kermit.validated import FamilySettings, Settings

if TYPE_CHECKING:
    import numpy as np
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from kermit.canvas.arrays import Array
    from kermit.data.encoding import Row
    from kermit.engines.engine import Engine
    from kermit.families.recovery import HeldOutBatch, Recovered
    from kermit.searching import Searcher
    from kermit.training.recipe import Recipe

ITEMS = "items"
"""Key of a batch's normaliser: (rows,) floats, what each row counts for in the mean of the loss."""


class Collator(Protocol):
    """Rows to the arrays that the model's loss needs, with `ITEMS`. Randomness does not depend on the share."""

    def __call__(
        self, rows: Sequence[Row], generator: np.random.Generator, share: RankShare = WHOLE
    ) -> dict[str, Array]:
        """Make the batch, and return one process's share of it."""
        ...


class Family(Protocol):
    """A kind of model that can be trained by a recipe, for the tasks that it names.

    Attributes:
        name: as recipes give it.
        tasks: names of the tasks that it serves.
        model_type: of its saved models' configs; None if that does not identify the family.
        decoding_settings: the recipe's section `decoding`.
    """

    name: str
    tasks: tuple[str, ...]
    model_type: str | None
    model_settings: type[FamilySettings]
    objective_settings: type[Settings]
    decoding_settings: type[Any]

    def check(self, recipe: Recipe) -> None:
        """Raise a RecipeError for a recipe whose parts contradict each other."""
        ...

    def build(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """Return a new model with random weights, drawn from torch's global generator, which the caller has seeded."""
        ...

    def load(self, path: Path) -> PreTrainedModel:
        """Load a model from a folder of safetensors and a config, in float32 however it was saved."""
        ...

    def collator(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Collator:
        """Return what makes this family's training batches."""
        ...

    def loss(self, model: torch.nn.Module, batch: dict[str, torch.Tensor], recipe: Recipe) -> torch.Tensor:
        """Return the loss summed over the batch's items (a scalar); call `model(...)` once, as DDP may wrap it."""
        ...


class TranslationFamily(Family, Protocol):
    """A family whose models translate."""

    def runner(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Engine | Searcher:
        """Return what runs the model for `kermit.Kermit`."""
        ...


class PretrainingFamily(Family, Protocol):
    """A family whose models can be asked for held-out tokens."""

    def recover(self, model: PreTrainedModel, held_out: HeldOutBatch) -> Recovered:
        """Return what the model, in evaluation mode, makes of a batch."""
        ...


def refuse_orders(recipe: Recipe, needed: str) -> None:
    """Raise if a recipe mixes orders and its model cannot; `needed` is what that takes."""
    for number, source in enumerate(recipe.data.train):
        if source.orders is not None:
            raise RecipeError(f"data.train.{number}.orders: needs {needed}; leave it out")
    if recipe.orders is not None:
        raise RecipeError(f"orders: needs {needed}; leave it out")


def check_one_direction(recipe: Recipe, learner: str) -> None:
    """Raise if a recipe asks a model that translates in one direction for more, or has a source of something else."""
    mix, data = set(recipe.factorizations), recipe.data
    if len(mix) != 1 or not mix <= {Factorization.Y_GIVEN_X, Factorization.X_GIVEN_Y}:
        raise RecipeError(
            f"factorizations: {learner} translates in one direction; give only y_given_x or only x_given_y,"
            f" not {', '.join(factorization.value for factorization in recipe.factorizations)}"
        )
    sources = {f"data.train.{number}": source for number, source in enumerate(data.train)}
    if data.validation is not None:
        sources["data.validation"] = data.validation
    for place, source in sources.items():
        if not getattr(source, "paired", False) or set(source.mix(recipe.factorizations)) != mix:
            raise RecipeError(f"{place}: {learner} learns from pairs, in one direction")
