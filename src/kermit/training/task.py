"""Tasks that models are trained for.

A task reads its text, evaluates a model on the validation text during training, and names the metric that selects the
best model. A recipe names its task (`task: translation` by default), and a family names the tasks that it supports. To
add a task, write a class with the methods of `Task`, and call `register_task` with the families that support it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kermit.registry import Registry
from kermit.training.settings import EvaluationSettings, TextSettings
from kermit.validated_settings import FactorizationMix

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from kermit.data.batching import Text
    from kermit.families.base import Family
    from kermit.training.recipe import LoadedRecipe, Recipe

Evaluator = Callable[["PreTrainedModel"], Mapping[str, float]]
"""Evaluates a model in evaluation mode on the validation text; returns metrics by name."""


@dataclass(frozen=True)
class BestMetric:
    """The metric that selects the best model: `loss`, or one of the evaluator's; `title` is its name in messages."""

    name: str
    title: str
    higher: bool

    def improves(self, value: float, before: float | None) -> bool:
        """Return whether a value is better than the best so far."""
        return before is None or (value > before if self.higher else value < before)


class Task(Protocol):
    """A task that a model is trained for.

    Attributes:
        name: the value of `task` in recipes.
        data_settings: the schema of the recipe's section `data`.
        evaluation_settings: the schema of the recipe's section `evaluation`.
        factorizations: the default of the recipe's factorizations.
        decodes: whether evaluation decodes the validation text, with the settings of the recipe's section `decoding`.
        best: the metric that selects the best model.
    """

    name: str
    data_settings: type[TextSettings]
    evaluation_settings: type[EvaluationSettings]
    factorizations: FactorizationMix
    decodes: bool
    best: BestMetric

    def check(self, recipe: Recipe) -> None:
        """Raise a RecipeError if parts of the recipe contradict each other."""

    def texts(self, loaded: LoadedRecipe) -> Iterator[str]:
        """Yield the training text line by line or paragraph by paragraph, to train a tokenizer on."""

    def training_text(self, loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> Text:
        """Return the encoded training text."""

    def validation_text(self, loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> Text | None:
        """Return the encoded validation text, if the recipe has one."""

    def evaluator(self, loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> Evaluator | None:
        """Return the evaluator of metrics other than the validation loss, if there is text to evaluate on."""

    def describe(self, model: PreTrainedModel, recipe: Recipe) -> None:
        """Record what users need to know in the model's config; raise a RecipeError if the model does not fit."""


TRAINING_TASKS: Registry[Task] = Registry(
    "task",
    {
        "translation": "kermit.tasks.translation_training:TRANSLATION",
        "pretraining": "kermit.tasks.pretraining:PRETRAINING",
    },
)


_SERVED_BY: dict[str, frozenset[str]] = {}


def register_task(task: Task, families: Collection[str] = ()) -> None:
    """Register a task under its name, for families that list it in their `tasks` and for those named here."""
    TRAINING_TASKS.add(task.name, task)
    _SERVED_BY[task.name] = frozenset([families] if isinstance(families, str) else families)


def serves(family: Family, task: Task) -> bool:
    """Return whether a family's models can be trained for a task."""
    return task.name in family.tasks or family.name in _SERVED_BY.get(task.name, ())
