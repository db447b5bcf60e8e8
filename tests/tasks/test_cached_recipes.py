"""Recipes of models with cached context: orders are mixed like factorizations; keys without effect are rejected."""

import copy

import numpy as np
import pytest
import torch

from kermit import DecodingSettings, Kermit, Strategy
from kermit.data.batching import RankShare
from kermit.data.encoding import Row
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.errors import RecipeError
from kermit.modeling.tensors import as_tensors
from kermit.training.recipe import check_recipe
from kermit.training.run import train

TRUNK = {
    "model_type": "kermit_encoder",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
MODEL = {"family": "kermit", "slot_vector": "both", "cached_context": True, "trunk": TRUNK}
ALL = {"joint": 1.0, "y_given_x": 1.0, "x_given_y": 1.0, "x": 1.0, "y": 1.0}
BOTH = {"balanced_tree": 1.0, "left_to_right": 1.0}


def cached_recipe(base, **changes):
    objective = {"name": "generation", "infilling": 0.3, "staggered": 0.2}
    recipe = copy.deepcopy(base) | {"model": MODEL, "decoding": {"max_tokens": 12}, "objective": objective}
    return recipe | changes


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["one two three", "eins zwei drei"] * 4, 280)


def rows(tokenizer, count=1, sources=1):
    x, y = (
        tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
        for text in ("one two three", "eins zwei drei")
    )
    return [Row(x=x, y=y, source=number % sources) for number in range(count)]


def test_a_limit_on_positions_gives_many_blanks_less_room(tiny_recipe, corpus, tokenizer):
    objective = {"name": "generation", "infilling": 1.0, "missing": [0.5, 0.5]}
    highest = {}
    for limit in (None, 12):
        recipe = cached_recipe(tiny_recipe, objective=objective, model=MODEL | {"position_limit": limit})
        loaded = check_recipe(recipe, data=corpus)
        batch = loaded.family.collator(loaded.recipe, tokenizer)(rows(tokenizer, 20), np.random.default_rng(0))
        highest[limit] = batch["positions"].max()
        assert loaded.family.build(loaded.recipe, tokenizer).config.position_limit == limit
    assert highest[12] <= 11 < highest[None]


@pytest.mark.slow
def test_a_recipe_with_all_factorizations_and_both_orders_trains_and_decodes(tiny_recipe, corpus, tmp_path):
    recipe = cached_recipe(tiny_recipe, factorizations=ALL, orders=BOTH)
    result = train(check_recipe(recipe, data=corpus), tmp_path)
    assert result.steps == 12
    kermit = Kermit.from_pretrained(tmp_path)
    assert kermit.engine.model.config.orders == ["balanced_tree", "left_to_right"]
    assert kermit.engine.model.config.cached_context
    for strategy in Strategy:
        settings = DecodingSettings(strategy, max_tokens=5)
        assert len(kermit.translate(["one two", "three"], "de", settings=settings)) == 2
        [filled] = kermit.infill(["one ____ three ____."], ["____ drei"], settings=settings)
        assert filled.x.startswith("one")
        assert filled.y.endswith("drei")
        assert len(kermit.sample(2, settings=settings)) == 2
        assert kermit.complete(["one ..."], [""], settings=settings)[0].x
    [score] = kermit.score(["one two"], ["eins zwei"], method="left_to_right")
    assert score.log_prob < 0
    assert score.standard_error is None


def test_orders_are_drawn_by_their_weights_and_sources_may_have_their_own(tiny_recipe, tokenizer):
    recipe = cached_recipe(tiny_recipe, orders={"balanced_tree": 3.0, "left_to_right": 1.0})
    recipe["data"]["train"].append({"x": "a", "y": "b", "orders": {"left_to_right": 1.0}})
    loaded = check_recipe(recipe, data=None)
    batch = loaded.family.collator(loaded.recipe, tokenizer)(rows(tokenizer, 4000, 2), np.random.default_rng(0))
    orders = batch["orders"].max(1)  # 0 where a text was given whole
    first, second = (side[side > 0] for side in (orders[::2], orders[1::2]))
    assert abs(float((first == 2).mean()) - 0.25) < 0.03
    assert set(second.tolist()) == {2}


def test_one_order_is_the_objectives_prior(tiny_recipe, tokenizer):
    loaded = check_recipe(cached_recipe(tiny_recipe, objective={"name": "generation", "prior": "uniform"}), data=None)
    assert loaded.family.build(loaded.recipe, tokenizer).config.orders == ["uniform"]
    batch = loaded.family.collator(loaded.recipe, tokenizer)(rows(tokenizer, 20), np.random.default_rng(0))
    assert batch["orders"].max() == 1


def test_shares_of_a_batch_sum_to_the_loss_of_the_whole(tiny_recipe, tokenizer):
    loaded = check_recipe(cached_recipe(tiny_recipe, factorizations=ALL, orders=BOTH), data=None)
    family, recipe = loaded.family, loaded.recipe
    torch.manual_seed(0)
    model = family.build(recipe, tokenizer).eval()
    collator = family.collator(recipe, tokenizer)
    losses, items = [], []
    for share in (RankShare(), RankShare(0, 2), RankShare(1, 2)):
        batch = as_tensors(collator(rows(tokenizer, 9), np.random.default_rng(3), share))
        items.append(batch.pop("items").tolist())
        losses.append(family.loss(model, batch, recipe))
    assert items[0][::2] == items[1]
    assert items[0][1::2] == items[2]
    assert torch.allclose(losses[0], losses[1] + losses[2], rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": {}}, r"objective\.name: with model\.cached_context: true it must be generation, not slot"),
        ({"objective": {"name": "generation", "kept": "rounds"}}, "kept has no effect on the objective generation"),
        ({"orders": {"uniform": 1.0}}, "orders: 'uniform' is neither left_to_right nor objective.prior, balanced_tree"),
        (
            {"orders": {"left_to_right": 1.0}, "decoding": {"strategy": "parallel"}},
            r"decoding\.strategy: parallel does not match",
        ),
        ({"decoding": {"strategy": "left_to_right"}}, r"decoding\.strategy: left_to_right does not match"),
        ({"model": MODEL | {"cached_context": False}}, r"objective\.name: with model\.cached_context: false"),
        (
            {"model": MODEL | {"cached_context": False}, "objective": {}, "orders": BOTH},
            r"orders: needs model\.cached_context: true",
        ),
        (
            {"model": MODEL | {"cached_context": False, "blank_width": 4}, "objective": {}},
            "blank_width applies only with cached_context",
        ),
        ({"objective": {"name": "generation", "missing": [0.6, 0.15]}}, "share.*0.6, 0.15"),
        ({"objective": {"infilling": 0.5}, "model": MODEL | {"cached_context": False}}, "infilling has no effect"),
    ],
)
def test_incompatible_settings_are_errors_before_training(tiny_recipe, changes, message):
    with pytest.raises(RecipeError, match=message):
        check_recipe(cached_recipe(tiny_recipe, **changes), data=None)


def test_orders_are_rejected_if_the_family_has_only_one(tiny_recipe):
    with pytest.raises(RecipeError, match="orders: needs a family that mixes orders"):
        check_recipe(tiny_recipe | {"orders": {"left_to_right": 1.0}}, data=None)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (MODEL | {"slot_vector": "right"}, "cached_context needs slot_vector: both, not right"),
        (MODEL | {"positions": "continue"}, "cached_context needs positions: restart, not continue"),
        (MODEL | {"copy_width": 4}, "cached_context needs copy_width: 0, not 4"),
        (MODEL | {"trunk": TRUNK | {"num_attention_heads": 3}}, "hidden_size must be a multiple of twice"),
    ],
)
def test_an_impossible_model_is_a_recipe_error(tiny_recipe, tokenizer, model, message):
    loaded = check_recipe(cached_recipe(tiny_recipe, model=model), data=None)
    with pytest.raises(RecipeError, match=message):
        loaded.family.build(loaded.recipe, tokenizer)
