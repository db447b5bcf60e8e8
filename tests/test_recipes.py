"""Every recipe of the project loads, builds its model and makes a loss of a batch."""

from pathlib import Path

import pytest
import torch

from kermit.data.encoding import Row
from kermit.data.tokenizer import train_tokenizer
from kermit.training.recipe import load_recipe

ROOT = Path(__file__).parents[1] / "recipes"
RECIPES = sorted(ROOT.rglob("*.yaml"))
TRAINED = [path for path in RECIPES if "description:" in path.read_text(encoding="utf-8")]  # the others are extended


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["A man rides a red bike.", "Ein Mann fährt ein rotes Rad."] * 3, 300)


@pytest.mark.parametrize("path", TRAINED, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recipe_opens_with_its_command_its_cost_and_its_result(path):
    opening = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    for word in ("Command:", "Cost:", "Result:"):
        assert any(word in line for line in opening), f"the recipe's opening comment has no {word!r}"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recipe_loads_builds_and_makes_a_loss(path, tokenizer, monkeypatch):
    monkeypatch.setenv("KERMIT_RUNS", "/runs")
    loaded = load_recipe(path)
    assert (path in TRAINED) == bool(loaded.recipe.description)
    torch.manual_seed(0)
    model = loaded.family.build(loaded.recipe, tokenizer)
    rows = [Row(x=[9, 10, 11], y=[12, 13], source=0), Row(x=[9], y=[12, 13, 14, 15], source=0)]
    batch = loaded.family.collator(loaded.recipe, tokenizer)(rows, torch.Generator().manual_seed(1))
    batch.pop("items")
    assert loaded.family.loss(model, batch, loaded.recipe).isfinite()


def test_recipes_of_one_corpus_share_one_tokenizer(monkeypatch):
    monkeypatch.setenv("KERMIT_RUNS", "/runs")
    for folder in {path.parent for path in RECIPES}:
        recipes = [load_recipe(path).recipe for path in RECIPES if path.parent == folder]
        trained = {recipe.tokenizer.model_dump_json() for recipe in recipes if recipe.tokenizer.vocab_size}
        assert len(trained) <= 1, folder
