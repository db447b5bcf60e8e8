"""`infill`, `complete`, `sample` and `translate --trace` through the entry point, with a small untrained model."""

import json
import re

import pytest
import torch
from transformers import BertConfig
from typer.testing import CliRunner

from kermit import KermitConfig, KermitForInsertion
from kermit.cli import app
from kermit.data.tokenizer import train_tokenizer
from kermit.errors import KermitError
from kermit.modeling import special_token_settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer(["A man rides a red bike.", "Ein Mann fährt ein rotes Rad."] * 3, 300)
    trunk = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    config = KermitConfig(
        trunk_config=trunk,
        languages={"x": "en", "y": "de"},
        factorizations=["joint"],
        **special_token_settings(tokenizer),
    )
    KermitForInsertion(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def run(folder):
    def call(*arguments):
        result = CliRunner().invoke(app, [*arguments, "--model", str(folder)])
        if isinstance(result.exception, KermitError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout

    return call


def test_infill_keeps_what_is_given(run):
    output = run("infill", "A man ____ a red ____.", "--max-tokens-per-blank", "3", "--min-tokens-per-blank", "1")
    assert re.fullmatch(r"A man.+ a red.+\.\n", output)


def test_infill_draws_so_many_and_the_same_for_the_same_seed(run):
    arguments = ["infill", "A ____ bike.", "--samples", "3", "--seed", "5", "--max-tokens-per-blank", "4", "--json"]
    lines = [json.loads(line) for line in run(*arguments).splitlines()]
    assert len(lines) == 3
    assert len({line["x"] for line in lines}) > 1
    assert [json.loads(line) for line in run(*arguments).splitlines()] == lines
    assert {"x", "y", "rounds", "tokens", "log_prob", "finish"} == set(lines[0])


def test_infill_of_the_second_language_alone(run):
    output = run("infill", "Ein ____ Rad.", "--side", "de", "--max-tokens-per-blank", "2")
    assert re.fullmatch(r"Ein.* Rad\.\n", output)


def test_infill_of_both_sides_at_once(run):
    limits = ["--max-tokens-per-blank", "2", "--json"]
    (line,) = run("infill", "--x", "A ____ bike.", "--y", "Ein rotes ____", *limits).splitlines()
    found = json.loads(line)
    assert re.fullmatch(r"A.* bike\.", found["x"])
    assert found["y"].startswith("Ein rotes")


def test_complete_keeps_the_fragments(run):
    output = run("complete", "--x", "red", "--y", "rotes", "--set", "max_tokens=5")
    x, y = output.rstrip("\n").split("\t")
    assert re.search(r"\bred\b", x)
    assert re.search(r"\brotes\b", y)


def test_sample_draws_one_side_or_both(run):
    both = json.loads(run("sample", "--json", "--set", "max_tokens=6"))
    assert {"x", "y"} <= set(both)
    german = [json.loads(line) for line in run("sample", "--segment", "de", "-n", "2", "--json").splitlines()]
    assert len(german) == 2
    assert all("x" not in line and "y" in line for line in german)


def test_translate_shows_the_rounds(run):
    output = run("translate", "--to", "de", "A man.", "--trace", "--set", "max_tokens=4")
    lines = output.splitlines()
    assert lines[0] == "de"
    assert "[" in lines[1]
    record = json.loads(run("translate", "--to", "de", "A man.", "--trace", "--json", "--set", "max_tokens=4"))
    assert len(record["trace"]["rounds"]) == record["rounds"]
    assert sum(map(len, record["trace"]["rounds"])) == record["tokens"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["infill"], "give texts with blanks"),
        (["infill", "A ____", "--side", "fr"], "en and de"),
        (["infill", "A ____", "--max-tokens-per-blank", "0"], "max_tokens_per_blank"),
        (["sample", "--set", "temprature=2"], "temprature"),
        (["sample", "--decoding", "diagonal"], "strategy"),
    ],
)
def test_wrong_input_is_an_error_that_names_the_place(run, arguments, message):
    with pytest.raises(KermitError, match=message):
        run(*arguments)
