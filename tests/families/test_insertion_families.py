"""KERMIT and the Insertion Transformer as families: recipes build them, train them, and translate with them."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from insertion_models import TINY_TRUNK, blanks_of, read

from kermit import CanvasBatch, Factorization, Texts
from kermit.canvas.context import GIVEN, lay_out
from kermit.data.batching import RankShare
from kermit.data.encoding import Row
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.decoding.flat_settings import DecodingChoices, for_translating
from kermit.errors import DecodingError, RecipeError
from kermit.families import FAMILIES
from kermit.modeling import KermitForInsertion
from kermit.modeling.tensors import as_tensors
from kermit.pipeline import Kermit
from kermit.training.recipe import check_recipe
from kermit.training.run import train
from kermit.training.trainer import on_validation_text

KERMIT_MODEL = {
    "family": "kermit",
    "slot_vector": "both",
    "trunk": TINY_TRUNK,
}
INSERTION_TRANSFORMER_MODEL = {
    "family": "insertion_transformer",
    "width": 16,
    "feedforward": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "heads": 2,
}


def insertion_recipe(base, model, **changes):
    recipe = copy.deepcopy(base) | {"model": model, "decoding": {"max_tokens": 12}, "objective": {}}
    return recipe | changes


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["one two three", "eins zwei drei"] * 4, 280)


def rows_of(tokenizer, pairs):
    def encode(text):
        return tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids

    return [Row(x=encode(x), y=encode(y), source=0) for x, y in pairs]


def test_a_recipe_chooses_whether_slots_copy(tiny_recipe, tokenizer):
    for width in (0, 8):
        recipe = check_recipe(insertion_recipe(tiny_recipe, KERMIT_MODEL | {"copy_width": width}), data=None).recipe
        copying = FAMILIES.get("kermit").build(recipe, tokenizer).head.copying
        assert (copying is not None) == (width > 0)
    assert copying.around.out_features == 8


@pytest.mark.slow
@pytest.mark.parametrize("model", [KERMIT_MODEL, INSERTION_TRANSFORMER_MODEL], ids=lambda model: model["family"])
def test_a_recipe_trains_saves_loads_and_translates(tiny_recipe, corpus, tmp_path, model):
    loaded = check_recipe(insertion_recipe(tiny_recipe, model), data=corpus)
    result = train(loaded, tmp_path / "out")
    facade = Kermit.from_pretrained(result.model)
    assert type(facade.engine.model) is KermitForInsertion
    (found,) = facade.translate(["two dogs sleep."], "de", settings=loaded.recipe.decoding.settings(), trace=True)
    assert found.rounds >= 1
    assert found.tokens <= 12
    assert len(facade.readable(found.trace).to_json()["rounds"]) == found.rounds


def insertion_transformer(tiny_recipe, tokenizer, way="y_given_x"):
    recipe = insertion_recipe(tiny_recipe, INSERTION_TRANSFORMER_MODEL, factorizations={way: 1.0})
    loaded = check_recipe(recipe, data=None)
    return loaded.family.build(loaded.recipe, tokenizer).eval()


def rows_in_one_round(model, pairs, way="y_given_x"):
    """Rows of texts whose generated side comes in one round: the source, the empty target, the whole target."""
    texts = Texts.of(CanvasBatch.from_segments(model.specials, pairs), [Factorization(way)] * len(pairs))
    rounds = texts.generated.astype(np.int64)
    return lay_out(texts.generations(rounds, np.zeros(len(pairs), dtype=bool)), **blanks_of(model)).rows


@pytest.mark.parametrize("way", ["y_given_x", "x_given_y"])
def test_an_insertion_transformer_does_not_let_the_source_see_the_target(tiny_recipe, tokenizer, way):
    model = insertion_transformer(tiny_recipe, tokenizer, way)
    one, other = ([9, 10, 11], [12, 13]), ([9, 10, 11], [12, 14])
    rows = rows_in_one_round(model, [one, other] if way == "y_given_x" else [one[::-1], other[::-1]], way)
    hidden = read(model, rows)
    source, first = rows.blocks[0] == GIVEN, int(np.flatnonzero(rows.token_ids[0] == 12)[0])
    assert rows.token_ids[0, source].tolist()[-4:-1] == [9, 10, 11]
    assert torch.allclose(hidden[0, source], hidden[1, source], atol=1e-6)
    assert not torch.allclose(hidden[0, first], hidden[1, first], atol=1e-4)  # it looks to the right


def test_an_insertion_transformer_encodes_the_source_with_layers_of_its_own(tiny_recipe, tokenizer):
    model = insertion_transformer(tiny_recipe, tokenizer)
    rows = rows_in_one_round(model, [([9, 10], [12])])
    before, source = read(model, rows), rows.blocks[0] == GIVEN
    with torch.no_grad():
        model.kermit.encoder.layers[1].down.weight.mul_(2)
    moved = (read(model, rows) - before).abs().amax(2)[0] > 1e-6
    assert moved.tolist() == (~source).tolist()


def test_an_insertion_transformer_ignores_padding(tiny_recipe, tokenizer):
    model = insertion_transformer(tiny_recipe, tokenizer)
    texts = [([9, 10], [12]), ([9] * 9, [12] * 7)]
    both, one = (read(model, rows_in_one_round(model, pairs)) for pairs in (texts, texts[:1]))
    assert torch.allclose(both[0, : one.shape[1]], one[0], atol=1e-5)


def test_an_insertion_transformer_has_only_one_direction(tiny_recipe):
    recipe = insertion_recipe(tiny_recipe, INSERTION_TRANSFORMER_MODEL, factorizations={"joint": 1.0})
    with pytest.raises(RecipeError, match="one direction"):
        check_recipe(recipe, data=None)


@pytest.mark.parametrize(
    "source",
    [{"y": "mono.de"}, {"tsv": "mono.tsv", "columns": [None, 1]}, {"jsonl": "mono.jsonl", "fields": [None, "text"]}],
    ids=str,
)
def test_unpaired_text_trains_its_own_marginal(tiny_recipe, tokenizer, source):
    recipe = insertion_recipe(tiny_recipe, KERMIT_MODEL, factorizations={"joint": 1.0})
    recipe["data"]["train"].append({"name": "german"} | source)
    loaded = check_recipe(recipe, data=None)
    collator = loaded.family.collator(loaded.recipe, tokenizer)
    rows = [*rows_of(tokenizer, [("one two", "eins zwei")]), Row(x=[], y=[9, 10], source=1)]
    assert generated_sides(collator(rows, np.random.default_rng(0))) == [{0, 1}, {1}]
    recipe["data"]["train"][1]["factorizations"] = {"joint": 1.0}
    with pytest.raises(RecipeError, match="unpaired"):
        check_recipe(recipe, data=None)


def generated_sides(arrays):
    """The segments of each canvas's open slots."""
    segments = arrays["segment_ids"].ravel()[arrays["right"]]
    return [set(segments[arrays["canvases"] == row].tolist()) for row in range(len(arrays["input_ids"]))]


def test_factorizations_are_drawn_by_their_weights(tiny_recipe, tokenizer):
    mix = {"y_given_x": 3.0, "x_given_y": 1.0}
    loaded = check_recipe(insertion_recipe(tiny_recipe, KERMIT_MODEL, factorizations=mix), data=None)
    collator = loaded.family.collator(loaded.recipe, tokenizer)
    rows = rows_of(tokenizer, [("one", "eins")]) * 4000
    sides = generated_sides(collator(rows, np.random.default_rng(0)))
    assert sides.count({1}) + sides.count({0}) == 4000
    assert abs(sides.count({1}) / 4000 - 0.75) < 0.03


def test_shares_of_a_batch_sum_to_the_loss_of_the_whole(tiny_recipe, tokenizer):
    loaded = check_recipe(insertion_recipe(tiny_recipe, KERMIT_MODEL, factorizations={"joint": 1.0}), data=None)
    family, recipe = loaded.family, loaded.recipe
    torch.manual_seed(0)
    model = family.build(recipe, tokenizer).eval()
    rows = rows_of(tokenizer, [("one two three", "eins zwei drei"), ("two", "zwei"), ("three one", "drei eins")])
    losses = []
    for share in (RankShare(), RankShare(0, 2), RankShare(1, 2)):
        batch = as_tensors(family.collator(recipe, tokenizer)(rows, np.random.default_rng(3), share))
        batch.pop("items")
        losses.append(family.loss(model, batch, recipe))
    assert torch.allclose(losses[0], losses[1] + losses[2], rtol=1e-5)


@pytest.mark.parametrize("model", [KERMIT_MODEL, INSERTION_TRANSFORMER_MODEL], ids=lambda model: model["family"])
@pytest.mark.parametrize(
    ("decoding", "message"),
    [
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, not 1.5"),
        ({"termination_penalty": float("inf")}, "termination_penalty must be a finite number"),
        ({"top_k": "many"}, r"decoding\.top_k"),
        ({"seed": 3}, "seed has no effect"),
        ({"beam_size": 3}, r"decoding\.beam_size: unknown key.*known here: strategy"),
    ],
)
def test_wrong_decoding_settings_are_errors_before_training(tiny_recipe, model, decoding, message):
    with pytest.raises(RecipeError, match=message):
        check_recipe(insertion_recipe(tiny_recipe, model, decoding=decoding), data=Path())


def test_decoding_settings_default_to_the_models(tiny_recipe, tokenizer):
    loaded = check_recipe(insertion_recipe(tiny_recipe, KERMIT_MODEL), data=Path())
    model = loaded.family.build(loaded.recipe, tokenizer)
    model.config.termination_penalty = 1.5
    facade = Kermit(loaded.family.runner(model, tokenizer), tokenizer)
    assert facade.decoding({}).termination_penalty == 1.5
    in_order = DecodingChoices.of({"strategy": "left_to_right"})
    assert for_translating(facade.info, in_order).termination_penalty is None
    with pytest.raises(DecodingError, match="left_to_right among its orders"):
        facade.decoding({"strategy": "left_to_right"})
    assert facade.decoding({"termination_penalty": 0.5}).termination_penalty == 0.5
    assert (facade.decoding({}).length_reward, facade.decoding({"candidates": 2}).length_reward) == (None, 0.5)
    for wrong in ({"beam_size": 3}, {"top_k": "many"}, {"top_k": True}, {"candidates": 0}, {"strategy": "sideways"}):
        with pytest.raises(DecodingError, match=next(iter(wrong))):
            facade.decoding(wrong)


def test_a_trunk_without_its_type_is_a_recipe_error(tiny_recipe):
    with pytest.raises(RecipeError, match="model_type"):
        check_recipe(insertion_recipe(tiny_recipe, {"family": "kermit", "trunk": {"hidden_size": 8}}), data=None)


def test_a_trunk_that_reads_from_left_to_right_is_a_recipe_error(tiny_recipe, tokenizer):
    trunk = {"model_type": "openai-gpt", "n_embd": 8, "n_layer": 1, "n_head": 1}
    loaded = check_recipe(insertion_recipe(tiny_recipe, {"family": "kermit", "trunk": trunk}), data=None)
    with pytest.raises(RecipeError, match=r"model\.trunk: OpenAIGPTModel .* left to right"):
        loaded.family.build(loaded.recipe, tokenizer)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "brt"}, r"model\.trunk\.model_type: transformers has no 'brt' \(did you mean 'bert'\?\)"),
        ({"num_attention_haeds": 4}, r"model\.trunk\.num_attention_haeds: .*did you mean 'num_attention_heads'"),
        ({"num_attention_heads": 3}, r"model\.trunk: The hidden size \(16\) is not a multiple"),
        ({"hidden_act": "gelo"}, r"model\.trunk: unknown key 'gelo'"),
        ({"hidden_size": "wide"}, r"model\.trunk: .*'hidden_size' expected int"),
        ({"vocab_size": 300}, r"model\.trunk\.vocab_size: it follows from the tokenizer"),
    ],
)
def test_a_wrong_key_of_the_trunk_is_an_error_with_its_path(tiny_recipe, tokenizer, change, message):
    model = KERMIT_MODEL | {"trunk": KERMIT_MODEL["trunk"] | change}
    loaded = check_recipe(insertion_recipe(tiny_recipe, model), data=None)
    with pytest.raises(RecipeError, match=message):
        loaded.family.build(loaded.recipe, tokenizer)


def test_a_key_that_the_trunk_reads_but_does_not_store_is_accepted(tiny_recipe, tokenizer):
    trunk = {**KERMIT_MODEL["trunk"], "model_type": "modernbert", "global_attn_every_n_layers": 1}
    loaded = check_recipe(insertion_recipe(tiny_recipe, KERMIT_MODEL | {"trunk": trunk}), data=None)
    assert loaded.family.build(loaded.recipe, tokenizer).config.trunk_config.layer_types == ["full_attention"]


def test_half_precision_leaves_the_frequencies_of_positions_exact(tiny_recipe, tokenizer, tmp_path):
    trunk = {**KERMIT_MODEL["trunk"], "model_type": "modernbert"}
    loaded = check_recipe(insertion_recipe(tiny_recipe, KERMIT_MODEL | {"trunk": trunk}), data=None)
    Kermit(loaded.family.build(loaded.recipe, tokenizer).eval(), tokenizer).save_pretrained(tmp_path)
    half = Kermit.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {weight.dtype for weight in half.engine.model.parameters()} == {torch.bfloat16}
    frequencies = [buffer for name, buffer in half.engine.model.named_buffers() if "inv_freq" in name]
    assert frequencies
    assert {buffer.dtype for buffer in frequencies} == {torch.float32}


@pytest.mark.slow
def test_texts_too_long_for_the_trunk_are_errors_before_training(tiny_recipe, corpus, tmp_path):
    model = KERMIT_MODEL | {"trunk": KERMIT_MODEL["trunk"] | {"max_position_embeddings": 8}}
    loaded = check_recipe(insertion_recipe(tiny_recipe, model), data=corpus)
    with pytest.raises(RecipeError, match=r"longest text has \d+ tokens, but .* positions for 6"):
        train(loaded, tmp_path)


def test_recipes_can_use_the_lower_bound(tiny_recipe, tokenizer):
    recipe = insertion_recipe(tiny_recipe, KERMIT_MODEL, objective={"name": "lower_bound", "prior": "uniform"})
    loaded = check_recipe(recipe, data=None)
    model = loaded.family.build(loaded.recipe, tokenizer)
    rows = rows_of(tokenizer, [("one two three", "eins zwei drei")])
    batch = as_tensors(loaded.family.collator(loaded.recipe, tokenizer)(rows, np.random.default_rng(3)))
    batch.pop("items")
    assert loaded.family.loss(model, batch, loaded.recipe).item() > 0


def test_a_model_lists_the_factorizations_of_all_sources_and_validation_has_its_own_mixture(tiny_recipe, tokenizer):
    recipe = insertion_recipe(tiny_recipe, KERMIT_MODEL)
    recipe["data"]["train"].append({"name": "german", "y": "mono.de"})
    recipe["data"]["train"].append({"x": "a", "y": "b", "factorizations": {"x_given_y": 1.0}})
    recipe["data"]["train"].reverse()
    recipe["data"]["validation"]["factorizations"] = {"joint": 1.0}
    loaded = check_recipe(recipe, data=None)
    model = loaded.family.build(loaded.recipe, tokenizer)
    loaded.task.describe(model, loaded.recipe)
    assert model.config.factorizations == ["x_given_y", "y", "y_given_x"]
    collator = loaded.family.collator(on_validation_text(loaded.recipe), tokenizer)
    arrays = collator(rows_of(tokenizer, [("one", "eins")]), np.random.default_rng(0))
    assert generated_sides(arrays) == [{0, 1}]
    recipe["data"]["validation"] = {"x": "val.en", "factorizations": {"joint": 1.0}}
    with pytest.raises(RecipeError, match=r"data\.validation\.factorizations: unpaired"):
        check_recipe(recipe, data=None)
