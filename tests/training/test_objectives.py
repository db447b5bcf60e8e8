"""Custom priors and objectives: a recipe imports them, names them, and trains with them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from kermit.canvas import Termination
from kermit.errors import RecipeError
from kermit.families import objective_settings
from kermit.families.objective_settings import ObjectiveSettings, register_objective
from kermit.objectives import priors
from kermit.objectives.objective import SlotObjective
from kermit.objectives.orders import BalancedTreePrior, OrderPrior, UniformPrior
from kermit.training.recipe import check_recipe
from kermit.training.run import train

MODULE = """
from dataclasses import dataclass

import numpy as np

from kermit import OrderPrior, SlotObjective
from kermit.families.objective_settings import register_objective
from kermit.objectives.priors import register_prior


@dataclass(frozen=True)
class OutsideIn(OrderPrior):
    base: float = 0.5

    def weights(self, kept, valid):
        missing = valid & ~kept
        from_left, from_right = missing.cumsum(1), missing[:, ::-1].cumsum(1)[:, ::-1]
        weights = missing * (self.base**from_left + self.base**from_right)
        return weights / np.maximum(weights.sum(1, keepdims=True), 1e-9)


@dataclass(frozen=True)
class Heavy(SlotObjective):
    factor: float = 1.0

    def shares(self, texts, asked, missing):
        return self.factor * super().shares(texts, asked, missing)


register_prior("outside_in", OutsideIn)
register_objective("heavy", Heavy)
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A user's module on Python's path, removed afterwards with everything it registered."""
    (tmp_path / "own_orders.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    for registry in (priors.PRIORS, objective_settings._OBJECTIVES):
        monkeypatch.setattr(registry, "_loaded", dict(registry._loaded))
    yield "own_orders"
    sys.modules.pop("own_orders", None)


@pytest.fixture
def recipe(tiny_recipe: dict[str, Any]) -> dict[str, Any]:
    trunk = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    trunk |= {"intermediate_size": 32, "max_position_embeddings": 64}
    model = {"family": "kermit", "trunk": trunk}
    steps = {"schedule": {"max_steps": 4, "warmup_steps": 1}, "checkpoints": {"every": 2}}
    return tiny_recipe | {"model": model, "decoding": {"max_tokens": 12}} | steps


@pytest.mark.slow
def test_a_recipe_trains_and_resumes_with_a_custom_prior_and_objective(
    own_module: str, recipe: dict[str, Any], corpus: Path, tmp_path: Path
) -> None:
    recipe["imports"] = [own_module]
    recipe["objective"] = {
        "name": "heavy",
        "settings": {"factor": 3.0},
        "prior": "outside_in",
        "prior_settings": {"base": 0.25},
        "kept": "prior",
    }
    loaded = check_recipe(recipe, data=corpus)
    collator: Any = loaded.family.collator(loaded.recipe, train_tokenizer_of(loaded))
    assert type(collator.objective).__name__ == "Heavy"
    assert (collator.objective.factor, collator.objective.prior.base) == (3.0, 0.25)
    assert train(loaded, tmp_path / "out").steps == 4
    last = tmp_path / "out" / "checkpoint-4"
    last.rename(tmp_path / "whole")  # as if killed after step 2
    again = check_recipe(recipe, data=corpus)
    assert train(again, tmp_path / "out", resume=True).steps == 4
    whole, resumed = (load_file(folder / "model.safetensors") for folder in (tmp_path / "whole", last))
    assert all(torch.equal(weight, resumed[name]) for name, weight in whole.items())
    assert "prior: outside_in" in (tmp_path / "out" / "recipe.yaml").read_text()


def train_tokenizer_of(loaded: Any) -> Any:
    from kermit.training.run import prepare_tokenizer

    return prepare_tokenizer(loaded)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"imports": ["no_such_module_here"]}, "imports: no_such_module_here cannot be imported.*PYTHONPATH"),
        ({"imports": "own_orders"}, "imports: Input should be a valid tuple, not 'own_orders'"),
        (
            {"objective": {"prior": "balanced_treee"}},
            r"objective.prior: must be one of balanced_tree, .*left_to_right, .*uniform.*did you mean 'balanced_tree'",
        ),
        ({"objective": {"name": "slots"}}, r"objective.name: must be one of lower_bound, .*slot.*did you mean 'slot'"),
        ({"objective": {"prior_settings": {"sharpness": 2}}}, "objective: .*unexpected keyword argument 'sharpness'"),
        ({"objective": {"settings": {"factor": 2}}}, "objective: .*unexpected keyword argument 'factor'"),
    ],
)
def test_an_unknown_prior_or_objective_is_an_error_that_lists_the_known_ones(
    recipe: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        check_recipe(recipe | changes, data=Path())


def test_only_the_tree_prior_has_a_temperature_and_a_prior_is_created_once() -> None:
    tree = ObjectiveSettings(prior="balanced_tree", temperature=0.3)
    assert tree.order_prior == BalancedTreePrior(0.3)
    assert tree.build(Termination.SLOT).prior is tree.order_prior  # type: ignore[attr-defined]
    assert ObjectiveSettings(prior="uniform").order_prior == UniformPrior()
    with pytest.raises(ValueError, match="temperature applies only to the prior balanced_tree"):
        ObjectiveSettings(prior="uniform", temperature=0.3)


@pytest.mark.parametrize("change", [{"kept": "bernoulli"}, {"location_weight": 0.0}, {"share": "text"}])
def test_settings_that_the_lower_bound_would_ignore_are_errors(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(change))} has no effect on the objective lower_bound"):
        ObjectiveSettings(name="lower_bound", **change)
    again = ObjectiveSettings(**ObjectiveSettings(name="lower_bound").model_dump())  # as training saves it
    assert again == ObjectiveSettings(name="lower_bound")


def test_an_objective_keeps_its_settings_when_every_slot_is_a_target() -> None:
    class Own(SlotObjective):
        def __init__(self, prior: OrderPrior, bonus: float = 1.0, **settings: Any) -> None:
            super().__init__(prior, **settings)
            object.__setattr__(self, "bonus", bonus)

    register_objective("own_bonus", Own)
    settings = ObjectiveSettings(name="own_bonus", settings={"bonus": 5.0}, empty_slot_rate=0.5)
    built = settings.build(Termination.SLOT)
    assert isinstance(built, Own)
    whole = settings.for_validation().build(Termination.SLOT)
    assert isinstance(whole, Own)
    assert (whole.empty_slot_rate, whole.bonus, built.empty_slot_rate) == (1.0, 5.0, 0.5)  # type: ignore[attr-defined]


def test_common_ids_are_for_repeated_runs() -> None:
    built = ObjectiveSettings(kept={"repeated": 1, "bernoulli": 1}, common_ids=7).build(Termination.SLOT)
    assert isinstance(built, SlotObjective)
    assert built.common_ids == 7
    with pytest.raises(ValueError, match="common_ids applies only to repeated runs"):
        ObjectiveSettings(kept="bernoulli", common_ids=7)


def test_the_settings_of_a_recipe_reach_the_objective() -> None:
    settings = {"empty_slot_weight": 0.3, "empty_slot_rate": 0.5, "span_length": 3.0, "drop_probability": 0.2}
    built = ObjectiveSettings(kept="bernoulli", **settings).build(Termination.SLOT)
    assert {name: getattr(built, name) for name in settings} == settings
    with pytest.raises(ValueError, match="empty_slot_weight"):
        ObjectiveSettings(empty_slot_weight=-1)
