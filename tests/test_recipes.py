"""Every recipe that comes with the project loads, and says what it is, how it is run and what it reached."""

from pathlib import Path

import pytest

from kermit.training.families import get_family
from kermit.training.recipe import load_recipe

RECIPES = sorted((Path(__file__).parent.parent / "recipes").rglob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_recipe_loads_and_opens_with_command_cost_and_result(path: Path) -> None:
    loaded = load_recipe(path)
    assert loaded.recipe.description
    assert loaded.family is get_family(loaded.recipe.model.family)
    head = path.read_text(encoding="utf-8").split("\ndescription:")[0]
    for word in ("Command:", "Cost:", "Result:"):
        assert word in head, f"the recipe's opening comment has no {word!r}"
    assert f"kermit train recipes/{path.parent.name}/{path.name}" in head


def test_recipes_of_one_corpus_share_one_tokenizer() -> None:
    for folder in {path.parent for path in RECIPES}:
        tokenizers = {
            load_recipe(path).recipe.tokenizer.model_dump_json()
            for path in RECIPES
            if path.parent == folder and load_recipe(path).recipe.tokenizer.vocab_size
        }
        assert len(tokenizers) <= 1, folder
