"""The results page shows the stored measurements, and every row has its recipe."""

import json
import shutil
import sys
from dataclasses import asdict, make_dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from scripts import load_script
from typer.main import get_command

from kermit.cli import app
from kermit.tasks.glue.finetuning import Setting
from kermit.tasks.glue.runs import Result, summarise

ROOT = Path(__file__).parents[1]
STORED = ROOT / "checkpoints" / "left_to_right"


@pytest.fixture(scope="module", autouse=True)
def beside_the_benchmarks():
    """Let the scripts import their shared modules, as when they are run."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield
    sys.path.remove(str(ROOT / "benchmarks"))


def benchmark(name):
    return load_script(f"benchmarks/{name}.py")


@pytest.fixture(scope="module")
def translation():
    return benchmark("reproduce_translation")


@pytest.fixture(scope="module")
def tables():
    return benchmark("representation_tables")


@pytest.fixture
def representation(tables, monkeypatch, tmp_path):
    """The stages of representation learning, with their own page and without downloads."""
    module = benchmark("reproduce_representation")
    for name in ("glue", "cloze"):
        monkeypatch.setitem(tables.RESULTS, name, tmp_path / f"{name}.json")
    marks = ("glue table", "cloze table", "infilled", "figure5")
    page = "".join(f"<!-- {name}: begin -->\n<!-- {name}: end -->\n" for name in marks)
    (tmp_path / "results.md").write_text(page, encoding="utf-8")
    for place in (tables, module):
        monkeypatch.setattr(place, "PAGE", tmp_path / "results.md")
    monkeypatch.setattr(module, "ENGLISH", tmp_path / "english")
    monkeypatch.setattr(module.Workshop, "cost_of", lambda self, task: task)
    monkeypatch.setattr(module.Workshop, "trunk", lambda self: "trunk")
    monkeypatch.setattr(module.Workshop, "smollm2", lambda self: "smollm2/model.gguf")
    monkeypatch.setenv("KERMIT_MINILM", str(tmp_path))
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    return module


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_every_script_can_be_imported(path, monkeypatch):
    monkeypatch.setitem(sys.modules, path.stem, None)
    benchmark(path.stem)


def test_every_row_has_its_recipe_and_every_trained_recipe_its_row(translation):
    folder = ROOT / "recipes" / "multi30k"
    trained = {path.stem for path in folder.glob("*.yaml") if "description:" in path.read_text(encoding="utf-8")}
    assert set(translation.recipes()) == trained


def test_a_report_belongs_to_its_weights(translation, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(translation, "measure", lambda run, data: asked.append(run) or {"en-de": len(asked)})
    run = tmp_path / "run"
    run.mkdir()
    (run / "summary.json").write_text("{}")
    (run / "config.json").write_text("{}")

    def score(weights):
        (run / "model.safetensors").write_text(weights)
        return translation.score("run", tmp_path, tmp_path)["directions"]["en-de"]

    assert [score(weights) for weights in ("first", "first", "second", "second")] == [1, 1, 2, 2]


def test_a_model_is_scored_in_every_way_it_can_decode(translation, monkeypatch, tmp_path):
    asked, exported = [], []
    facades = {
        "both orders": SimpleNamespace(searcher=None, info=SimpleNamespace(inserts_left_to_right=True)),
        "trees": SimpleNamespace(searcher=None, info=SimpleNamespace(inserts_left_to_right=False)),
        "search": SimpleNamespace(searcher="search"),
    }

    def evaluate(facade, pairs, direction, choices, note):
        asked.append(choices)
        return make_dataclass("Scores", ["bleu"])(1.0), []

    for facade in facades.values():
        facade.languages, facade.decoding = ("en", "de"), lambda choices: choices
    monkeypatch.setattr(translation, "kermit", lambda *words: exported.append(words[0]))
    monkeypatch.setattr("kermit.pipeline.Kermit.from_pretrained", lambda run: facades[run.name])
    monkeypatch.setattr("kermit.tasks.translation.trained_directions", lambda facade: ["en-de"])
    monkeypatch.setattr("kermit.tasks.translation.evaluate_translation", evaluate)
    monkeypatch.setattr("kermit.tasks.translation.note_of", lambda *_: "")
    monkeypatch.setattr("kermit.tasks.translation.read_split", lambda folder, split, languages: split)
    ways = {name: list(translation.measure(tmp_path / name, tmp_path)["en-de"]) for name in facades}
    assert ways == {
        "both orders": ["parallel", "best of 24", "left to right", "5 beams"],
        "trees": ["parallel", "best of 24"],
        "search": ["left to right", "5 beams"],
    }
    assert [choices["ranking"] for choices in asked if "ranking" in choices] == ["left_to_right", "again"]
    assert exported == ["export", "export"]


def test_the_page_shows_the_stored_results(translation):
    assert translation.table(translation.kept_results()) in translation.PAGE.read_text(encoding="utf-8")


def test_a_row_has_every_way_of_decoding_rounds_and_cost(translation):
    scores = {"bleu": 35.44, "length_ratio": 0.98, "mean_rounds": 5.21}
    ways = {"parallel": scores, "best of 24": scores | {"bleu": 37.5}, "left to right": scores | {"bleu": 38.0}}
    searched = {"left to right": scores | {"bleu": 38.1, "mean_rounds": 14.0}, "5 beams": scores | {"bleu": 39.04}}
    results = {
        "transformer_en_de": {
            "summary": {"parameters": 4_270_000, "steps": 9_000, "minutes": 65.2},
            "directions": {"en-de": searched},
        },
        "joint": {
            "summary": {"parameters": 4_270_000, "steps": 3_000, "minutes": 20.4},
            "directions": {"de-en": ways, "en-de": ways},
        },
        "joint_marginal": {
            "summary": {"parameters": 4_270_000, "steps": 1_500, "minutes": 10.0},
            "directions": {"de-en": ways, "en-de": ways},
        },
    }
    transformer, joint, *_, marginal = translation.table(results).splitlines()[2:]
    assert transformer.startswith(
        "| Transformer, human translations | en-de |  |  | 38.1 | 39.0 | 14.00 | 0.98 | 4.3M |"
    )
    assert transformer.endswith("| 9,000 steps, 65 min | 27.8 |")
    assert joint.startswith("| KERMIT, joint | en-de | 35.4 | 37.5 | 38.0 |  | 5.21 | 0.98 | 4.3M |")
    assert "| 3,000 steps, 20 min; then 1,500 steps, 10 min | 28.6 |" in marginal


def test_models_that_others_start_from_come_first_and_are_trained_first(translation, monkeypatch, tmp_path):
    names = translation.recipes()
    begun = {name: translation.begun_from(name) for name in names}
    assert begun["finetune_en_de"] == "joint_marginal"
    assert begun["unidirectional_en_de"] is None
    assert all(names.index(before) < names.index(name) for name, before in begun.items() if before)
    called = []
    monkeypatch.setattr(translation, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(translation, "kermit", lambda *words: called.append(Path(words[1]).stem))
    translation.train("joint_marginal", tmp_path, tmp_path / "runs")
    assert called == ["bidirectional", "joint", "joint_marginal"]


# ------------------------------------------------------------------------------------- representation, cloze questions


@pytest.mark.parametrize("name", ["glue", "cloze"])
def test_the_page_shows_the_stored_results_of_representation_learning(tables, name):
    page = tables.PAGE.read_text(encoding="utf-8")
    table = tables.TABLES[name](tables.read_results(name))
    assert f"<!-- {name} table: begin -->\n{table}\n<!-- {name} table: end -->" in page


def test_without_results_the_tables_have_no_rows(tables):
    assert [len(table({}).splitlines()) for table in tables.TABLES.values()] == [2, 2]


def finetuned(scores):
    """The output of `kermit finetune glue --json` for scores by task, one per seed."""
    setting = Setting(learning_rate=1e-4)
    results = [
        Result(
            task, seed, setting, {"metric": score}, score, 9, 9, 1, 0.1, "pretraining/kermit_minilm", "w", "d", "0.1"
        )
        for task, values in scores.items()
        for seed, score in enumerate(values)
    ]
    return json.loads(json.dumps(asdict(summarise(results))))


def test_a_row_of_glue_has_means_with_their_spread_and_the_papers_rows_are_below(tables):
    steady = {"SST-2": 90.0, "MRPC": 80.0, "STS-B": 85.0, "RTE": 60.0}
    scores = {"CoLA": (30.0, 33.0, 36.0)} | {task: (score,) * 3 for task, score in steady.items()}
    cost = {"parameters": 22_900_000, "steps": 1200, "minutes": 61.4}
    partial = tables.glue_table({"kermit": {"pretraining": cost, "finetuning": finetuned(scores)}}).splitlines()
    assert partial[2] == (
        "| KERMIT | yes | 33.0 ± 3.0 | 90.0 ± 0.0 | 80.0 ± 0.0 | 85.0 ± 0.0 | 60.0 ± 0.0 |  |  |  "
        "| 1,200 steps, 61 min |"
    )
    whole = {"trunk": {"pretraining": None, "finetuning": finetuned(scores | {"WNLI": (48.0, 52.0, 56.0)})}}
    # (33 + 90 + 80 + 85 + 60 + 52) / 6 with sqrt(3² + 4²) / 6, and 348 / 5 with 3 / 5
    assert tables.glue_table(whole).splitlines()[2].endswith("| 52.0 ± 4.0 | 66.7 ± 0.8 | 69.6 ± 0.6 |  |")
    # (60.0 + 94.2 + (88.6 + 84.3) / 2 + (86.6 + 85.6) / 2 + 68.4 + 65.1) / 6
    assert partial[3].endswith("| 76.7 | 79.0 |  |")
    assert len(partial) == 6


def test_a_row_of_cloze_questions_has_its_cost_and_the_papers_figures(tables):
    found = {
        "exact_match": 12.34,
        "f1": 20.06,
        "f1_of_the_first": 21.04,
        "instances": 3938,
        "empty": 7,
        "mean_forward_passes": 4.2,
        "mean_sequences": 4.2,
        "answers_per_second": 3.456,
        "mean_tokens": 2.51,
        "mean_gap_tokens": 4.28,
    }
    rows = tables.cloze_table({"kermit:nonempty": found, "kermit:free": found}).splitlines()[2:]
    assert rows == [
        "| KERMIT | 12.3 | 20.1 | 21.0 | 3,938 | 7 | 4.2 | 4.2 | 3.46 | 2.5 (4.3) | 20.9, 30.3 |",
        "| KERMIT, at least one token | 12.3 | 20.1 | 21.0 | 3,938 | 7 | 4.2 | 4.2 | 3.46 | 2.5 (4.3) |  |",
    ]


def taken_down(module, workshop, monkeypatch):
    """Let the commands of a workshop be checked against the command line and answered, not run."""
    asked, answers = [], {"train": "", "finetune": json.dumps(finetuned({"CoLA": (1.0, 2.0, 3.0)}))}
    figures = ("exact_match", "f1", "instances", "empty", "answers_per_second", "mean_forward_passes", "mean_sequences")
    answers["evaluate"] = json.dumps(dict.fromkeys((*figures, "mean_tokens", "mean_gap_tokens"), 1))

    def kermit(*arguments):
        words, command = [str(word) for word in arguments], get_command(app)
        asked.append(words)
        while hasattr(command, "commands"):
            command, words = command.commands[words[0]], words[1:]
        command.make_context(command.name, list(words))
        if asked[-1][0] == "train":
            folder = workshop.runs / words[words.index("--output") + 1]
            folder.mkdir(parents=True)
            cost = {"parameters": 1, "steps": 1, "minutes": 1.0}
            for name, content in {"summary": cost, "config": {}, "tokenizer": {}, "tokenizer_config": {}}.items():
                (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
            save_file({"weight": torch.full((2, 2), 0.1)}, folder / "model.safetensors")
        return answers[asked[-1][0]]

    monkeypatch.setattr(workshop, "kermit", kermit)
    monkeypatch.setattr(workshop, "run", lambda script, *words: f"{script.name} {' '.join(map(str, words))}\n")
    return asked


def test_the_precision_reaches_every_command(representation, tmp_path, monkeypatch):
    workshop = representation.Workshop(tmp_path / "data", tmp_path / "runs", "bfloat16")
    asked = taken_down(representation, workshop, monkeypatch)
    for stage in ("pretrain:kermit", "glue:kermit:RTE", "cloze:kermit:free"):
        workshop.do(stage)
    assert {words[0] for words in asked} == {"train", "finetune", "evaluate"}
    assert "runtime.precision=bfloat16" in asked[0]
    assert all(words[words.index("--precision") + 1] == "bfloat16" for words in asked[1:])


@pytest.mark.slow
def test_every_stage_runs_a_valid_command_and_fills_its_row(representation, tables, tmp_path, monkeypatch):
    workshop = representation.Workshop(tmp_path / "data", tmp_path / "runs")
    asked = taken_down(representation, workshop, monkeypatch)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with pytest.raises(SystemExit, match="kermit is not fully trained; run `--only pretrain:kermit` first"):
        workshop.do("glue:kermit:CoLA")
    for stage in representation.stages():
        workshop.do(stage)
    assert [words[0] for words in asked] == ["train"] * 4 + ["finetune"] * 4 * 6 + ["evaluate"] * 2 * (
        3 + 3 + 2 + 2 + 2
    )
    named = [words[words.index("--model") + 1] for words in asked if "--model" in words]
    recipes = {f"pretraining/{name}_minilm" for name in ("kermit", "kermit_copying", "masked_lm", "causal_lm")}
    assert set(named) == recipes | {"trunk", "smollm2/model.gguf"}
    assert [words[-1] for words in asked if words[0] == "evaluate"][-4:] == ["1000"] * 4  # SmolLM2, both ways
    assert [words for words in asked if "--subsample" in words] == [words for words in asked if "SST-2" in words]
    assert {model.name for model in tables.MODELS if model.on_glue} == set(tables.read_results("glue"))
    assert len(tables.read_results("cloze")) == 12
    page = tables.PAGE.read_text(encoding="utf-8")
    assert all(table(tables.read_results(name)) in page for name, table in tables.TABLES.items())
    assert f"<!-- infilled: begin -->\n```\ninfill_wikipedia.py --model {tmp_path / 'english'} --input" in page
    shown = "figure5.py --kermit pretraining/kermit_copying_minilm --masked-lm pretraining/masked_lm_minilm --causal-lm"
    assert shown in page
    kept = load_file(tmp_path / "english" / "model.safetensors")["weight"]
    assert kept.dtype == torch.float16
    assert kept.float().sub(0.1).abs().max() < 1e-4
    config = json.loads((tmp_path / "english" / "config.json").read_text(encoding="utf-8"))
    assert config == {"dtype": "float16"}
    assert all(any("float32" in str(word) for word in words) for words in asked)
    trained = len(asked)
    workshop.do("pretrain:kermit")
    assert len(asked) == trained


def test_stages_are_selected_by_prefix(representation, monkeypatch, capsys):
    assert representation.stages(["glue:kermit:RTE"]) == ["glue:kermit:RTE"]
    assert representation.stages(["glue:kermit"]) == [f"glue:kermit:{task}" for task in representation.GLUE_TASKS]
    assert representation.stages(["glue:ker"]) == []
    assert len(representation.stages(["pretrain", "cloze:masked_lm"])) == 4 + 2
    monkeypatch.setattr(sys, "argv", ["reproduce", "--data", "data", "--only", "glue:bert"])
    with pytest.raises(SystemExit):
        representation.main()
    assert "unknown stage glue:bert; known: pretrain:kermit" in capsys.readouterr().err


def test_every_task_has_its_finetuning_and_every_model_its_recipe(representation, tables):
    assert set(representation.FINETUNING) == set(tables.GLUE_TASKS)
    recipes = {path.stem for path in (ROOT / "recipes" / "pretraining").glob("*.yaml")}
    assert {model.recipe for model in tables.MODELS} - {None} <= recipes


def test_a_stored_model_counts_as_trained(translation, monkeypatch, tmp_path):
    monkeypatch.setattr(translation, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(translation, "KEPT_BYTES", 30_000_000)
    called = []
    monkeypatch.setattr(translation, "kermit", lambda *words: called.append(words))
    runs, name = tmp_path / "runs", "unidirectional_en_de"
    run = runs / name
    run.mkdir(parents=True)
    shutil.copytree(STORED, run, dirs_exist_ok=True)
    (run / "summary.json").write_text('{"steps": 7}')
    translation.keep(name, runs)
    kept = sorted(path.name for path in (tmp_path / "kept" / name).iterdir())
    assert kept == ["config.json", "model.safetensors", "summary.json", "tokenizer.json", "tokenizer_config.json"]
    shutil.rmtree(run)
    translation.train(name, tmp_path, runs)
    assert not called
    assert json.loads((run / "summary.json").read_text()) == {"steps": 7}
    translation.train(name, tmp_path, runs, "bfloat16", anew=True)
    assert not run.exists()
    assert called[0][0] == "train"
    assert "runtime.precision=bfloat16" in called[0]
