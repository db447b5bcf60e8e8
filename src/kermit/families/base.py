"""The interface of a family of models, as the trainer, the tasks and the commands use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kermit.canvas import CanvasBatch, Factorization, SpecialTokens
from kermit.canvas.arrays import Array, Booleans
from kermit.data.batching import WHOLE, RankShare
from kermit.errors import RecipeError
from kermit.objectives.training_canvases import Texts
from kermit.validated_settings import FamilySettings, Settings

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from kermit.data.encoding import Row
    from kermit.engines.engine import Engine
    from kermit.searcher import Searcher
    from kermit.training.recipe import Recipe

ITEMS = "items"
"""Key of a batch's normaliser: (rows,) floats, the weight of each row in the mean loss."""


class Collator(Protocol):
    """Turns rows into the arrays that the model's loss needs, and `ITEMS`. Random draws do not depend on the share."""

    def __call__(
        self, rows: Sequence[Row], generator: np.random.Generator, share: RankShare = WHOLE
    ) -> dict[str, Array]:
        """Build a batch, and return one process's share of it."""


@dataclass(frozen=True)
class HeldOutBatch:
    """Complete texts, whose content is all generated, and the tokens dropped from them, (batch, tokens) bool."""

    texts: Texts
    dropped: Booleans

    @property
    def single(self) -> Booleans:
        """(batch, tokens) bool: the dropped tokens whose neighbours are both kept."""
        beside = np.pad(self.dropped, ((0, 0), (1, 1)))
        return self.dropped & ~beside[:, :-2] & ~beside[:, 2:]


@dataclass(frozen=True)
class Recovered:
    """The tokens of a batch that a model recovered.

    Args:
        correct: (batch, tokens) bool, whether a dropped token was recovered; False elsewhere.
        said_end: (slots,) bool, which slots predict end-of-slot; None for models without slots.
        empty: (slots,) bool, which slots lack no token.
    """

    correct: Booleans
    said_end: Booleans | None = None
    empty: Booleans | None = None


def complete_canvases(specials: SpecialTokens, rows: Sequence[Row], *, lone_texts: bool = True) -> CanvasBatch:
    """Turn rows into complete canvases; with `lone_texts`, a row without y has one segment."""
    segments = [(row["x"],) if lone_texts and not row["y"] else (row["x"], row["y"]) for row in rows]
    return CanvasBatch.from_segments(specials, segments)


def complete_texts(specials: SpecialTokens, rows: Sequence[Row]) -> Texts:
    """Turn packed rows into complete texts whose content is all generated."""
    return Texts.of(complete_canvases(specials, rows), [Factorization.JOINT] * len(rows))


class Family(Protocol):
    """A kind of model that recipes can train.

    Attributes:
        name: the value of `model.family` in recipes.
        tasks: names of the tasks that it can be trained for.
        model_type: `model_type` of its saved models' configs; None if that does not identify the family.
        decoding_settings: the schema of the recipe's section `decoding`.
    """

    name: str
    tasks: tuple[str, ...]
    model_type: str | None
    model_settings: type[FamilySettings]
    objective_settings: type[Settings]
    decoding_settings: type[Any]

    def check(self, recipe: Recipe) -> None:
        """Raise a RecipeError if parts of the recipe contradict each other."""

    def build(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """Build a new model; random weights come from torch's global generator, which the caller has seeded."""

    def load(self, path: Path) -> PreTrainedModel:
        """Load a model in float32 from a folder of safetensors and a config."""

    def collator(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Collator:
        """Return the collator of this family's training batches."""

    def loss(self, model: torch.nn.Module, batch: dict[str, torch.Tensor], recipe: Recipe) -> torch.Tensor:
        """Return the loss summed over the batch's items, a scalar; call `model(...)` exactly once, as DDP requires."""


class TranslationFamily(Family, Protocol):
    """A family whose models translate."""

    def runner(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Engine | Searcher:
        """Return the engine or searcher that `kermit.Kermit` runs the model with."""


class PretrainingFamily(Family, Protocol):
    """A family whose models can predict held-out tokens."""

    def recover(self, model: PreTrainedModel, held_out: HeldOutBatch) -> Recovered:
        """Return which dropped tokens the model, in evaluation mode, recovers."""


def refuse_orders(recipe: Recipe, needed: str) -> None:
    """Raise if a recipe sets `orders` or a source's `infilling` without `needed`, which supports them."""
    for number, source in enumerate(recipe.data.train):
        for name in ("orders", "infilling"):
            if getattr(source, name) is not None:
                raise RecipeError(f"data.train.{number}.{name}: needs {needed}; leave it out")
    if recipe.orders is not None:
        raise RecipeError(f"orders: needs {needed}; leave it out")


def check_one_direction(recipe: Recipe, learner: str) -> None:
    """Raise unless a recipe and all its sources train one direction of translation, from pairs."""
    mix = set(recipe.factorizations)
    if len(mix) != 1 or not mix <= {Factorization.Y_GIVEN_X, Factorization.X_GIVEN_Y}:
        raise RecipeError(
            f"factorizations: {learner} translates in one direction; give only y_given_x or only x_given_y,"
            f" not {', '.join(factorization.value for factorization in recipe.factorizations)}"
        )
    for place, source in recipe.data.sources.items():
        if not getattr(source, "paired", False) or set(source.mix(recipe.factorizations)) != mix:
            raise RecipeError(
                f"{place}: {learner} trains only on pairs in the recipe's direction; remove or change this"
            )
