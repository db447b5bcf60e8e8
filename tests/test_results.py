"""The results page holds what was measured, and every row of it has its recipe."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def translation():
    spec = importlib.util.spec_from_file_location("reproduce", ROOT / "benchmarks" / "reproduce_translation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_row_has_its_recipe_and_every_trained_recipe_its_row(translation):
    folder = ROOT / "recipes" / "multi30k"
    trained = {path.stem for path in folder.glob("*.yaml") if "description:" in path.read_text(encoding="utf-8")}
    assert set(translation.recipes()) == trained


def test_the_page_shows_the_kept_results(translation):
    kept = json.loads(translation.RESULTS.read_text(encoding="utf-8"))
    page = translation.PAGE.read_text(encoding="utf-8")
    assert translation.table(kept) in page


def test_a_row_gives_both_penalties_rounds_and_cost(translation):
    test = {"bleu": 31.44, "chrf": 55.5, "length_ratio": 0.98, "mean_rounds": 5.21, "mean_log2": 4.02}
    at_0 = test | {"bleu": 30.02, "length_ratio": 0.91}
    results = {
        "unidirectional_en_de": {
            "summary": {"parameters": 4_270_000, "steps": 12_000, "minutes": 90.4},
            "directions": {"en-de": {"penalty": 1.5, "test": test, "test_at_0": at_0}},
        }
    }
    assert translation.table(results).splitlines()[-1] == (
        "| KERMIT, unidirectional | en-de | 31.4 (penalty 1.5) | 30.0 | 55.5 | 0.98 (0.91) | 5.2 | 4.0 | 4.3M "
        "| 12,000 steps, 90 min | 27.8 |"
    )
