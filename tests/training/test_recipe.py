from pathlib import Path
from typing import Any

import pytest
import yaml

from kermit.canvas import Factorization
from kermit.errors import RecipeError
from kermit.tasks.translation_training import TranslationTask
from kermit.training.recipe import check_recipe, dump_recipe, load_recipe
from kermit.training.task import register_task


def write(folder: Path, recipe: Any) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return path


def test_a_whole_recipe_is_checked_and_its_defaults_filled_in(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    loaded = load_recipe(write(tmp_path, tiny_recipe), data=tmp_path)
    assert loaded.family.name == "transformer"
    assert loaded.recipe.factorizations == {Factorization.Y_GIVEN_X: 1.0}
    assert loaded.recipe.optimizer.betas == (0.9, 0.98)
    assert loaded.recipe.data.train[0].weight == 1.0
    again = check_recipe(yaml.safe_load(dump_recipe(loaded.recipe)), data=tmp_path)
    assert again.recipe.model_dump() == loaded.recipe.model_dump()


@pytest.mark.parametrize(
    ("path", "suggestion"),
    [
        ("learning_rat", "known here: description, seed"),
        ("optimizer.learning_rat", "did you mean 'learning_rate'?"),
        ("data.train.0.wieght", "did you mean 'weight'?"),
        ("model.layers", "did you mean 'encoder_layers'?"),
        ("objective.smoothing", "did you mean 'label_smoothing'?"),
        ("decoding.beam", "did you mean 'beams'?"),
    ],
)
def test_an_unknown_key_is_an_error_with_its_path_and_the_nearest_name(
    tiny_recipe: dict[str, Any], tmp_path: Path, path: str, suggestion: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(tmp_path, tiny_recipe), overrides=[f"{path}=1"])
    assert f"{path}: unknown key" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert suggestion in str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("schedule.max_steps=0", "schedule.max_steps: Input should be greater than 0, not 0"),
        ("schedule.name=cosinus", "schedule.name: Input should be 'inverse_sqrt', 'cosine', 'linear' or 'constant'"),
        ("model.family=transfromer", "did you mean 'transformer'?"),
        ("model.dropout=1.0", "model.dropout"),
        ("factorizations={joint: 1.0}", "factorizations: a Transformer translates in one direction"),
        ("factorizations={y_to_x: 1.0}", "factorizations.y_to_x"),
        ("data.train.0.y=null", "data.train.0: a Transformer trains only on pairs"),
        ("data.train.0.tsv=a.tsv", "data.train.0: give exactly one of"),
        ("data.train.1.x=a", "--set data.train.1.x: '1' is not an index of the list, 0 to 0"),
        ("model.max_positions=40", "model.max_positions: 40 is too few for texts of 40 tokens"),
        ("seed.a=1", "--set seed.a: 'a' is below a plain value"),
        ("seed=[1", "--set seed=[1: '[1' is not valid YAML"),
        ("seed", "write it as key=value"),
        ("tokenizer.path=somewhere", "tokenizer: give either vocab_size"),
        ("seed=-1", "seed: Input should be greater than or equal to 0, not -1"),
        ("seed=99999999999999999999", "seed: Input should be less than 4294967296"),
        ("model.heads=3", "model: heads: a width of 16 cannot be divided by 3"),
        ("model.activation=relo", "activation (did you mean 'relu'?)"),
        ("data.train=[{tsv: a, columns: [0, -1]}]", "data.train.0.columns.1: Input should be greater than or equal"),
        ("data.train.0.columns=[1, 0]", "data.train.0: columns applies only to tsv"),
        ("data.train.0.fields=[a, b]", "data.train.0: fields applies only to jsonl and hub"),
        ("data.train.0.split=test", "data.train.0: split applies only to hub"),
        ("data.validation.config=de-en", "data.validation: config applies only to hub"),
        ("optimizer.momentum=0.9", "optimizer: momentum applies only to muon"),
        ("optimizer.muon_learning_rate=0.1", "optimizer: muon_learning_rate applies only to muon"),
        ("schedule.final=0.1", "schedule: final has no effect on inverse_sqrt"),
        ("tokenizer={path: here, texts: [a]}", "tokenizer: texts apply only when training a tokenizer"),
        ("tokenizer.replaces=true", "tokenizer.replaces needs init_from"),
        (
            "data.languages={x: en, y: en}",
            "data.languages: x and y have the same name, en",
        ),
        ("evaluation.directions=[en-de, de-en]", "evaluation.directions.1: must be one of en-de, not 'de-en'"),
        ("evaluation.directions=[de]", "evaluation.directions.0: must be one of en-de, not 'de'"),
    ],
)
def test_a_wrong_value_is_an_error_with_its_path_and_the_allowed_values(
    tiny_recipe: dict[str, Any], tmp_path: Path, override: str, message: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(tmp_path, tiny_recipe), overrides=[override])
    assert message in str(caught.value)


def test_a_missing_key_is_named(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    del tiny_recipe["schedule"]
    with pytest.raises(RecipeError, match=r"schedule: .* is missing"):
        load_recipe(write(tmp_path, tiny_recipe))


def test_a_file_that_is_not_a_recipe_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="the recipe does not exist"):
        load_recipe(tmp_path / "none.yaml")
    with pytest.raises(RecipeError, match="a mapping"):
        load_recipe(write(tmp_path, ["a", "list"]))
    (tmp_path / "bad.yaml").write_text("data: {a: [1\nb: 2\n")
    with pytest.raises(RecipeError, match=r"^[^\n]*bad\.yaml:2:2: [^\n]*YAML: [^\n]*$"):
        load_recipe(tmp_path / "bad.yaml")


def test_overrides_are_read_as_yaml(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    overrides = ["data.train.0.weight=2", "optimizer.betas=[0.8, 0.9]", "averaging.ema=null", "init_from=some/folder"]
    recipe = load_recipe(write(tmp_path, tiny_recipe), overrides=overrides).recipe
    assert recipe.data.train[0].weight == 2.0
    assert recipe.optimizer.betas == (0.8, 0.9)
    assert recipe.averaging.ema is None
    assert recipe.init_from == "some/folder"


def test_data_paths_are_relative_to_the_option_or_the_environment(
    tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, tiny_recipe)
    monkeypatch.setenv("KERMIT_DATA", "/from/environment")
    assert load_recipe(path).data == Path("/from/environment")
    loaded = load_recipe(path, data="/from/option")
    assert loaded.recipe.data.train[0].under(loaded.data).x == Path("/from/option/train.en")


def test_a_recipe_is_merged_over_the_one_it_extends(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(tiny_recipe), encoding="utf-8")
    top = {"extends": "base.yaml", "seed": 9, "schedule": {"max_steps": 5}, "data": {"train": [{"tsv": "a.tsv"}]}}
    (tmp_path / "top.yaml").write_text(yaml.safe_dump(top), encoding="utf-8")
    recipe = load_recipe(tmp_path / "top.yaml").recipe
    assert (recipe.seed, recipe.schedule.max_steps) == (9, 5)
    assert recipe.schedule.warmup_steps == tiny_recipe["schedule"]["warmup_steps"]
    assert [str(source.tsv) for source in recipe.data.train] == ["a.tsv"]
    assert recipe.data.validation is not None


def test_recipes_that_extend_each_other_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n", encoding="utf-8")
    with pytest.raises(RecipeError, match="cycle"):
        load_recipe(tmp_path / "a.yaml")


def test_environment_variables_are_substituted(
    tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_recipe["init_from"] = "${OUR_RUNS}/joint"
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(tiny_recipe), encoding="utf-8")
    with pytest.raises(RecipeError, match="init_from: the environment variable OUR_RUNS is not set"):
        load_recipe(tmp_path / "a.yaml")
    monkeypatch.setenv("OUR_RUNS", "/runs")
    assert load_recipe(tmp_path / "a.yaml").recipe.init_from == "/runs/joint"


KERMIT = {"family": "kermit", "trunk": {"model_type": "bert"}}


@pytest.mark.parametrize("key", ["slot_vector", "positions"])
@pytest.mark.parametrize("family", [KERMIT, {"family": "insertion_transformer"}], ids=["kermit", "insertion"])
def test_a_wrong_setting_of_the_head_is_an_error_with_its_key(
    tiny_recipe: dict[str, Any], tmp_path: Path, key: str, family: dict[str, Any]
) -> None:
    recipe = {**tiny_recipe, "model": family | {key: "neither"}}
    with pytest.raises(RecipeError, match=rf"recipe\.yaml: model\.{key}: "):
        load_recipe(write(tmp_path, recipe))


def test_a_custom_task_names_the_families_that_support_it(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    class Summaries(TranslationTask):
        name = "summaries"

    path = write(tmp_path, tiny_recipe | {"task": "summaries", "model": KERMIT, "decoding": {}})
    register_task(Summaries())
    with pytest.raises(RecipeError, match=r"kermit does not support the task summaries; .*`register_task`"):
        load_recipe(path)
    register_task(Summaries(), families=["transformer"])
    with pytest.raises(RecipeError, match=r"kermit does not support the task summaries; .*transformer"):
        load_recipe(path)
    register_task(Summaries(), families=["kermit", "transformer"])
    assert load_recipe(path).task.name == "summaries"
