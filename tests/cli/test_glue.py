"""GLUE on the command line: finetune, evaluate, submit."""

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from glue_files import save_trunk, write_glue
from safetensors.torch import load_file

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


@pytest.mark.slow
def test_a_checkpoint_is_finetuned_scored_and_submitted(
    run: Callable[..., Answer], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, runs = ("--data", folder / "glue"), folder / "runs"
    asked = ("finetune", "glue", "--model", folder / "trunk", *data, "--output", runs)
    which = ("--task", "cola", "--seeds", "0,1", "--subsample", "40", "--max-length", "40")
    quick = ("--learning-rate", "5e-3", "--epochs", "8", "--batch-size", "8")
    code, out, err = run(*asked, *which, *quick, "--json")
    assert code == 0, err
    summary = json.loads(out)
    [task] = summary["tasks"]
    assert task["task"] == "CoLA"
    assert task["seeds"] == [0, 1]
    assert task["setting"]["learning_rate"] == 5e-3
    assert task["train_examples"] == 40
    assert task["score"]["mean"] == summary["average"] > 40
    assert summary == json.loads((runs / "summary.json").read_text(encoding="utf-8"))
    assert "CoLA seed 1: matthews" in caplog.text

    caplog.clear()
    code, out, err = run(*asked, *which, *quick)
    assert code == 0
    assert "CoLA seed" not in caplog.text  # everything is done
    assert "average" in out

    kept = runs / "CoLA" / "seed-0"
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
    assert "for SST-2, MRPC, STS-B, QQP, MNLI-m, MNLI-mm, QNLI, RTE, WNLI, AX" in err
    assert len(zipfile.ZipFile(archive).namelist()) == 11


ONE_STEP = ("--task", "CoLA", "--epochs", "1", "--batch-size", "64", "--max-length", "40")


@pytest.mark.slow
def test_options_decide_what_is_kept_and_earlier_results_are_reported(
    run: Callable[..., Answer], folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = ("--data", folder / "glue")
    asked = ("finetune", "glue", "--model", folder / "trunk", *data, *ONE_STEP, "--json")
    for way in ((), ("--scores-only",)):
        assert run(*asked, *way, "--output", tmp_path / f"run{len(way)}")[0] == 0
    kept, scored = (tmp_path / name / "CoLA" / "seed-0" for name in ("run0", "run1"))
    assert any(name.startswith("head.") for name in load_file(kept / "model.safetensors")), "the insertion head stays"
    assert [path.name for path in scored.iterdir()] == ["result.json"]
    assert "finetuned without saving" not in caplog.text
    assert run(*asked, "--output", tmp_path / "run1")[0] == 0
    assert "was finetuned without saving its model" in caplog.text

    score = ("evaluate", "glue", "--model", kept, "--task", "CoLA", *data)
    lengths = [run(*score, *length)[1].partition("length:")[2][:2] for length in ((), ("--max-length", "12"))]
    assert lengths == ["40", "12"]

    archive = tmp_path / "new" / "glue.zip"
    answer = run("submit", "glue", "--runs", tmp_path / "run0", *data, "--output", archive, "--json")
    submitted = json.loads(answer[1])
    assert submitted["path"] == str(archive)
    assert [file["name"] for file in submitted["files"] if file["model"]] == ["CoLA"]


@pytest.mark.slow
def test_a_wrong_output_is_an_error_before_any_work(run: Callable[..., Answer], folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    asked = ("finetune", "glue", "--model", folder / "trunk", "--data", folder / "glue", "--output", tmp_path / "file")
    assert run(*asked)[::2] == (2, f"error: --output {tmp_path / 'file'} is a file; give a folder\n")
    answer = run("submit", "glue", "--runs", tmp_path, "--output", tmp_path)
    assert answer[::2] == (2, f"error: --output {tmp_path} is a folder; give a file\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("finetune", "glue", "--task", "COAL"), "did you mean 'CoLA'?"),
        (("finetune", "glue", "--task", "CoLA", "--seeds", "one"), "--seeds one: write whole numbers"),
        (("finetune", "glue", "--task", "CoLA", "--learning-rate", "x"), "--learning-rate"),
        (("finetune", "glue", "--task", "CoLA", "--epochs", "0"), "--epochs"),
        (("finetune", "glue", "--task", "CoLA", "--seeds=-1"), "--seeds -1: write whole numbers"),
        (("finetune", "glue", "--task", "AX"), "finetune MNLI"),
        (("evaluate", "glue", "--task", "MNLI"), "MNLI needs entailment, neutral, contradiction"),
    ],
)
def test_user_errors_are_reported_and_exit_with_2(
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
