"""`score`, `embed` and `info` through the entry point, against the pipeline."""

import json
import math
import re
import shutil
from shutil import copytree

import numpy as np
import pytest
import torch

from kermit import Factorization, Kermit, __version__


@pytest.fixture(scope="module")
def pipeline(folder):
    return Kermit.from_pretrained(folder)


PAIR = ("--x", "A", "--y", "Rad")


def test_scores_are_those_of_the_pipeline(ask, pipeline):
    for method in ("exact", "importance", "bound", "paper_bound"):
        (expected,) = pipeline.score(["A"], ["Rad"], method=method)
        (found,) = ask("score", *PAIR, "--method", method, "--json").records
        assert found["log_prob"] == pytest.approx(expected.log_prob)
        assert found["method"] == method
        assert ("standard_error" in found) == (method == "importance")
        assert float(ask("score", *PAIR, "--method", method).out.split("\t")[0]) == pytest.approx(
            expected.log_prob, abs=1e-4
        )


@pytest.mark.parametrize("factorization", [way.value for way in Factorization])
def test_any_factorization_of_a_pair_can_be_scored(ask, pipeline, factorization):
    (expected,) = pipeline.score(["A"], ["Rad"], factorization=Factorization(factorization), method="exact")
    (found,) = ask("score", *PAIR, "--factorization", factorization, "--method", "exact", "--json").records
    assert found["log_prob"] == pytest.approx(expected.log_prob)


def test_a_text_of_the_second_side_is_scored_on_its_own(ask, pipeline):
    (expected,) = pipeline.score([""], ["Rad"], factorization=Factorization.Y, method="exact")
    (found,) = ask("score", "Rad", "--side", "de", "--method", "exact", "--json").records
    assert found == {"y": "Rad", "log_prob": pytest.approx(expected.log_prob), "method": "exact"}


def test_the_score_of_a_text_does_not_depend_on_the_others(ask):
    alone = ask("score", "red", "--orders", 4).out
    assert alone in ask("score", "A man", "red", "--orders", 4).out


def test_more_orders_and_another_prior_give_another_estimate(ask):
    few, many = (ask("score", "A red bike", "--orders", count).out for count in (2, 8))
    assert few != many
    tree = ask("score", "A red bike", "--orders", 8, "--prior", "balanced_tree", "--temperature", 0.1).out
    assert tree != many
    assert ask("score", "A red bike", "--orders", 2, "--seed", 9).out != few


@pytest.mark.parametrize("drawn", [("--orders", 1), ("--prior", "left_to_right")], ids=str)
def test_one_order_has_no_standard_error(ask, drawn):
    (found,) = ask("score", "A red bike", *drawn, "--json").records
    assert found["standard_error"] is None
    assert math.isfinite(found["log_prob"])
    assert ask("score", "A red bike", *drawn).out == f"{found['log_prob']:.4f}\n"


def test_embeddings_equal_the_pipelines_in_every_format(ask, pipeline, tmp_path):
    texts = ["A man.", "", "a red bike"]
    for pooling in ("mean", "first"):
        expected = pipeline.embed(texts, pooling=pooling)
        asked = ("embed", *texts, "--pooling", pooling)
        array = tmp_path / "vectors.npy"
        ask(*asked, "--output", array)
        np.testing.assert_allclose(np.load(array), expected, rtol=1e-5)
        lines = ask(*asked, "--json").records
        assert [line["x"] for line in lines] == texts
        np.testing.assert_allclose([line["embedding"] for line in lines], expected, atol=1e-5)
        numbers = np.loadtxt(ask(*asked).out.splitlines())
        np.testing.assert_allclose(numbers, expected, rtol=1e-4)


def test_pairs_and_the_second_side_are_embedded_as_such(ask, pipeline):
    (pair,) = ask("embed", "--json", stdin=b"A man\tEin Mann\n").records
    assert (pair["x"], pair["y"]) == ("A man", "Ein Mann")
    np.testing.assert_allclose(pair["embedding"], pipeline.embed(["A man"], ["Ein Mann"])[0], atol=1e-5)
    (german,) = ask("embed", "Ein Mann", "--side", "de", "--json").records
    np.testing.assert_allclose(german["embedding"], pipeline.embed([""], ["Ein Mann"])[0], atol=1e-5)


def test_no_text_gives_an_array_without_rows(ask, tmp_path):
    ask("embed", "--output", tmp_path / "none.npy")
    assert np.load(tmp_path / "none.npy").shape == (0, 16)


def test_info_shows_the_installed_packages_and_the_model(ask, pipeline, folder):
    (found,) = ask("info", "--json").records
    assert found["kermit"] == __version__
    assert found["torch"] == torch.__version__
    assert found["device"]
    assert found["model"] == {
        "model": "tiny",
        "folder": str(folder),
        "family": "kermit",
        "parameters": sum(parameter.numel() for parameter in pipeline.engine.model.parameters()),
        "languages": ["en", "de"],
        "factorizations": ["joint"],
        "orders": None,
        "cached_context": False,
        "licence": "apache-2.0",
    }
    shown = ask("info").out
    assert "en, de" in shown
    assert "apache-2.0" in shown
    assert re.search(r"^orders +unknown$", shown, re.MULTILINE)
    assert re.search(r"^cached_context +no$", shown, re.MULTILINE)


def test_info_shows_the_orders_of_a_model_or_null_if_unknown(kermit, ordered_folder, tmp_path):
    (found,) = kermit("info", "--model", ordered_folder, "--json").records
    assert found["model"]["orders"] == ["balanced_tree", "left_to_right"]
    assert found["model"]["cached_context"] is True
    shown = kermit("info", "--model", ordered_folder).out
    assert re.search(r"^orders +balanced_tree, left_to_right$", shown, re.MULTILINE)
    assert re.search(r"^cached_context +yes$", shown, re.MULTILINE)
    config = json.loads((ordered_folder / "config.json").read_text(encoding="utf-8"))
    older = {name: value for name, value in config.items() if name not in ("orders", "cached_context")}
    copytree(ordered_folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "config.json").write_text(json.dumps(older), encoding="utf-8")
    (found,) = kermit("info", "--model", tmp_path, "--json").records
    assert (found["model"]["orders"], found["model"]["cached_context"]) == (None, None)


def test_a_model_in_several_files_loads_like_one_in_a_single_file(ask, kermit, folder, pipeline, tmp_path):
    pipeline.engine.model.save_pretrained(tmp_path, max_shard_size="5KB")
    for file in folder.glob("tokenizer*.json"):
        shutil.copyfile(file, tmp_path / file.name)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    whole, parts = (
        [kermit(*verb, "--model", place, "--json").records for verb in (("info",), ("embed", "a dog"))]
        for place in (folder, tmp_path)
    )
    assert parts[0][0]["model"]["parameters"] == whole[0][0]["model"]["parameters"]
    assert parts[1] == whole[1]


def test_info_needs_no_model(kermit, monkeypatch):
    monkeypatch.setattr("kermit.loading.bundled_model", lambda: None)
    done = kermit("info")
    assert done.code == 0
    assert "none bundled" in done.out


def test_a_line_without_a_tab_is_a_single_text_whatever_the_other_lines(kermit, folder, tmp_path):
    loner = Kermit.from_pretrained(folder)
    loner.engine.model.config.factorizations = None
    loner.save_pretrained(tmp_path)
    loner = Kermit.from_pretrained(tmp_path)
    lines, few = b"A man\nA\tRad\nred ____\n", ("--model", tmp_path, "--set", "max_tokens=4")
    alone, (pair,) = loner.embed(["A man", "red ____"]), loner.embed(["A"], ["Rad"])
    found = [record["embedding"] for record in kermit("embed", "--model", tmp_path, "--json", stdin=lines).records]
    assert np.allclose(found, [alone[0], pair, alone[1]], atol=1e-5)
    blanks = b"\nA\tRad ____\nred ____\n"
    filled = kermit("infill", *few, stdin=blanks).out.splitlines()
    pair = kermit("infill", "--x", "A", "--y", "Rad ____", *few).out.rstrip("\n")
    assert filled == ["", pair, kermit("infill", "red ____", *few).out.rstrip("\n")]
    broken = kermit("embed", "--model", tmp_path, stdin=lines + b"red" * 99)
    assert (broken.code, "stdin:4: " in broken.err) == (2, True)
