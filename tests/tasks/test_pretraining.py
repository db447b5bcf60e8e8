"""Pretraining by recipes: three families learn the same text, are evaluated at the same tokens, and can be resumed."""

import contextlib
import copy
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from insertion_models import Says, TableEngine
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertConfig, BertModel, PreTrainedTokenizerFast

from kermit import KermitForInsertion, cli
from kermit.canvas import Canvas, SpecialTokens
from kermit.data.encoding import Row
from kermit.data.joint_tokenizer import load_tokenizer, train_tokenizer
from kermit.errors import RecipeError
from kermit.families.base import HeldOutBatch, Recovered, complete_texts
from kermit.families.kermit import recovered_by
from kermit.loading import list_checkpoints
from kermit.tasks.held_out import DROP_PROBABILITY, held_out_batches, judge
from kermit.training.recipe import LoadedRecipe, check_recipe
from kermit.training.run import prepare_tokenizer, train
from kermit.training.trainer import on_validation_text
from kermit.training.warm_start import prepare_model

CIRCLE = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay", "kite", "lynx"]
TRUNK = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "initializer_range": 0.15,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "kermit": {"kept": "bernoulli", "empty_slot_rate": 0.3, "location_weight": 0.1},
    "masked_lm": {},
    "causal_lm": {},
}
SPECIALS = SpecialTokens(cls_id=1, sep_id=2, pad_id=0, end_of_slot_id=3)


@pytest.fixture(scope="module")
def articles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Articles whose lines cycle through the same words, so that a word determines its neighbours."""
    folder = tmp_path_factory.mktemp("articles")
    draw = random.Random(5)

    def line() -> str:
        start = draw.randrange(len(CIRCLE))
        return " ".join(CIRCLE[(start + number) % len(CIRCLE)] for number in range(draw.randint(5, 9)))

    for name, count in (("train.txt", 80), ("valid.txt", 12)):
        texts = ["\n".join(line() for _ in range(draw.randint(1, 8))) for _ in range(count)]
        (folder / name).write_text("\n\n".join(texts) + "\n")
    return folder


def recipe(family: str, steps: int, **changes: Any) -> dict[str, Any]:
    return copy.deepcopy(
        {
            "task": "pretraining",
            "seed": 1,
            "data": {"train": [{"text": "train.txt"}], "validation": {"text": "valid.txt"}, "max_tokens": 16},
            "tokenizer": {"vocab_size": 310, "texts": ["train.txt"]},
            "model": {"family": family, "trunk": TRUNK},
            "objective": OBJECTIVES[family],
            "batch": {"tokens": 800},
            "optimizer": {"name": "muon", "learning_rate": 0.01, "muon_learning_rate": 0.03},
            "schedule": {"max_steps": steps, "warmup_steps": 5, "name": "linear"},
            "evaluation": {"every": max(steps // 2, 1), "texts": 40},
            "checkpoints": {"every": 4, "keep": 2},
            "runtime": {"log_every": 1000},
        }
        | changes
    )


def with_data(raw: dict[str, Any], **data: Any) -> dict[str, Any]:
    return raw | {"data": raw["data"] | data}


def history(folder: Path, name: str) -> list[float]:
    state = json.loads((list_checkpoints(folder)[-1] / "trainer_state.json").read_text())
    return [entry[name] for entry in state["log_history"] if name in entry]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "steps", "accuracy", "loader"),
    [
        ("kermit", 120, 0.75, KermitForInsertion),
        ("masked_lm", 120, 0.75, AutoModelForMaskedLM),
        ("causal_lm", 50, 0.6, AutoModelForCausalLM),
    ],
)
def test_a_model_learns_in_seconds_and_the_one_with_the_lowest_loss_is_kept(
    articles: Path, tmp_path: Path, family: str, steps: int, accuracy: float, loader: Any
) -> None:
    raw = recipe(family, steps, checkpoints={"every": steps, "keep": 1})
    result = train(check_recipe(raw, data=articles), tmp_path)
    losses = history(tmp_path, "eval_loss")
    assert losses[1] < losses[0]
    assert result.best == min(losses)
    assert json.loads((tmp_path / "summary.json").read_text())["best_validation_loss"] == result.best
    assert history(tmp_path, "eval_accuracy_single")[-1] > accuracy
    if family == "kermit":
        assert history(tmp_path, "eval_end_precision")[-1] > 0.9
        assert history(tmp_path, "eval_end_recall")[-1] > 0.9
    _, info = loader.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["kermit", "masked_lm", "causal_lm"])
def test_a_resumed_pretraining_gives_the_same_weights(articles: Path, tmp_path: Path, family: str) -> None:
    """Including everything random: packing, drops, empty slots and dropout."""
    raw = recipe(family, 8, averaging={"ema": 0.9})
    raw["model"]["trunk"] |= {"hidden_dropout_prob": 0.1}
    loaded = check_recipe(raw, data=articles)
    for name in ("whole", "stopped"):
        train(loaded, tmp_path / name)
    list_checkpoints(tmp_path / "stopped")[-1].rename(tmp_path / "gone")  # as if killed after step 4
    assert train(loaded, tmp_path / "stopped", resume=True).steps == 8
    for file in ("checkpoint-8/model.safetensors", "checkpoint-8/average.safetensors", "model.safetensors"):
        whole, resumed = (load_file(tmp_path / name / file) for name in ("whole", "stopped"))
        assert whole.keys() == resumed.keys()
        assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items()), file


@pytest.mark.slow
@pytest.mark.parametrize("family", ["kermit", "masked_lm", "causal_lm"])
def test_half_precision_trains_validates_and_evaluates(articles: Path, tmp_path: Path, family: str) -> None:
    raw = recipe(family, 2, runtime={"precision": "bfloat16"})
    if family != "causal_lm":
        shape = {key: value for key, value in TRUNK.items() if not key.endswith("_prob")}
        raw["model"]["trunk"] = shape | {"model_type": "modernbert", "global_attn_every_n_layers": 1}
    train(check_recipe(raw, data=articles), tmp_path)
    assert all(0 < loss < 20 for loss in history(tmp_path, "eval_loss"))
    assert history(tmp_path, "eval_accuracy")
    assert all(weight.dtype == torch.float32 for weight in load_file(tmp_path / "model.safetensors").values())


@pytest.mark.slow
def test_the_command_reports_the_result(
    articles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe("causal_lm", 2)))
    arguments = ["train", tmp_path / "tiny.yaml", "--data", articles, "--output", tmp_path / "out"]
    monkeypatch.setattr(sys, "argv", ["kermit", *map(str, arguments)])
    with contextlib.suppress(SystemExit):
        cli.main()
    assert f"{tmp_path / 'out'}: 2 steps, best validation loss " in capsys.readouterr().out


# What is judged


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer([" ".join(CIRCLE)] * 3, 310)


ROWS = [Row(x=[10, 11, 12], y=[13, 14], source=0), Row(x=[15] * 30, y=[], source=0)] * 20


def test_the_held_out_drops_are_the_same_every_time_and_15_percent_of_the_content() -> None:
    first, again = (list(held_out_batches(SPECIALS, ROWS)) for _ in range(2))
    assert all(np.array_equal(one.dropped, two.dropped) for one, two in zip(first, again, strict=True))
    dropped = sum(int(batch.dropped.sum()) for batch in first)
    content = 20 * 5 + 20 * 30
    spread = (content * DROP_PROBABILITY * (1 - DROP_PROBABILITY)) ** 0.5
    assert dropped == pytest.approx(content * DROP_PROBABILITY, abs=5 * spread)
    for batch in first:
        assert not (batch.dropped & (batch.texts.batch.token_ids < 4)).any(), "specials stay"


def test_single_drops_are_between_two_kept_tokens() -> None:
    texts = complete_texts(SPECIALS, [Row(x=[9] * 6, y=[], source=0)])
    dropped = np.array([[False, True, True, False, True, False, True, False]])
    batch = HeldOutBatch(texts, dropped)
    assert batch.single.nonzero()[1].tolist() == [4, 6]


def oracle(answers: list[int]) -> TableEngine:
    """An engine that predicts the tokens of a list, slot by slot; 11 is always the second choice."""
    left = iter(answers)

    def says(canvas: Canvas) -> Says:
        told = {slot: next(left) for slot in sorted(canvas.open_slots)}
        return Says({slot: {token: 0.6, 11: 0.4} if token != 11 else {11: 1.0} for slot, token in told.items()})

    return TableEngine(says, vocab_size=30, specials=SPECIALS)


def test_the_metrics_of_kermit_equal_values_worked_out_by_hand() -> None:
    # [CLS] 10 11 12 13 14 15 [SEP] without 11, 12 and 14: slots 1 (empty), 2 (11 12), 3 (14) and 4 (empty)
    texts = complete_texts(SPECIALS, [Row(x=[10, 11, 12, 13, 14, 15], y=[], source=0)])
    dropped = np.array([[False, False, True, True, False, True, False, False]])
    batch = HeldOutBatch(texts, dropped)
    found = recovered_by(oracle([3, 12, 3, 20]), batch)  # slot 3 predicts the end, then 11, which it does not miss
    assert found.correct.nonzero()[1].tolist() == [2, 3], "one of the two that are missing counts for both"
    assert found.said_end.tolist() == [True, False, True, False]
    assert found.empty.tolist() == [True, False, False, True]
    found = recovered_by(oracle([3, 3, 14, 3]), batch)  # slot 2 predicts the end, then 11, which is missing from it
    assert found.correct.nonzero()[1].tolist() == [2, 3, 5]


class Elevens:
    """A family whose models predict 11 at every slot."""

    def recover(self, model: Any, batch: HeldOutBatch) -> Recovered:
        slots = int((~batch.dropped).sum()) - len(batch.dropped)  # left of every kept token except [CLS]
        return recovered_by(oracle([11] * slots), batch)


def test_the_metrics_are_shares_over_all_batches() -> None:
    rows = [Row(x=[10, 11, 12, 13], y=[], source=0)] * 30
    batches = list(held_out_batches(SPECIALS, rows))
    single = sum(int(batch.single.sum()) for batch in batches)
    right = sum(int((batch.single & (batch.texts.batch.token_ids == 11)).sum()) for batch in batches)
    metrics = judge(Elevens(), nn.Identity(), SPECIALS, rows)
    assert metrics["accuracy_single"] == pytest.approx(right / single, abs=1e-5)
    assert metrics["end_recall"] == 0.0
    assert "end_precision" not in metrics, "no slot said end-of-slot"


# What is built


@pytest.fixture(scope="module")
def encoder(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder, without a head."""
    folder = tmp_path_factory.mktemp("encoder")
    torch.manual_seed(0)
    shape = {key: value for key, value in TRUNK.items() if key != "model_type"}
    BertModel(BertConfig(vocab_size=len(tokenizer), **shape)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def started(family: str, encoder: Path, **model: Any) -> LoadedRecipe:
    raw = recipe(family, 1, model={"family": family, "trunk_from": str(encoder), **model})
    return check_recipe(raw | {"tokenizer": {"path": str(encoder)}}, data=Path())


@pytest.mark.parametrize("family", ["kermit", "masked_lm", "causal_lm"])
def test_every_family_starts_from_the_same_encoder(encoder: Path, family: str) -> None:
    loaded = started(family, encoder, trunk={"hidden_dropout_prob": 0.25})
    model = prepare_model(loaded, prepare_tokenizer(loaded))
    trunk = model.trunk if family == "kermit" else model.base_model
    for name, weight in BertModel.from_pretrained(encoder).state_dict().items():
        if not name.startswith("pooler."):
            assert torch.equal(trunk.state_dict()[name], weight), name
    assert trunk.config.hidden_dropout_prob == 0.25
    assert trunk.config.is_decoder == (family == "causal_lm")
    embedding = model.get_input_embeddings().weight
    if family != "kermit":
        assert model.get_output_embeddings().weight is embedding


@pytest.mark.parametrize("family", ["kermit", "masked_lm", "causal_lm"])
def test_a_tokenizer_without_end_of_slot_gets_it_and_the_embedding_a_row(
    encoder: Path, tmp_path: Path, family: str
) -> None:
    vocabulary = json.loads((encoder / "tokenizer.json").read_text())
    vocabulary["added_tokens"] = [token for token in vocabulary["added_tokens"] if token["content"] != "[EOSLOT]"]
    vocabulary["model"]["vocab"]["end"] = vocabulary["model"]["vocab"].pop("[EOSLOT]")
    for file in encoder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "tokenizer.json").write_text(json.dumps(vocabulary))
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings.pop("extra_special_tokens", None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    loaded = started(family, tmp_path)
    tokenizer = prepare_tokenizer(loaded)
    rows = len(tokenizer)
    model = prepare_model(loaded, tokenizer)
    assert len(tokenizer) == rows + 1 == model.get_input_embeddings().num_embeddings


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"trunk_from": "/nowhere/at-all"}, r"model\.trunk_from: "),
        ({"trunk": {"hidden_droput": 0.1}}, r"model\.trunk\.hidden_droput: .*did you mean 'hidden_dropout_prob'"),
    ],
)
def test_a_wrong_checkpoint_is_a_user_error(encoder: Path, model: dict[str, Any], message: str) -> None:
    for family in OBJECTIVES:
        loaded = started(family, encoder, **model)
        with pytest.raises(RecipeError, match=message):
            loaded.family.build(loaded.recipe, load_tokenizer(encoder))


@pytest.mark.parametrize("family", ["kermit", "masked_lm", "causal_lm"])
def test_a_checkpoint_without_its_trunk_is_rejected(encoder: Path, tmp_path: Path, family: str) -> None:
    for file in encoder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(encoder / "model.safetensors")
    renamed = {name.replace("encoder.layer.", "encoder.block."): weight for name, weight in weights.items()}
    save_file(renamed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded = started(family, tmp_path)
    with pytest.raises(RecipeError, match=r"model\.trunk_from: .* lacks \d+ weights of its trunk"):
        loaded.family.build(loaded.recipe, load_tokenizer(encoder))


def test_a_text_without_y_has_one_segment(articles: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    for family in OBJECTIVES:
        loaded = check_recipe(recipe(family, 1), data=articles)
        batch = loaded.family.collator(loaded.recipe, tokenizer)(ROWS[:2], np.random.default_rng(0))
        if family == "kermit":  # its canvases lack tokens; their frames are complete
            frames = np.isin(batch["input_ids"], (tokenizer.cls_token_id, tokenizer.sep_token_id)).sum(1)
            assert frames.tolist() == [3, 2]
        else:
            assert batch["valid"].sum(1).tolist() == [5 + 3, 30 + 2]


def test_the_validation_loss_includes_every_empty_slot(articles: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    asked = []
    for rate in (1.0, 0.01):
        objective = {"kept": "bernoulli", "empty_slot_rate": rate}
        loaded = check_recipe(recipe("kermit", 1) | {"objective": objective}, data=articles)
        for made in (loaded.recipe, on_validation_text(loaded.recipe)):
            batch = loaded.family.collator(made, tokenizer)(ROWS, np.random.default_rng(0))
            asked.append((len(batch["asked"]), float(batch["slot_weights"].sum())))
    training, whole, sampled, also_whole = asked
    assert training == whole == also_whole
    assert sampled[0] < whole[0] / 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "pretrainig"}, r"task: 'pretrainig' is not one of pretraining, .*translation \(did you mean"),
        (
            {"model": {"family": "transformer"}},
            "transformer does not support the task pretraining; .*causal_lm, kermit, m",
        ),
        ({"factorizations": {"x": 1.0}}, "factorizations: must be joint"),
        ({"decoding": {"max_tokens": 5}}, r"decoding\.max_tokens: unknown key"),
        ({"evaluation": {"directions": ["x-y"]}}, r"evaluation\.directions: unknown key"),
        ({"data": {"train": [{"text": "a", "hub": "b"}]}}, r"data\.train\.0: give either text"),
        ({"data": {"train": [{"x": "a"}]}}, r"data\.train\.0\.x: unknown key .*known here: .*text, hub"),
    ],
)
def test_a_wrong_recipe_is_an_error_with_place_and_reason(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        check_recipe(recipe("masked_lm", 1) | changes, data=Path())


def test_texts_beyond_the_models_positions_are_rejected(articles: Path) -> None:
    for family in OBJECTIVES:
        loaded = check_recipe(with_data(recipe(family, 1), max_tokens=65), data=articles)
        with pytest.raises(RecipeError, match=r"data\.max_tokens: 65 is more than the model's 64 positions"):
            prepare_model(loaded, prepare_tokenizer(loaded))
