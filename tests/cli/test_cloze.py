"""`kermit evaluate cloze` through the entry point, for all three systems, with tiny models in folders."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from cloze_models import gpt2, kermit, masked_lm, tokenizer, write_data
from insertion_models import cached_model_of
from typer.testing import CliRunner

from kermit.cli import app
from kermit.errors import KermitError
from kermit.tasks.cloze.evaluation import ClozeScores, Prediction

PAGE = Path(__file__).parents[2] / "docs" / "cloze.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cloze")
    words = tokenizer()
    for name, make in {"kermit": kermit, "masked-lm": masked_lm, "causal-lm": gpt2}.items():
        make(words).save_pretrained(path / name)
        words.save_pretrained(path / name)
    write_data(path)
    return path


@pytest.fixture
def run(folder):
    def call(system, *arguments, model=None):
        data = ["--qa2d", folder / "dev.tsv.gz", "--squad", folder / "squad.json", "--model", model or folder / system]
        result = CliRunner().invoke(app, ["evaluate", "cloze", "--system", system, *map(str, [*data, *arguments])])
        if isinstance(result.exception, KermitError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout

    return call


SMALL = {
    "kermit": ["--set", "max_tokens=6"],
    "masked-lm": ["--beams", "2"],
    "causal-lm": ["--samples", "3", "--continuation-tokens", "4", "--seed", "1"],
}


@pytest.mark.parametrize("system", list(SMALL))
def test_json_output_has_the_scores_and_their_signature(run, system):
    scores = json.loads(run(system, *SMALL[system], "--json"))
    assert scores["system"] == system
    assert scores["instances"] == 3
    assert scores["skipped"] == {"other_dataset": 1, "unknown_id": 1, "answer_absent_from_sentence": 1}
    assert 0 <= scores["exact_match"] <= scores["f1"] <= 100
    assert scores["mean_forward_passes"] >= 1
    assert scores["answers_per_second"] > 0
    for part in ("task:cloze", f"system:{system}", "qa2d:", "squad:", "version:"):
        assert part in scores["signature"]


def test_the_keys_on_the_page_are_those_that_are_printed_and_written(run, tmp_path):
    _, section = PAGE.read_text(encoding="utf-8").split("\n## JSON\n")
    printed, written = section.split("\n## ")[0].split("A line of `--output`")
    scores = json.loads(run("masked-lm", "--beams", "2", "--limit", "1", "--output", tmp_path / "p.jsonl", "--json"))
    [line] = (tmp_path / "p.jsonl").read_text(encoding="utf-8").splitlines()
    for table, kind, record in ((printed, ClozeScores, scores), (written, Prediction, json.loads(line))):
        cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        keys = [key for cell in cells for key in re.findall(r"`(\w+)`", cell)]
        assert sorted(keys) == sorted(field.name for field in fields(kind)) == sorted(record)


@pytest.mark.parametrize("system", list(SMALL))
def test_with_the_oracle_length_answers_are_as_long_as_the_gaps(run, system):
    small = [word for word in SMALL[system] if word not in ("--continuation-tokens", "4", "--set", "max_tokens=6")]
    scores = json.loads(run(system, *small, "--oracle-length", "--json"))
    assert scores["mean_tokens"] == scores["mean_gap_tokens"]


def test_without_json_the_scores_are_a_table(run):
    shown = run("kermit", *SMALL["kermit"], "--limit", "2", "--decoding", "serial")
    assert re.search(r"^instances +2 ", shown, re.MULTILINE)
    assert "1 other dataset" in shown
    assert "strategy=serial" in shown


def test_a_model_trained_left_to_right_fills_gaps_left_to_right(run, tmp_path):
    words = tokenizer()
    for part in (cached_model_of(words), words):
        part.save_pretrained(tmp_path)
    asked = (*SMALL["kermit"], "--decoding", "left_to_right", "--json")
    scores = json.loads(run("kermit", *asked, model=tmp_path))
    assert "strategy=left_to_right" in scores["signature"]
    assert scores["mean_forward_passes"] == scores["mean_tokens"] + 1
    with pytest.raises(KermitError, match="left_to_right decoding needs a model trained with left_to_right"):
        run("kermit", *asked)


def test_a_second_run_continues_and_one_with_other_settings_is_rejected(run, tmp_path):
    output = tmp_path / "predictions.jsonl"
    run("masked-lm", "--beams", "2", "--limit", "1", "--output", output)
    [first] = output.read_text().splitlines()
    scores = json.loads(run("masked-lm", "--beams", "2", "--output", output, "--json"))
    lines = output.read_text().splitlines()
    assert lines[0] == first
    assert (len(lines), scores["instances"]) == (3, 3)
    with pytest.raises(KermitError, match="made with different settings"):
        run("masked-lm", "--beams", "3", "--output", output)


@pytest.mark.parametrize(
    ("system", "arguments", "part"),
    [
        ("kermit", ["--min-tokens", "2"], "min_tokens=2"),
        ("kermit", ["--set", "temperature=0.5", "--seed", "7"], "seed=7"),
        ("kermit", ["--oracle-length"], "oracle_length=True"),
        ("masked-lm", ["--beams", "3"], "beams=3"),
        ("causal-lm", ["--samples", "3"], "samples=3"),
        ("causal-lm", ["--continuation-tokens", "5"], "continuation_tokens=5"),
        ("kermit", ["--set", "candidates=3"], "candidates=3"),
        ("kermit", ["--set", "candidates=3", "--seed", "7"], "seed=7"),
        ("causal-lm", ["--seed", "7"], "seed=7"),
        *((system, ["--precision", "bfloat16"], "precision:bfloat16") for system in SMALL),
        ("kermit", [], "precision:float32"),
    ],
)
def test_the_signature_holds_everything_that_determines_the_answers(run, system, arguments, part):
    small = [] if "--oracle-length" in arguments else SMALL[system]
    scores = json.loads(run(system, *small, *arguments, "--limit", "1", "--json"))
    assert part in scores["signature"].replace("=true", "=True")


def test_an_answer_has_at_least_the_requested_tokens(run):
    short = ["--set", "max_tokens=6", "--set", "termination_penalty=-50", "--json"]
    assert json.loads(run("kermit", *short))["mean_tokens"] == 0
    assert json.loads(run("kermit", *short, "--min-tokens", "2"))["mean_tokens"] == 2


def test_the_batch_size_is_the_number_of_questions_answered_together(run, monkeypatch):
    from kermit.tasks.cloze.insertion_system import InsertionSystem

    whole, sizes = InsertionSystem.answer, []

    def counted(self, layouts):
        sizes.append(len(layouts))
        return whole(self, layouts)

    monkeypatch.setattr(InsertionSystem, "answer", counted)
    run("kermit", *SMALL["kermit"], "--batch-size", "2")
    assert sizes == [2, 1]


@pytest.mark.parametrize("option", ["--qa2d", "--squad"])
def test_a_missing_file_is_an_error_that_names_its_option(run, tmp_path, option):
    for place, message in ((tmp_path, " is a folder"), (tmp_path / "nowhere", " does not exist")):
        with pytest.raises(KermitError, match=f"{option} {place}{message}"):
            run("kermit", option, place)


@pytest.mark.parametrize(
    ("system", "arguments", "message"),
    [
        ("kermit", ["--beams", "2"], "--beams applies only to --system masked-lm, not to kermit"),
        ("masked-lm", ["--seed", "2"], "--seed applies only to --system kermit and causal-lm, not to masked-lm"),
        ("causal-lm", ["--decoding", "serial"], "--decoding applies only to --system kermit"),
        ("kermit", ["--seed", "2"], "--seed"),
        ("kermit", ["--oracle-length", "--min-tokens", "1"], "--min-tokens and --oracle-length"),
        ("causal-lm", ["--oracle-length", "--continuation-tokens", "9"], "--continuation-tokens and --oracle-length"),
        ("kermit", ["--oracle-length", "--set", "max_rounds=1"], "--set max_rounds and --oracle-length"),
        ("kermit", ["--min-tokens", "7", "--set", "max_tokens=6"], "--min-tokens 7 exceeds"),
        ("kermit", ["--set", "max_tokens=5000"], "no instance fits the model"),
        ("kermit", ["--set", "nothing=2"], "nothing.* known: .*max_tokens"),
    ],
)
def test_an_option_without_effect_is_rejected(run, system, arguments, message):
    with pytest.raises(KermitError, match=message):
        run(system, *arguments)


def test_a_model_of_another_kind_is_rejected(run, folder):
    with pytest.raises(KermitError, match="of type gpt2, not an insertion model"):
        run("kermit", model=folder / "causal-lm")
    with pytest.raises(KermitError, match=r"cannot be loaded by AutoModelForMaskedLM: it is of type gpt2$"):
        run("masked-lm", model=folder / "causal-lm")
    with pytest.raises(KermitError, match="does not exist"):
        run("causal-lm", model=folder / "nowhere")


def test_the_output_folder_of_a_run_loads_its_best_model(run, folder, tmp_path):
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "best").symlink_to(folder / "kermit")
    scores = json.loads(run("kermit", *SMALL["kermit"], "--limit", "1", "--json", model=tmp_path / "training"))
    assert scores["instances"] == 1
