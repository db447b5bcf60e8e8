"""The trainer on a tiny Transformer: normalisation of the loss, evaluation, kept files, resuming, finetuning."""

import json
import os
import shutil
import signal
import tempfile
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from checkpoint_states import optimizer_state
from insertion_models import TINY_TRUNK
from safetensors.torch import load_file
from transformers import RobertaConfig, RobertaForMaskedLM

from kermit.data.batching import BatchPlanner
from kermit.data.joint_tokenizer import load_tokenizer
from kermit.errors import DataError, RecipeError
from kermit.loading import list_checkpoints
from kermit.modeling.tensors import as_tensors
from kermit.pipeline import Kermit
from kermit.tasks.pretraining import PRETRAINING
from kermit.tasks.translation import trained_directions
from kermit.tasks.translation_training import TRANSLATION
from kermit.training.recipe import LoadedRecipe, check_recipe
from kermit.training.run import prepare_tokenizer, train
from kermit.training.trainer import KermitTrainer
from kermit.training.warm_start import prepare_model


def loaded(recipe: dict[str, Any], corpus: Path, **changes: Any) -> LoadedRecipe:
    return check_recipe({**recipe, **changes}, data=corpus)


def weights(folder: Path, name: str = "model.safetensors") -> dict[str, torch.Tensor]:
    return load_file(folder / name)


def assert_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


@pytest.mark.slow
def test_training_produces_a_model_that_translates(tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path) -> None:
    result = train(loaded(tiny_recipe, corpus), tmp_path)
    assert (result.steps, result.stopped_by) == (12, None)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["checkpoint-8", "checkpoint-12"]
    assert not list(tmp_path.rglob("*.bin")), "weights are safetensors only"
    assert list((tmp_path / "runs").rglob("events.out.tfevents*")), "TensorBoard has its log"
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["steps"] == 12
    assert summary["best_step"] in (6, 12)
    text = TRANSLATION.training_text(loaded(tiny_recipe, corpus), load_tokenizer(tmp_path))
    first = len(BatchPlanner(text, (1.0,), tokens=500, seed=3).epoch(0))
    assert first >= 12, "all steps are in the first epoch"
    assert summary["epochs"] == round(12 / first, 2)
    assert_same(weights(tmp_path), weights(tmp_path / "best"))
    facade = Kermit.from_pretrained(tmp_path)
    assert facade.languages == ("en", "de")
    assert [str(way) for way in trained_directions(facade)] == ["en-de"]
    (translation,) = facade.translate(["one two."], "de")
    assert translation.tokens + 1 == translation.rounds


@pytest.mark.slow
def test_the_averaged_weights_are_evaluated_and_kept(tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path) -> None:
    changes = {"schedule": {"max_steps": 4, "warmup_steps": 1}, "evaluation": {"every": 4, "texts": 2}}
    train(loaded(tiny_recipe, corpus, **changes), tmp_path)
    last, average = (weights(tmp_path / "checkpoint-4", f"{name}.safetensors") for name in ("model", "average"))
    kept = weights(tmp_path)
    assert all(torch.equal(kept[name], tensor) for name, tensor in average.items())
    assert not torch.equal(kept["model.shared.weight"], last["model.shared.weight"])


def test_broken_lines_of_the_tokenizers_text_are_errors_or_counted(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = tmp_path / "broken.txt"
    texts.write_bytes(b"one two\n\n\xff\xfe\nthree\n")
    tiny_recipe["tokenizer"] = {"vocab_size": 270, "texts": [str(texts)]}
    tiny_recipe["data"]["on_bad"] = "skip"
    with caplog.at_level("INFO"):
        prepare_tokenizer(loaded(tiny_recipe, corpus))
    assert f"read 2 texts, skipped 1: 1 invalid UTF-8 (first at {texts}:3)" in caplog.text
    tiny_recipe["data"]["on_bad"] = "error"
    with pytest.raises(DataError, match=r"broken\.txt:3: invalid UTF-8"):
        prepare_tokenizer(loaded(tiny_recipe, corpus))


def test_a_new_model_is_drawn_from_the_seed(tiny_recipe: dict[str, Any], corpus: Path) -> None:
    def drawn(seed: int) -> torch.Tensor:
        recipe = loaded(tiny_recipe, corpus, seed=seed)
        return prepare_model(recipe, prepare_tokenizer(recipe)).get_input_embeddings().weight

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path
) -> None:
    schedule = {"max_steps": 4, "warmup_steps": 1}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(loaded(tiny_recipe, corpus, seed=seed, schedule=schedule), tmp_path / name)
    first, again, other = (weights(tmp_path / name / "checkpoint-4") for name in "abc")
    assert_same(first, again)
    assert not torch.equal(first["model.shared.weight"], other["model.shared.weight"])


KERMIT = {
    "model": {"family": "kermit", "trunk": TINY_TRUNK},
    "objective": {"kept": "prior", "empty_slot_rate": 0.5},
    "factorizations": {"joint": 1.0, "y_given_x": 1.0},
    "decoding": {"max_tokens": 12},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch": {"tokens": 250, "accumulate": 2}, "optimizer": {"name": "muon"}},
        KERMIT,
        KERMIT | {"batch": {"tokens": 1200, "accumulate": 2}, "optimizer": {"name": "muon"}},
    ],
    ids=["plain", "accumulating with muon", "kermit", "kermit over epochs with muon"],
)
def test_resuming_from_a_checkpoint_gives_the_uninterrupted_weights(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    recipe = loaded(tiny_recipe, corpus, **changes)
    train(recipe, tmp_path / "whole")
    stopped = tmp_path / "stopped"
    limited = loaded(tiny_recipe, corpus, **changes)
    train(limited, stopped)
    for path in [*list_checkpoints(stopped)[1:], stopped / "model.safetensors"]:  # as if killed after step 8
        path.rename(tmp_path / f"gone-{path.name}")
    assert train(recipe, stopped, resume=True).steps == 12
    for name in ("checkpoint-12", ".", "best"):
        assert_same(weights(tmp_path / "whole" / name), weights(stopped / name))
    last = ("whole/checkpoint-12", "stopped/checkpoint-12")
    assert_same(*(optimizer_state(tmp_path / folder) for folder in last))


def signalled_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Have SIGTERM sent in that step."""
    training_step = KermitTrainer.training_step

    def stepping(self: KermitTrainer, *arguments: Any, **keywords: Any) -> Any:
        if self.state.global_step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return training_step(self, *arguments, **keywords)

    patch.setattr(KermitTrainer, "training_step", stepping)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "told"), [("train.de", "tokenizer, train.de"), ("val.en", "val.en"), ("test.en", "tokenizer")]
)
def test_a_run_is_not_resumed_with_other_text(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path, changed: str, told: str
) -> None:
    data, output = tmp_path / "data", tmp_path / "output"
    shutil.copytree(corpus, data)
    tiny_recipe["tokenizer"]["texts"] = ["train.en", "train.de", "test.en"]
    recipe = loaded(tiny_recipe, data, schedule={"max_steps": 2, "warmup_steps": 0})
    train(recipe, output)
    file = data / changed
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("".join(f"xylophone {line}\n" for line in lines), encoding="utf-8")
    with pytest.raises(RecipeError, match=f"^{told}: changed since "):
        train(recipe, output, resume=True)


@pytest.mark.slow
def test_an_epoch_is_planned_once_and_not_again_on_resume(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del tiny_recipe["data"]["validation"]
    recipe = loaded(tiny_recipe, corpus, batch={"tokens": 2500})
    train(recipe, tmp_path / "whole")
    planned: list[int] = []
    plan = BatchPlanner.epoch
    monkeypatch.setattr(BatchPlanner, "epoch", lambda self, epoch: planned.append(epoch) or plan(self, epoch))
    with pytest.MonkeyPatch.context() as patch:
        signalled_at(9, patch)
        train(recipe, tmp_path / "stopped")
    stopped_in = planned[-1]
    assert planned == list(range(stopped_in + 1))
    assert stopped_in > 1, "some epochs are over"
    planned.clear()
    train(recipe, tmp_path / "stopped", resume=True)
    assert planned == list(range(planned[0], planned[-1] + 1))
    assert planned[0] in (stopped_in - 1, stopped_in), "the last may have been planned ahead"
    assert_same(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("whole", "stopped")]
    assert summaries[0]["epochs"] == summaries[1]["epochs"] > stopped_in


@pytest.mark.slow
@pytest.mark.parametrize("name", ["best", "runs", "recipe.yaml"])
def test_files_that_training_did_not_write_are_not_removed(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path, name: str
) -> None:
    place = tmp_path / name
    if place.suffix:
        place.write_text(yaml.safe_dump(tiny_recipe))
    else:
        (place / "mine").mkdir(parents=True)
    for resume in (False, True):
        with pytest.raises(RecipeError, match=f"{name} was not written"):
            train(loaded(tiny_recipe, corpus), tmp_path, resume=resume)
    assert place.is_file() or (place / "mine").is_dir()


@pytest.mark.slow
def test_the_best_model_of_a_run_without_a_checkpoint_is_kept(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path
) -> None:
    recipe = loaded(tiny_recipe, corpus, schedule={"max_steps": 2, "warmup_steps": 0})
    train(recipe, tmp_path)
    for path in [*list_checkpoints(tmp_path), tmp_path / "model.safetensors"]:  # as if killed before the first of them
        path.rename(tmp_path / f"gone-{path.name}")
    with pytest.raises(RecipeError, match="add --resume"):
        train(recipe, tmp_path)
    assert (tmp_path / "best" / "model.safetensors").is_file()
    assert train(recipe, tmp_path, resume=True).steps == 2


def test_accumulating_two_half_batches_is_one_step_of_their_mean(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path
) -> None:
    """Normalised over the whole step, a long and a short batch are weighted by their tokens."""
    from kermit.data.encoding import encode_sources

    tiny_recipe["model"]["dropout"] = 0.0
    del tiny_recipe["data"]["validation"]
    recipe = loaded(tiny_recipe, corpus)
    tokenizer = prepare_tokenizer(recipe)
    text = encode_sources([s.under(corpus) for s in recipe.recipe.data.train], tokenizer, max_tokens=40)
    trainer = KermitTrainer(recipe, prepare_model(recipe, tokenizer), tokenizer, text, None, tmp_path)
    collator, generator = trainer.collator, np.random.default_rng()
    rows = text.fetch(range(9))

    def gradients(parts: list[list[Any]]) -> list[torch.Tensor]:
        trainer.model.zero_grad()
        batches = [as_tensors(collator(part, generator)) for part in parts]
        items = trainer._get_num_items_in_batch(batches, torch.device("cpu"))
        for batch in batches:
            trainer.compute_loss(trainer.model, batch, num_items_in_batch=items).backward()
        return [parameter.grad.clone() for parameter in trainer.model.parameters() if parameter.grad is not None]

    for whole, split in zip(gradients([rows]), gradients([rows[:2], rows[2:]]), strict=True):
        assert torch.allclose(whole, split, atol=1e-6)


@pytest.mark.slow
def test_a_folder_with_a_run_is_not_overwritten_and_another_recipe_is_not_resumed(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path
) -> None:
    recipe = {**tiny_recipe, "schedule": {"max_steps": 4, "warmup_steps": 1}}
    train(loaded(recipe, corpus), tmp_path)
    with pytest.raises(RecipeError, match="add --resume"):
        train(loaded(recipe, corpus), tmp_path)
    with pytest.raises(RecipeError, match=r"optimizer\.learning_rate, seed differ"):
        train(loaded(recipe, corpus, seed=9, optimizer={"learning_rate": 0.5}), tmp_path, resume=True)
    (tmp_path / "recipe.yaml").write_text("data: [")
    with pytest.raises(RecipeError, match=r"recipe\.yaml:1:\d: .*YAML"):
        train(loaded(recipe, corpus), tmp_path, resume=True)


@pytest.mark.slow
def test_monitoring_settings_may_change_on_resume(tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path) -> None:
    train(loaded(tiny_recipe, corpus), tmp_path)
    list_checkpoints(tmp_path)[-1].rename(tmp_path / "gone")  # the last is now that of step 8
    kept = tmp_path / "recipe.yaml"
    kept.write_text(kept.read_text().replace("  clip_norm: 1.0\n", ""))  # as if written before this key existed
    train(loaded(tiny_recipe, corpus, checkpoints={"every": 1, "keep": 9}), tmp_path, resume=True)
    assert [path.name for path in list_checkpoints(tmp_path)] == [f"checkpoint-{step}" for step in range(8, 13)]


@pytest.mark.slow
def test_a_finished_run_can_be_extended(tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path) -> None:
    schedule = {"name": "constant", "warmup_steps": 2}
    train(loaded(tiny_recipe, corpus, schedule=schedule | {"max_steps": 18}), tmp_path / "whole")
    assert train(loaded(tiny_recipe, corpus, schedule=schedule | {"max_steps": 12}), tmp_path / "longer").steps == 12
    extended = loaded(tiny_recipe, corpus, schedule=schedule | {"max_steps": 18})
    assert train(extended, tmp_path / "longer", resume=True).steps == 18
    assert_same(*(weights(tmp_path / way / "checkpoint-18") for way in ("whole", "longer")))


@pytest.mark.slow
def test_the_number_of_workers_may_change_on_resume_without_effect(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path
) -> None:
    def with_workers(count: int) -> LoadedRecipe:
        return loaded(tiny_recipe, corpus, **KERMIT, batch={"tokens": 2500}, runtime={"workers": count})

    train(with_workers(0), tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        signalled_at(4, patch)
        assert train(with_workers(2), tmp_path / "stopped").steps == 5
    assert train(with_workers(1), tmp_path / "stopped", resume=True).steps == 12
    for name in ("checkpoint-12", "."):
        assert_same(weights(tmp_path / "whole" / name), weights(tmp_path / "stopped" / name))


@pytest.mark.slow
def test_unsupported_half_precision_is_rejected_before_anything_is_written(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    recipe = loaded(tiny_recipe, corpus, runtime={"precision": "float16"})
    with pytest.raises(RecipeError, match=r"^runtime\.precision: float16 needs a GPU, .*; set bfloat16 or float32$"):
        train(recipe, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_summary_of_a_run_is_written_atomically(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda self, place: written.append(Path(place).name) or rename(self, place))
    train(loaded(tiny_recipe, corpus, schedule={"max_steps": 2, "warmup_steps": 0}), tmp_path)
    assert {"recipe.yaml", "inputs.json", "summary.json", "model.safetensors"} <= set(written)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.slow
def test_max_minutes_stops_a_run_and_keeps_the_model(tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path) -> None:
    schedule = {"max_steps": 1000, "warmup_steps": 2, "max_minutes": 0.01}
    result = train(loaded(tiny_recipe, corpus, schedule=schedule), tmp_path)
    assert 0 < result.steps < 1000
    assert (tmp_path / "model.safetensors").is_file()


@pytest.mark.slow
def test_finetuning_starts_from_a_saved_model(tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path) -> None:
    short = {"max_steps": 2, "warmup_steps": 0}
    train(loaded(tiny_recipe, corpus, schedule=short), tmp_path / "first")
    nothing = {"learning_rate": 1e-12, "weight_decay": 0.0}
    recipe = loaded(
        tiny_recipe, corpus, schedule=short, optimizer=nothing, averaging={}, init_from=str(tmp_path / "first")
    )
    train(recipe, tmp_path / "second")
    for name, tensor in weights(tmp_path / "first").items():
        assert torch.allclose(tensor, weights(tmp_path / "second")[name], atol=1e-6)
    other = {
        **recipe.recipe.model_dump(mode="json"),
        "tokenizer": {"vocab_size": 318, "texts": ["train.en", "train.de"]},
    }
    with pytest.raises(RecipeError, match="was trained with another tokenizer"):
        train(check_recipe(other, data=corpus), tmp_path / "third")
    other["tokenizer"]["replaces"] = True
    assert train(check_recipe(other, data=corpus), tmp_path / "third").steps == 2
    first, third = weights(tmp_path / "first"), weights(tmp_path / "third")
    assert first.keys() == third.keys()
    lengths = {len(one) - len(other) for one, other in zip(first.values(), third.values(), strict=True) if one.dim()}
    assert len(lengths) == 2  # the parameters per token, and all others
    for name, tensor in first.items():
        if tensor.shape == third[name].shape:
            assert torch.allclose(tensor, third[name], atol=1e-6)


@pytest.mark.slow
def test_gradient_checkpointing_and_bfloat16_run(tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path) -> None:
    runtime = {"gradient_checkpointing": True, "precision": "bfloat16"}
    schedule = {"max_steps": 2, "warmup_steps": 0}
    assert train(loaded(tiny_recipe, corpus, runtime=runtime, schedule=schedule), tmp_path).steps == 2


@pytest.mark.slow
def test_training_in_bfloat16_is_close_to_float32(tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path) -> None:
    schedule = {"max_steps": 6, "warmup_steps": 0}
    found = {}
    for precision in ("float32", "bfloat16"):
        recipe = loaded(tiny_recipe, corpus, runtime={"precision": precision}, schedule=schedule)
        train(recipe, tmp_path / precision)
        found[precision] = torch.cat([weight.flatten() for weight in weights(tmp_path / precision / "best").values()])
    assert not torch.equal(found["float32"], found["bfloat16"])
    assert torch.nn.functional.cosine_similarity(found["float32"], found["bfloat16"], dim=0) > 0.99


def test_the_model_settings_of_a_recipe_apply_to_an_initial_model(tiny_recipe: dict[str, Any], corpus: Path) -> None:
    recipe = loaded(tiny_recipe, corpus)
    tokenizer = prepare_tokenizer(recipe)
    first = prepare_model(recipe, tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        first.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        livelier = {**tiny_recipe["model"], "dropout": 0.4}
        second = prepare_model(loaded(tiny_recipe, corpus, init_from=folder, model=livelier), tokenizer)
        assert second.config.dropout == 0.4
        assert_same(dict(first.state_dict()), dict(second.state_dict()))
        wider = {**tiny_recipe["model"], "feedforward": 48}
        with pytest.raises(RecipeError, match="shape"):
            prepare_model(loaded(tiny_recipe, corpus, init_from=folder, model=wider), tokenizer)


@pytest.mark.slow
def test_a_finished_run_without_checkpoints_is_not_started_again(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path
) -> None:
    recipe = loaded(tiny_recipe, corpus, schedule={"max_steps": 2, "warmup_steps": 0})
    train(recipe, tmp_path)
    for folder in list_checkpoints(tmp_path):
        shutil.rmtree(folder)
    kept = weights(tmp_path / "best")
    with pytest.raises(RecipeError, match="cannot be resumed"):
        train(recipe, tmp_path, resume=True)
    assert_same(kept, weights(tmp_path / "best"))


@pytest.mark.slow
def test_validation_texts_that_are_too_long_are_not_translated_either(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path
) -> None:
    lines = (corpus / "val.en").read_text().splitlines(), (corpus / "val.de").read_text().splitlines()
    for side, first in zip(("en", "de"), lines, strict=True):
        (corpus / f"long.{side}").write_text("\n".join(["one " * 100, *first]) + "\n")
    data = {**tiny_recipe["data"], "validation": {"x": "long.en", "y": "long.de"}, "on_bad": "skip"}
    recipe = loaded(tiny_recipe, corpus, data=data, schedule={"max_steps": 6, "warmup_steps": 0})
    assert train(recipe, tmp_path).steps == 6


def test_every_validation_text_is_evaluated_once(tiny_recipe: dict[str, Any], corpus: Path) -> None:
    data = {**tiny_recipe["data"], "validation": {"x": "val.en", "y": "val.de", "weight": 2.0}}
    with pytest.raises(RecipeError, match=r"validation\.weight"):
        loaded(tiny_recipe, corpus, data=data)


def test_positions_before_the_first_do_not_count_as_room_for_text(tiny_recipe: dict[str, Any]) -> None:
    shape = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = RobertaForMaskedLM(RobertaConfig(**shape, intermediate_size=8, max_position_embeddings=64, pad_token_id=1))
    for most, fits in ((62, True), (63, False)):
        recipe: Any = SimpleNamespace(data=SimpleNamespace(max_tokens=most))
        with nullcontext() if fits else pytest.raises(RecipeError, match="more than the model's 62 positions"):
            PRETRAINING.describe(model, recipe)
