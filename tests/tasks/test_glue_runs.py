"""Finetuning learns, is stored, and is not repeated; and the zip file for GLUE's server."""

import csv
import io
import json
import zipfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from glue_files import SIZES, save_trunk, write_glue
from transformers import AutoModelForSequenceClassification

from kermit import Kermit
from kermit.errors import DataError, ModelError
from kermit.tasks.glue import runs as runs_module
from kermit.tasks.glue.classifier import Classifier
from kermit.tasks.glue.data import Example, GlueData
from kermit.tasks.glue.finetuning import Setting, subsample
from kermit.tasks.glue.runs import (
    Result,
    Run,
    Spread,
    choose_tasks,
    evaluate_finetuned,
    find_runs,
    finetune_all,
    summarise,
)
from kermit.tasks.glue.submission import submit, written
from kermit.tasks.glue.table import TASKS, Split, task_named

QUICK = Setting(learning_rate=5e-3, epochs=8, batch_size=8, max_length=40)
ONE_STEP = Setting(learning_rate=1e-4, epochs=1, batch_size=64, max_length=40)


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> GlueData:
    return GlueData(write_glue(tmp_path_factory.mktemp("glue")))


@pytest.fixture(scope="module")
def trunk(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_trunk("kermit", tmp_path_factory.mktemp("trunk")))


@pytest.fixture(scope="module")
def learned(glue: GlueData, trunk: str, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """CoLA and STS-B, finetuned until they are learned."""
    output = tmp_path_factory.mktemp("learned")
    return finetune_all([task_named("CoLA"), task_named("STS-B")], trunk, glue, output, setting=QUICK)


def result(task: str = "CoLA", seed: int = 0, score: float = 50.0) -> Result:
    metrics = {"matthews": score}
    return Result(task, seed, ONE_STEP, metrics, score, 48, 16, 1, 0.1, "trunk", "weights", "text", "kermit|")


@pytest.mark.slow
def test_labels_and_numbers_that_depend_on_one_word_are_learned(learned: list[Run]) -> None:
    cola, stsb = (run.result for run in learned)
    assert cola.metrics["matthews"] > 75
    assert stsb.metrics["pearson"] > 75
    assert cola.steps == 8 * SIZES["train"] / 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["masked", "encoder", "causal", "causal-encoder"])
def test_other_trunks_learn_with_the_same_call(kind: str, glue: GlueData, tmp_path: Path) -> None:
    trunk = save_trunk(kind, tmp_path / "trunk")
    [run] = finetune_all([task_named("CoLA")], str(trunk), glue, tmp_path / "runs", setting=QUICK)
    assert run.result.score > 75
    again = evaluate_finetuned(str(run.folder), task_named("CoLA"), glue)
    assert again.score == run.result.score

    task, [dev] = task_named("CoLA"), glue.read(task_named("CoLA"), Split.DEV)
    ours = Classifier.load(str(run.folder), task, max_length=40)
    theirs = AutoModelForSequenceClassification.from_pretrained(run.folder).eval()
    assert theirs.config.id2label == {0: "0", 1: "1"}
    for example, expected in zip(dev.examples, ours.logits(dev.examples), strict=True):
        [row] = ours.encode([example])
        row.pop("label")
        found = theirs(**{name: torch.tensor([values]) for name, values in row.items()}).logits
        np.testing.assert_allclose(found[0].detach().numpy(), expected, atol=1e-4)


def test_a_pretrained_model_is_not_mistaken_for_a_finetuned_one(glue: GlueData, tmp_path: Path) -> None:
    for kind in ("masked", "causal-encoder"):
        folder = save_trunk(kind, tmp_path / kind)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        labels = {"id2label": {"0": "0", "1": "1"}, "label2id": {"0": 0, "1": 1}}
        (folder / "config.json").write_text(json.dumps(config | labels), encoding="utf-8")
        with pytest.raises(ModelError, match="lacks weights of its classifier"):
            evaluate_finetuned(str(folder), task_named("CoLA"), glue)


@pytest.mark.slow
def test_a_finetuned_kermit_model_still_generates(learned: list[Run]) -> None:
    model = Kermit.from_pretrained(learned[0].folder)
    [generation] = model.infill(["the ____ runs"])
    assert generation.x.startswith("the")
    assert generation.x.endswith("runs")


@pytest.mark.slow
def test_a_result_records_its_origin_and_equals_evaluation(learned: list[Run], glue: GlueData) -> None:
    run = learned[0]
    record = json.loads((run.folder / "result.json").read_text(encoding="utf-8"))
    assert record["setting"] == {
        "learning_rate": 0.005,
        "epochs": 8,
        "batch_size": 8,
        "max_length": 40,
        "subsample": None,
        "precision": "float32",
    }
    assert record["seed"] == 0
    for value in (record["data_checksum"], record["model_checksum"], "seed:0", "learning_rate=0.005,epochs=8,"):
        assert value in record["signature"]
    assert Result.read(run.folder / "result.json") == run.result

    found = evaluate_finetuned(str(run.folder), task_named("CoLA"), glue)
    assert found.metrics == run.result.metrics
    assert found.examples == SIZES["dev"]
    assert "length:40" in found.signature
    assert evaluate_finetuned(str(run.folder), task_named("CoLA"), glue, Split.TRAIN).examples == SIZES["train"]


@pytest.mark.slow
def test_a_finetuned_model_starts_another_task_with_new_layers(learned: list[Run]) -> None:
    def layers(place: str, seed: int) -> dict[str, torch.Tensor]:
        model = Classifier.start(place, task_named("SST-2"), max_length=40, seed=seed).model
        return {name: weight for name, weight in model.state_dict().items() if name.startswith("classifier.")}

    folder = str(learned[0].folder)
    one, again, two = layers(folder, 0), layers(folder, 0), layers(folder, 1)
    before = AutoModelForSequenceClassification.from_pretrained(folder).state_dict()
    assert torch.equal(one["classifier.weight"], again["classifier.weight"])
    assert not torch.equal(one["classifier.weight"], two["classifier.weight"])
    assert not torch.equal(one["classifier.weight"], before["classifier.weight"])


@pytest.mark.parametrize("kind", ["kermit", "masked", "encoder", "causal-encoder"])
def test_a_trunk_whose_weights_have_another_shape_is_rejected(kind: str, tmp_path: Path) -> None:
    folder = save_trunk(kind, tmp_path)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    shape = config["trunk_config"] if kind == "kermit" else config
    shape["intermediate_size"] += 8
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelError, match="lacks weights of its trunk"):
        Classifier.start(str(folder), task_named("CoLA"), max_length=40, seed=0)


@pytest.mark.slow
def test_a_run_that_diverged_has_no_score(glue: GlueData, trunk: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="finetune with a lower learning rate"):
        finetune_all([task_named("STS-B")], trunk, glue, tmp_path, setting=replace(QUICK, learning_rate=1e30))
    assert find_runs(tmp_path) == []


@pytest.mark.slow
def test_a_model_is_scored_on_the_task_that_it_was_finetuned_on(learned: list[Run], glue: GlueData) -> None:
    with pytest.raises(ModelError, match=r"was finetuned on CoLA; .* SST-2"):
        evaluate_finetuned(str(learned[0].folder), task_named("SST-2"), glue)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model_and_another_seed_another(
    glue: GlueData, trunk: str, tmp_path: Path
) -> None:
    setting = replace(ONE_STEP, batch_size=16)
    for output in ("one", "two"):
        finetune_all([task_named("CoLA")], trunk, glue, tmp_path / output, seeds=[0, 1], setting=setting)
    weights = {
        (output, seed): (tmp_path / output / "CoLA" / f"seed-{seed}" / "model.safetensors").read_bytes()
        for output in ("one", "two")
        for seed in (0, 1)
    }
    assert weights["one", 0] == weights["two", 0]
    assert weights["one", 0] != weights["one", 1]


@pytest.mark.slow
def test_finished_runs_are_not_repeated_and_interrupted_ones_are(
    glue: GlueData, trunk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, titles = runs_module.finetune, []

    def counted(*arguments: object, **settings: object) -> int:
        titles.append(settings["seed"])
        if len(titles) == 2:
            raise KeyboardInterrupt
        return original(*arguments, **settings)

    monkeypatch.setattr(runs_module, "finetune", counted)
    work = {"setting": ONE_STEP, "seeds": [0, 1]}
    with pytest.raises(KeyboardInterrupt):
        finetune_all([task_named("CoLA")], trunk, glue, tmp_path, **work)
    assert len(find_runs(tmp_path)) == 1
    first = finetune_all([task_named("CoLA")], trunk, glue, tmp_path, **work)
    assert titles == [0, 1, 1]
    assert finetune_all([task_named("CoLA")], trunk, glue, tmp_path, **work) == first
    assert len(titles) == 3


@pytest.mark.slow
def test_only_the_scores_can_be_kept(glue: GlueData, trunk: str, tmp_path: Path) -> None:
    [run] = finetune_all([task_named("CoLA")], trunk, glue, tmp_path, setting=ONE_STEP, keep_models=False)
    assert [path.name for path in run.folder.iterdir()] == ["result.json"]
    assert finetune_all([task_named("CoLA")], trunk, glue, tmp_path, setting=ONE_STEP) == [run]


@pytest.mark.slow
def test_results_of_another_model_or_other_data_are_rejected(glue: GlueData, trunk: str, tmp_path: Path) -> None:
    finetune_all([task_named("CoLA")], trunk, glue, tmp_path / "runs", setting=ONE_STEP)
    changed = save_trunk("kermit", tmp_path / "changed")
    config = json.loads((changed / "config.json").read_text(encoding="utf-8"))
    (changed / "config.json").write_text(json.dumps(config | {"termination_penalty": 1.0}), encoding="utf-8")
    with pytest.raises(DataError, match="whose model differs"):
        finetune_all([task_named("CoLA")], str(changed), glue, tmp_path / "runs", setting=ONE_STEP)
    other = str(save_trunk("encoder", tmp_path / "other"))
    with pytest.raises(DataError, match=r"CoLA/seed-0 .* model differs .*another --output"):
        finetune_all([task_named("RTE")], other, glue, tmp_path / "runs", setting=ONE_STEP)
    with pytest.raises(DataError, match="whose setting differs"):
        finetune_all([task_named("CoLA")], trunk, glue, tmp_path / "runs", setting=QUICK)
    data = GlueData(write_glue(tmp_path / "glue"))
    train = tmp_path / "glue" / "CoLA" / "train.tsv"
    train.write_text(train.read_text(encoding="utf-8") + "gj04\t1\t\tOne more.\n", encoding="utf-8")
    with pytest.raises(DataError, match="whose data differs"):
        finetune_all([task_named("CoLA")], trunk, data, tmp_path / "runs", setting=ONE_STEP)


def test_an_invalid_result_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "CoLA" / "seed-0" / "result.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match=r"result.json: not the result"):
        find_runs(tmp_path)


def test_all_selects_the_tasks_with_data_and_reports_the_others(
    glue: GlueData, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert [task.name for task in choose_tasks("all", glue)] == [task.name for task in TASKS if task.name != "AX"]
    assert [task.name for task in choose_tasks("rte,cola", glue)] == ["RTE", "CoLA"]
    with pytest.raises(DataError, match="AX has no training split; finetune MNLI"):
        choose_tasks("AX", glue)
    with pytest.raises(DataError, match="no task with train and dev"):
        choose_tasks("all", GlueData(tmp_path))
    write_glue(tmp_path)
    (tmp_path / "QNLI" / "train.tsv").unlink()
    assert "QNLI" not in [task.name for task in choose_tasks("all", GlueData(tmp_path))]
    assert "QNLI skipped" in caplog.text


def test_a_subsample_is_drawn_once_for_all_seeds_and_keeps_the_order() -> None:
    examples = [Example(str(number), None, 0, "") for number in range(100)]
    drawn = subsample(examples, 10)
    assert drawn == subsample(examples, 10)
    numbers = [int(example.x) for example in drawn]
    assert len(set(numbers)) == 10
    assert numbers == sorted(numbers) != list(range(10))
    assert subsample(examples, None) == subsample(examples, 100) == subsample(examples, 1000) == examples


def test_the_spread_is_the_sample_standard_deviation() -> None:
    assert Spread.of([1.0, 2.0, 6.0]) == Spread(3.0, 2.65)  # sqrt((4 + 1 + 9) / 2)
    assert Spread.of([1.0]) == Spread(1.0, None)


def test_the_summary_has_the_mean_and_deviation_over_seeds() -> None:
    results = [result("CoLA", seed, score) for seed, score in enumerate([60.0, 62.0, 64.0])]
    summary = summarise([result("RTE", 0, 80.0), *results])
    cola, rte = summary.tasks
    assert (cola.task, cola.setting, cola.seeds) == ("CoLA", ONE_STEP, [0, 1, 2])
    assert cola.score == Spread(62.0, 2.0)
    assert cola.metrics == {"matthews": Spread(62.0, 2.0)}
    assert rte.score == Spread(80.0, None)
    assert summary.average == 71.0
    assert json.loads(json.dumps(asdict(summary)))["tasks"][0]["score"] == {"mean": 62.0, "deviation": 2.0}


def tsv(archive: zipfile.ZipFile, name: str) -> list[list[str]]:
    text = archive.read(name).decode()
    return list(csv.reader(io.StringIO(text), delimiter="\t"))


@pytest.mark.slow
def test_every_task_is_read_finetuned_and_submitted(glue: GlueData, trunk: str, tmp_path: Path) -> None:
    runs = finetune_all(choose_tasks("all", glue), trunk, glue, tmp_path / "runs", setting=QUICK)
    assert {run.result.task for run in runs if run.result.score < 60} <= {"MRPC"}, "a word gives all labels away"
    [mnli] = [run for run in find_runs(tmp_path / "runs") if run.result.task == "MNLI"]
    assert set(mnli.result.metrics) == {"accuracy_matched", "accuracy_mismatched"}
    assert mnli.result.dev_examples == 2 * SIZES["dev"]
    diagnostic = evaluate_finetuned(str(mnli.folder), task_named("AX"), glue)
    assert set(diagnostic.metrics) == {"matthews"}

    archive_path = tmp_path / "out" / "glue.zip"
    files = submit(tmp_path / "runs", glue, archive_path)
    assert all(file.model for file in files)
    names = ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX"]
    inference = {"entailment", "neutral", "contradiction"}
    entailment = {"entailment", "not_entailment"}
    words = {"MNLI-m": inference, "MNLI-mm": inference, "AX": inference, "QNLI": entailment, "RTE": entailment}
    with zipfile.ZipFile(archive_path) as archive:
        assert archive.namelist() == [f"{name}.tsv" for name in names]
        for name in names:
            header, *rows = tsv(archive, f"{name}.tsv")
            assert header == ["index", "prediction"]
            assert [index for index, _ in rows] == list("01234")
            if name == "STS-B":
                assert all(0 <= float(answer) <= 5 for _, answer in rows)
            else:
                assert {answer for _, answer in rows} <= words.get(name, {"0", "1"})
    assert [file.model for file in files if file.name == "AX"] == [str(mnli.folder)]


@pytest.mark.slow
def test_tasks_without_a_model_get_placeholders_of_the_servers_size(
    learned: list[Run], glue: GlueData, tmp_path: Path
) -> None:
    files = submit(learned[0].folder.parents[1], glue, tmp_path / "glue.zip")
    placeholders = [file.name for file in files if file.model is None]
    assert placeholders == ["SST-2", "MRPC", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX"]
    with zipfile.ZipFile(tmp_path / "glue.zip") as archive:
        assert len(tsv(archive, "MNLI-mm.tsv")) == 9847 + 1
        assert tsv(archive, "RTE.tsv")[-1] == ["2999", "entailment"]
        cola = tsv(archive, "CoLA.tsv")
    sentences = [example.x for example in glue.read(task_named("CoLA"), Split.TEST)[0].examples]
    right = [answer == str(int("always" in text)) for (_, answer), text in zip(cola[1:], sentences, strict=True)]
    assert sum(right) >= 4
    submit(learned[0].folder.parents[1], glue, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == (tmp_path / "glue.zip").read_bytes()


def test_numbers_have_three_decimals_and_labels_are_words() -> None:
    assert written(task_named("STS-B"), np.array([0.0, 4.99951])) == ["0.000", "5.000"]
    assert written(task_named("QNLI"), np.array([1.0, 0.0])) == ["not_entailment", "entailment"]


@pytest.mark.slow
def test_no_models_to_submit_and_a_missing_test_file_are_errors(
    learned: list[Run], glue: GlueData, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="holds no finetuned model"):
        submit(tmp_path, glue, tmp_path / "glue.zip")
    with pytest.raises(DataError, match=r"CoLA/test.tsv: the file does not exist"):
        submit(learned[0].folder.parents[1], GlueData(tmp_path), tmp_path / "glue.zip")
    assert list(tmp_path.iterdir()) == []
