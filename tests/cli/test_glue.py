"""GLUE on the command line: finetune, evaluate, submit."""

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from glue_files import save_trunk, write_glue

from kermit import cli

Answer = tuple[int, str, str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Run a command in this process: its exit code, stdout and stderr."""

    def run(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["kermit", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        return (code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("glue-cli")
    write_glue(folder / "glue")
    save_trunk("kermit", folder / "trunk")
    return folder


def test_from_a_checkpoint_to_scores_and_the_servers_zip(
    run: Callable[..., Answer], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, runs = ("--data", folder / "glue"), folder / "runs"
    asked = ("finetune", "glue", "--model", folder / "trunk", *data, "--output", runs)
    which = ("--task", "cola", "--seeds", "0,1", "--subsample", "40", "--max-length", "40")
    quick = ("--learning-rate", "5e-3,1e-7", "--epochs", "8", "--batch-size", "8")
    code, out, err = run(*asked, *which, *quick, "--json")
    assert code == 0, err
    summary = json.loads(out)
    [task] = summary["tasks"]
    assert task["task"] == "CoLA"
    assert task["seeds"] == [0, 1]
    assert task["settings_tried"] == 2
    assert task["setting"]["learning_rate"] == 5e-3
    assert task["train_examples"] == 40
    assert task["score"]["mean"] == summary["average"] > 40
    assert summary == json.loads((runs / "summary.json").read_text(encoding="utf-8"))
    assert "CoLA seed 1 lr1e-07-epochs8-batch8-length40-subsample40: matthews" in caplog.text

    caplog.clear()
    code, out, err = run(*asked, *which, *quick)
    assert code == 0
    assert "CoLA seed" not in caplog.text  # all is done
    assert "best of 2 on dev" in " ".join(out.replace("│", " ").split())

    kept = runs / "CoLA" / "seed-0" / "lr0.005-epochs8-batch8-length40-subsample40"
    score = ("evaluate", "glue", "--model", kept, "--task", "CoLA", *data)
    code, out, _ = run(*score, "--json")
    found = json.loads(out)
    assert code == 0
    assert set(found) == {"task", "split", "metrics", "score", "examples", "signature"}
    assert found["score"] == json.loads((kept / "result.json").read_text(encoding="utf-8"))["score"]
    code, out, _ = run(*score, "--split", "train")
    assert code == 0
    assert out.startswith("CoLA train: matthews ")

    archive = folder / "glue.zip"
    code, out, err = run("submit", "glue", "--runs", runs, *data, "--output", archive)
    assert code == 0
    assert out == f"{archive}: 1 files answered, 10 placeholders\n"
    assert "WARNING: SST-2, MRPC, STS-B, QQP, MNLI-m, MNLI-mm, QNLI, RTE, WNLI, AX" in err
    assert len(zipfile.ZipFile(archive).namelist()) == 11


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("finetune", "glue", "--task", "COAL"), "did you mean CoLA"),
        (("finetune", "glue", "--task", "CoLA", "--seeds", "one"), "--seeds one: write numbers with commas between"),
        (("finetune", "glue", "--task", "CoLA", "--learning-rate", "x"), "--learning-rate x: write numbers"),
        (("finetune", "glue", "--task", "CoLA", "--epochs", "0"), "epochs 0 is too small"),
        (("finetune", "glue", "--task", "CoLA", "--seeds", "-1"), "a seed of -1 cannot be"),
        (("finetune", "glue", "--task", "AX"), "finetune MNLI"),
        (("evaluate", "glue", "--task", "MNLI"), "MNLI asks for entailment, neutral, contradiction"),
    ],
)
def test_what_a_user_can_mend_is_told_and_exits_with_2(
    arguments: tuple[str, ...], message: str, run: Callable[..., Answer], folder: Path, tmp_path: Path
) -> None:
    output = ("--output", tmp_path) if arguments[0] == "finetune" else ()
    code, _, err = run(*arguments, "--model", folder / "trunk", "--data", folder / "glue", *output)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_a_folder_without_models_cannot_be_submitted(run: Callable[..., Answer], folder: Path, tmp_path: Path) -> None:
    code, _, err = run("submit", "glue", "--runs", tmp_path, "--data", folder / "glue")
    assert code == 2
    assert "holds no finetuned model" in err
