"""`infill`, `complete`, `sample` and `translate` through the entry point, with a small untrained model."""

import json
import re

import pytest


def test_infill_keeps_the_given_text(ask):
    limits = ("--max-tokens-per-blank", 3, "--min-tokens-per-blank", 1)
    assert re.fullmatch(r"A man.+ a red.+\.\n", ask("infill", "A man ____ a red ____.", *limits).out)


def test_infill_draws_n_samples_and_the_same_ones_for_the_same_seed(ask):
    arguments = ["infill", "A ____ bike.", "--samples", 3, "--seed", 5, "--max-tokens-per-blank", 4, "--json"]
    lines = ask(*arguments).records
    assert [line["seed"] for line in lines] == [5, 6, 7]
    assert len({line["x"] for line in lines}) > 1
    assert ask(*arguments).records == lines
    assert {"x", "rounds", "tokens", "log_prob", "finish", "seed"} == set(lines[0])


def test_infill_works_on_the_second_language_alone(ask):
    limits = ("--max-tokens-per-blank", 2)
    assert re.fullmatch(r"Ein.* Rad\.\n", ask("infill", "Ein ____ Rad.", "--side", "de", *limits).out)
    (found,) = ask("infill", "Ein ____ Rad.", "--side", "de", *limits, "--json").records
    assert "x" not in found


def test_infill_works_on_both_sides_at_once(ask):
    limits = ["--max-tokens-per-blank", 2, "--json"]
    (found,) = ask("infill", "--x", "A ____ bike.", "--y", "Ein rotes ____", *limits).records
    assert re.fullmatch(r"A.* bike\.", found["x"])
    assert found["y"].startswith("Ein rotes")


def test_a_line_with_a_tab_is_a_pair(ask):
    lines = b"A ____ bike.\tEin Rad.\nA man ____\n"
    pair, text = ask("infill", "--max-tokens-per-blank", 2, stdin=lines).out.removesuffix("\n").split("\n")
    assert re.fullmatch(r"A.* bike\.\tEin Rad\.", pair)
    assert re.fullmatch(r"A man[^\t]*", text)


def test_complete_keeps_the_fragments(ask):
    x, y = (
        ask("complete", "--x", "... red ...", "--y", "... rotes", "--set", "max_tokens=5").out.rstrip("\n").split("\t")
    )
    assert re.search(r"\bred\b", x)
    assert re.search(r"\brotes\b", y)


def test_complete_reads_fragments_from_a_file_and_samples_each(ask, tmp_path):
    fragments = tmp_path / "fragments.txt"
    fragments.write_text("red ...\trotes\n... bike\n", encoding="utf-8")
    out = ask("complete", "--input", fragments, "--samples", 2, "--set", "max_tokens=5").out
    lines = [line.split("\t") for line in out.removesuffix("\n").split("\n")]
    assert [len(line) for line in lines] == [2, 2, 2, 2]
    assert ["red" in x for x, _ in lines[:2]] == ["bike" in x for x, _ in lines[2:]] == [True, True]


def test_sample_draws_one_side_or_both(ask):
    (both,) = ask("sample", "--json", "--set", "max_tokens=6").records
    assert {"x", "y"} <= set(both)
    german = ask("sample", "--segment", "de", "-n", 2, "--json").records
    assert len(german) == 2
    assert all("x" not in line and "y" in line for line in german)


def test_output_of_sample_can_be_scored_and_embedded(ask):
    pairs = ask("sample", "-n", 3, "--set", "max_tokens=4").out
    assert pairs.count("\n") == pairs.count("\t") == 3
    assert len(ask("score", "--orders", 2, stdin=pairs.encode()).out.splitlines()) == 3
    assert len(ask("embed", stdin=pairs.encode()).out.splitlines()) == 3


def test_translate_shows_the_rounds(ask):
    lines = ask("translate", "--to", "de", "A man.", "--trace", "--set", "max_tokens=4").out.splitlines()
    assert lines[0] == "de"
    assert "[" in lines[1]
    (record,) = ask("translate", "--to", "de", "A man.", "--trace", "--json", "--set", "max_tokens=4").records
    assert len(record["trace"]["rounds"]) == record["rounds"]
    assert sum(map(len, record["trace"]["rounds"])) == record["tokens"]


@pytest.mark.parametrize("settings", [{"FORCE_COLOR": "1"}, {"FORCE_COLOR": "1", "NO_COLOR": "1"}], ids=str)
def test_a_terminal_without_colours_gets_brackets(ask, monkeypatch, settings):
    for name, value in ({"TERM": "xterm-256color"} | settings).items():
        monkeypatch.setenv(name, value)
    shown = ask("translate", "--to", "de", "A man.", "--trace", "--set", "max_tokens=4").out
    blue = "\x1b[4;34m"
    assert (blue in shown) == ("NO_COLOR" not in settings)
    assert ("·" in shown) == ("NO_COLOR" in settings)


def test_a_sample_does_not_depend_on_the_texts_before_it(ask, monkeypatch):
    """Texts are processed in chunks; the seeds continue from one chunk to the next."""
    arguments = ("translate", "--to", "de", "A man.", "red", "bike", "A", "--set", "top_k=50", "--set", "max_tokens=6")
    whole = ask(*arguments).out
    monkeypatch.setattr("kermit.cli.inputs.CHUNK", 2)
    assert ask(*arguments).out == whole


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["infill", "A ____", "--x", "A ____"], "not both"),
        (["infill", "A ____", "--side", "fr"], "en and de"),
        (["infill", "A ____", "--max-tokens-per-blank", "0"], "max_tokens_per_blank"),
        (["sample", "--set", "temprature=2"], "unknown decoding setting 'temprature'"),
        (["sample", "--set", "temperature=cold"], "temperature"),
        (["sample", "--set", "temperature=[1"], "is not a YAML value"),
        (["sample", "--set", "temperature"], "write it as key=value"),
        (["sample", "--set", "seed=3"], "--set seed: use --seed"),
        (["sample", "--decoding", "diagonal"], "'serial', 'parallel', 'left_to_right'"),
        (["translate", "--to", "fr", "A man."], "en and de"),
        (["translate", "--to", "de", "short", "word " * 90], "argument 2: "),
        (
            ["score", "A man rides a red bike. A man rides a red bike. A man rides a bike.", "--method", "exact"],
            "argument 1: ",
        ),
    ],
)
def test_wrong_input_is_an_error_with_file_and_line(kermit, folder, arguments, message):
    outcome = kermit(*arguments, "--model", folder)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.out == ""


def test_a_long_text_is_translated_sentence_by_sentence_without_whole(ask):
    text = "A man rides. A red bike."
    asked = ("translate", "--to", "de", "--set", "max_tokens=3", text)
    found = json.loads(ask(*asked, "--json").out)
    assert [sentence["source"] for sentence in found["sentences"]] == ["A man rides.", "A red bike."]
    assert found["tokens"] == sum(sentence["tokens"] for sentence in found["sentences"]) <= 6
    whole = json.loads(ask(*asked, "--whole", "--json").out)
    assert "sentences" not in whole
    assert whole["tokens"] <= 3
    assert ask(*asked, "--trace").out.count("de") >= 2
