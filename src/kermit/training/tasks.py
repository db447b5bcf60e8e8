"""Tasks: what a training is for.

A task says what its text is and how it is read, how a model is judged on the validation text while it trains, and by
which of its metrics the best one is kept. The recipe names it (`task: translation` by default), and a family says which
tasks it serves. To add a task: write a class with `Task`'s methods, and call `register_task` with the families that
serve it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kermit.training.registry import Registry
from kermit.training.settings import EvaluationSettings, FactorizationMix, TextSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from kermit.data.batching import Text
    from kermit.training.families import Family
    from kermit.training.recipe import LoadedRecipe, Recipe

Evaluator = Callable[["PreTrainedModel"], Mapping[str, float]]
"""Named metrics of a model, which is in evaluation mode, on the validation text."""


@dataclass(frozen=True)
class BestMetric:
    """The metric that decides which model is kept: `loss`, or one of the evaluator's.

    Args:
        name: its name among the metrics.
        title: how it is shown.
        higher: whether more is better.
    """

    name: str
    title: str
    higher: bool

    def improves(self, value: float, before: float | None) -> bool:
        """Whether a value is better than the best so far, if there is one."""
        return before is None or (value > before if self.higher else value < before)


class Task(Protocol):
    """What a model is trained for.

    Attributes:
        name: as recipes name it.
        data_settings: the recipe's section `data`.
        evaluation_settings: the recipe's section `evaluation`.
        factorizations: what is generated from what unless the recipe says otherwise.
        decodes: whether the validation text is decoded, with the recipe's section `decoding`.
        best: the metric by which the best model is kept.
    """

    name: str
    data_settings: type[TextSettings]
    evaluation_settings: type[EvaluationSettings]
    factorizations: FactorizationMix
    decodes: bool
    best: BestMetric

    def check(self, recipe: Recipe) -> None:
        """Raise a RecipeError for a recipe whose parts do not go together."""
        ...

    def checksums(self, loaded: LoadedRecipe) -> list[str]:
        """A hash of the training text of each source."""
        ...

    def texts(self, loaded: LoadedRecipe) -> Iterator[str]:
        """The training text, a line or a paragraph at a time, for a tokenizer to be trained on."""
        ...

    def training_text(self, loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> Text:
        """The encoded training text."""
        ...

    def validation_text(self, loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> Text | None:
        """The encoded validation text, if the recipe names one."""
        ...

    def evaluator(self, loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> Evaluator | None:
        """What judges a model beside its validation loss, if there is anything to judge it by."""
        ...

    def describe(self, model: PreTrainedModel, recipe: Recipe) -> None:
        """Write into the model's config what its users need to know; raise a RecipeError if the model cannot serve."""
        ...


_TASKS: Registry[Task] = Registry(
    "task",
    {
        "translation": "kermit.tasks.translation_training:TRANSLATION",
        "pretraining": "kermit.tasks.pretraining:PRETRAINING",
    },
)


def task_names() -> list[str]:
    """Every task that a recipe can name."""
    return _TASKS.names()


_SERVED_BY: dict[str, frozenset[str]] = {}


def register_task(task: Task, families: Collection[str] = ()) -> None:
    """Make a task known by its name, in place of one of the same name.

    Args:
        task: the task.
        families: the names of the families that serve it, beside those that name it among their `tasks`.
    """
    _TASKS.add(task.name, task)
    _SERVED_BY[task.name] = frozenset([families] if isinstance(families, str) else families)


def serves(family: Family, task: Task) -> bool:
    """Whether a family's models can be trained for a task: one of the two names the other."""
    return task.name in family.tasks or family.name in _SERVED_BY.get(task.name, ())


def get_task(name: str) -> Task:
    """The task of that name."""
    return _TASKS.get(name)
