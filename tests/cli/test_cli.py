"""The commands as a user runs them; what they print, and how they fail."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kermit import cli


def kermit(*arguments: object, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command in this process; return its exit code."""
    monkeypatch.setattr(sys, "argv", ["kermit", *map(str, arguments)])
    try:
        cli.main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.fixture
def recipe_file(tiny_recipe: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny_recipe), encoding="utf-8")
    return path


def test_help_answers_without_importing_torch_or_transformers() -> None:
    script = (
        "import sys, kermit.cli\n"
        "sys.argv = ['kermit', '--help']\n"
        "try:\n    kermit.cli.main()\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'torch', 'transformers', 'datasets', 'numpy', 'sacrebleu'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for verb in ("train", "translate", "distill", "evaluate"):
        assert verb in done.stdout


def test_from_recipe_to_translation_and_score(
    recipe_file: Path,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, data = tmp_path / "model", ("--data", corpus)
    code = kermit(
        "train", recipe_file, *data, "--output", model, "--set", "schedule.max_steps=6", monkeypatch=monkeypatch
    )
    assert code == 0
    assert f"{model}: 6 steps, best validation BLEU" in capsys.readouterr().out

    beams = ("--set", "beams=2", "--set", "max_tokens=8")
    say = ("translate", "--model", model, "--to", "de", *beams)
    assert kermit(*say, "one two.", "three", "--json", monkeypatch=monkeypatch) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["source"] for record in records] == ["one two.", "three"]
    assert set(records[0]) == {"source", "text", "rounds", "tokens", "log_prob", "finish"}

    target = tmp_path / "test.out"
    assert kermit(*say, "--input", corpus / "test.en", "--output", target, monkeypatch=monkeypatch) == 0
    assert len(target.read_text(encoding="utf-8").splitlines()) == 12

    score = ("evaluate", "translation", "--model", model, *data, "--split", "test", *beams)
    capsys.readouterr()
    plot = tmp_path / "rounds.png"
    assert kermit(*score, "--directions", "en-de", "--json", "--plot", plot, monkeypatch=monkeypatch) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["direction"] == "en-de"
    assert "family:transformer" in result["signature"]
    assert plot.is_file()
    assert kermit(*score, monkeypatch=monkeypatch) == 0
    assert "BLEU" in capsys.readouterr().out

    distill = ("distill", "--teacher", model, "--to", "de", "--input", corpus / "test.en", *beams)
    assert kermit(*distill, "--output", tmp_path / "distilled", monkeypatch=monkeypatch) == 0
    assert "pairs" in capsys.readouterr().out
    assert (tmp_path / "distilled" / "test.de").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "nowhere.yaml"), "nowhere.yaml: there is no such recipe"),
        (("train", "{recipe}", "--set", "optimizer.learnig_rate=1"), "did you mean 'learning_rate'?"),
        (("train", "{recipe}", "--data", "/nowhere"), "train.en: there is no such file"),
        (("translate", "--to", "de"), "give the texts to translate, or --input FILE"),
        (("translate", "--to", "de", "--model", "/nowhere", "text"), "/nowhere holds no model"),
    ],
)
def test_what_a_user_can_mend_is_told_without_a_traceback_and_exits_with_2(
    arguments: tuple[str, ...],
    message: str,
    recipe_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    filled = [argument.format(recipe=recipe_file) for argument in arguments]
    assert kermit(*filled, monkeypatch=monkeypatch) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("place", [0, 1, 2, 4])
def test_debug_shows_the_traceback_wherever_it_stands(
    place: int, recipe_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments: list[object] = ["train", recipe_file, "--set", "nothing=1"]
    arguments.insert(place, "--debug")
    assert kermit(*arguments, monkeypatch=monkeypatch) == 2
    assert "Traceback" in capsys.readouterr().err
