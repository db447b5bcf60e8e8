"""Every recipe loads, builds its model and computes a loss; recipes that were never trained run a few steps."""

import gzip
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from kermit.data.encoding import Row
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.loading import bundled_model
from kermit.modeling import KermitForInsertion, special_token_settings
from kermit.modeling.tensors import as_tensors
from kermit.training.recipe import load_recipe
from kermit.training.run import prepare_tokenizer, train
from kermit.training.warm_start import prepare_model

ROOT = Path(__file__).parents[1] / "recipes"
RECIPES = sorted(ROOT.rglob("*.yaml"))
TRAINED = [path for path in RECIPES if "description:" in path.read_text(encoding="utf-8")]  # the others are extended
UNTRAINED = [path for path in TRAINED if path.parent.name in ("wmt14", "europarl")]
# models that are too large to build here, scaled down
SMALLER = {
    "bert_large.yaml": [
        "model.trunk.hidden_size=32",
        "model.trunk.num_hidden_layers=2",
        "model.trunk.num_attention_heads=2",
        "model.trunk.intermediate_size=64",
    ]
}

SMALL_MODEL = {
    "kermit": SMALLER["bert_large.yaml"],
    "transformer": [
        "model.width=32",
        "model.feedforward=64",
        "model.encoder_layers=1",
        "model.decoder_layers=1",
        "model.heads=2",
    ],
}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["A man rides a red bike.", "Ein Mann fährt ein rotes Rad."] * 3, 300)


@pytest.fixture(scope="module")
def encoder(tokenizer, tmp_path_factory):
    """A checkpoint for recipes that start from one."""
    folder = tmp_path_factory.mktemp("encoder")
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(tokenizer), **shape)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def _environment(encoder, monkeypatch):
    monkeypatch.setenv("KERMIT_RUNS", "/runs")
    monkeypatch.setenv("KERMIT_MINILM", str(encoder))


@pytest.mark.parametrize("path", TRAINED, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recipe_starts_with_its_command_its_cost_and_its_result(path):
    opening = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    for word in ("Command:", "Cost:", "Result:"):
        assert any(word in line for line in opening), f"the recipe's opening comment has no {word!r}"


def test_a_recipe_that_is_not_trained_is_extended():
    bases = {path: yaml.safe_load(path.read_text("utf-8")).get("extends") for path in RECIPES}
    extended = {path.parent / base for path, base in bases.items() if base}
    assert set(RECIPES) - set(TRAINED) <= extended


@pytest.fixture
def readme(tmp_path):
    """The recipe in the README."""
    text = (ROOT.parent / "README.md").read_text(encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(re.search(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL).group(1), encoding="utf-8")
    return path


@pytest.mark.parametrize("path", [*TRAINED, "readme"], ids=lambda path: Path(path).stem)
def test_a_recipe_loads_builds_and_computes_a_loss(path, tokenizer, readme):
    path = readme if path == "readme" else path
    loaded = load_recipe(path, overrides=SMALLER.get(path.name, []))
    torch.manual_seed(0)
    model = loaded.family.build(loaded.recipe, tokenizer)
    rows = [Row(x=[9, 10, 11], y=[12, 13], source=0), Row(x=[9], y=[12, 13, 14, 15], source=0)]
    batch = as_tensors(loaded.family.collator(loaded.recipe, tokenizer)(rows, np.random.default_rng(1)))
    batch.pop("items")
    assert loaded.family.loss(model, batch, loaded.recipe).isfinite()


def test_recipes_of_one_corpus_share_one_tokenizer():
    for folder in {path.parent for path in TRAINED}:
        recipes = [load_recipe(path).recipe for path in TRAINED if path.parent == folder]
        trained = {recipe.tokenizer.model_dump_json() for recipe in recipes if recipe.tokenizer.vocab_size}
        assert len(trained) <= 1, folder


@pytest.mark.slow
def test_the_largest_recipe_has_the_papers_size_and_runs_scaled_down(tokenizer, encoder, tmp_path):
    path = ROOT / "pretraining" / "bert_large.yaml"
    loaded = load_recipe(path)
    special_token_settings(tokenizer)
    with torch.device("meta"):
        model = loaded.family.build(loaded.recipe, tokenizer)
    vocabulary = 1024 * (30522 - len(tokenizer))  # BERT's tokenizer, which is not available offline
    assert sum(parameter.numel() for parameter in model.parameters()) + vocabulary == pytest.approx(336e6, rel=0.01)
    articles = "\n\n".join(["A man rides a red bike. He falls.\nIt rains."] * 20)
    for name in ("train.txt", "valid.txt"):
        (tmp_path / name).write_text(articles)
    small = [
        *SMALLER["bert_large.yaml"],
        f"tokenizer.path={encoder}",
        "data.train=[{text: train.txt}]",
        "data.validation={text: valid.txt}",
        "batch.tokens=512",
        "schedule.max_steps=2",
        "runtime.workers=0",
    ]
    result = train(load_recipe(path, data=tmp_path, overrides=small), tmp_path / "out")
    assert result.steps == 2
    assert result.best is not None


@pytest.fixture(scope="module")
def sample(corpus, tmp_path_factory):
    """A data folder that holds the toy corpus under the names of WMT's and Europarl's files."""
    folder = tmp_path_factory.mktemp("sample")
    names = {
        "wmt14/train.{}.gz": "train",
        "wmt14/mono.{}.gz": "test",
        "wmt14/distilled/en_de/train.{}": "train",
        "wmt14/distilled/de_en/train.{}": "train",
        "wmt_newstest/newstest2013.{}.gz": "val",
        "europarl/train.short200k.{}.gz": "train",
        "europarl/dev.{}.gz": "val",
    }
    for name, split in names.items():
        for language in ("en", "de"):
            place, text = folder / name.format(language), (corpus / f"{split}.{language}").read_bytes()
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(gzip.compress(text) if place.suffix == ".gz" else text)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("path", UNTRAINED, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recipe_that_was_never_trained_runs_steps_on_a_sample(path, sample, tmp_path):
    small = [
        *SMALL_MODEL[load_recipe(path).family.name],
        "tokenizer.vocab_size=320",
        "batch.tokens=1500",
        "schedule.max_steps=2",
        "checkpoints.every=1",
        "evaluation.texts=2",
        "decoding.max_tokens=8",
    ]
    result = train(load_recipe(path, data=sample, overrides=small), tmp_path)
    assert result.steps == 2
    assert result.best is not None
    places = ("checkpoint-1", "checkpoint-2", ".")
    first, last, kept = (load_file(tmp_path / place / "model.safetensors") for place in places)
    assert any(not torch.equal(weight, last[name]) for name, weight in first.items())
    assert any(not torch.equal(weight, last[name]) for name, weight in kept.items()), "what is kept is no average"


def test_a_recipe_continues_from_the_bundled_model_by_name(tmp_path):
    bundled_by_name = ["init_from=bundled", "tokenizer.path=bundled"]
    recipe = load_recipe(ROOT / "bundled" / "english_german.yaml", data=tmp_path, overrides=bundled_by_name)
    tokenizer = prepare_tokenizer(recipe)
    model, bundled = prepare_model(recipe, tokenizer), KermitForInsertion.from_pretrained(bundled_model())
    assert len(tokenizer) == bundled.config.vocab_size
    assert "joint" in model.config.factorizations
    trained = bundled.state_dict()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, trained[name].float()), name


KERMIT_STUB = """#!/usr/bin/env bash
set -eu
printf '%s\\n' "$*" >>"$CALLS"
while [ $# -gt 0 ]; do
  case $1 in --input | --x | --y) test -s "$2" || grep -q -e "--output ${2%/*}" "$CALLS" ;; esac
  shift
done
"""


def test_the_preparation_of_the_bundled_model_makes_every_text_of_its_recipe(tmp_path, monkeypatch) -> None:
    data, runs, calls = tmp_path / "data", tmp_path / "runs", tmp_path / "calls"
    for stem in ("multi30k/train", "multi30k_mono/captions", "tatoeba_full/train", "tatoeba_full/mono"):
        for language in ("en", "de"):
            path = data / f"{stem}.{language}.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            with gzip.open(path, "wt", encoding="utf-8") as file:
                file.write("a line\n" * 120_000)
    stub = tmp_path / "bin/kermit"
    stub.parent.mkdir()
    stub.write_text(KERMIT_STUB, encoding="utf-8")
    stub.chmod(0o755)
    names = {"KERMIT_DATA": data, "KERMIT_RUNS": runs, "CALLS": calls, "PATH": f"{stub.parent}:{os.environ['PATH']}"}
    for name, value in names.items():
        monkeypatch.setenv(name, str(value))
    folder = ROOT / "bundled"
    subprocess.run(["bash", str(folder / "prepare.sh")], check=True, cwd=ROOT.parent)
    made = set(re.findall(r"--output (\S+)", calls.read_text(encoding="utf-8")))
    recipe = (folder / "english_german_further.yaml").read_text(encoding="utf-8")
    wanted = re.findall(r"\$\{KERMIT_RUNS\}(\S+)/", recipe)
    assert {f"{runs}{path}" for path in wanted} <= made
