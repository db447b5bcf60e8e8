"""The benchmark of English infilling: its sentences, its blanks, and what counts as correct."""

import gzip
import json
import random
import sys
from pathlib import Path

import pytest
from insertion_models import cached_model_of
from scripts import load_script

from kermit.canvas.blanks import BLANK
from kermit.data.joint_tokenizer import train_tokenizer

load_script("benchmarks/abilities.py")  # which it imports
infilling = load_script("benchmarks/english_infilling.py")

SENTENCES = [
    "The old river crosses the wide valley near the small town.",
    "Many people still visit the museum in the summer months, however.",
    "In 1902, a second bridge was built beside the first one.",
    "Too short.",
    'It is called "the wall" by the people who live near it today.',
]


@pytest.mark.parametrize("words", [1, 2, 3])
@pytest.mark.parametrize("sentence", SENTENCES[:3])
def test_a_run_of_words_is_blanked_but_never_the_first_word(sentence, words):
    example = infilling.blanked(sentence, words)
    before, after = example.template.split(BLANK)
    removed = sentence[len(before) : len(sentence) - len(after)]
    assert before + removed + after == sentence
    assert before
    assert len(removed.split()) == words
    assert removed.replace(" ", "").isalpha()


def test_a_sentence_without_such_a_run_is_left_out():
    assert infilling.blanked("One, two, three, four, five, six, seven, eight.", 2) is None


def test_the_same_text_gives_the_same_examples_in_any_order():
    paragraphs = [" ".join(SENTENCES[:2]), " ".join(SENTENCES[2:])]
    found = infilling.chosen(paragraphs, 10)
    assert sorted(one.original for one in found) == sorted(SENTENCES[:3])
    assert sorted(one.words for one in found) == [1, 2, 3]
    random.Random(0).shuffle(paragraphs)
    assert infilling.chosen(paragraphs[::-1], 10) == found


def test_words_are_compared_without_case():
    examples = [infilling.Blanked("Go home now.", "Go ____ now.", 1), infilling.Blanked("A b c.", "A ____.", 2)]
    rows = [infilling.row(words, examples, ["go Home now.", "A b."], None) for words in (1, 2, "all")]
    assert [(row["texts"], row["exact"]) for row in rows] == [(1, 1.0), (1, 0.0), (2, 0.5)]


def test_the_script_measures_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    tokenizer = train_tokenizer(SENTENCES * 3, 300)
    for part in (cached_model_of(tokenizer), tokenizer):
        part.save_pretrained(tmp_path / "model")
    (tmp_path / "wikipedia").mkdir()
    with gzip.open(tmp_path / "wikipedia/valid.txt.gz", "wt", encoding="utf-8") as stream:
        stream.writelines(f"{sentence}\n\n" for sentence in SENTENCES)
    how = [
        "--model",
        tmp_path / "model",
        "--data",
        tmp_path,
        "--set",
        "max_tokens=4",
        "--output",
        tmp_path / "out.json",
    ]
    monkeypatch.setattr(sys, "argv", ["english_infilling.py", *map(str, how)])
    infilling.main()
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    report = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert printed == report["rows"] + report["shown"]
    assert [row["texts"] for row in report["rows"]] == [1, 1, 1, 3]
    assert report["settings"] == {"max_tokens": 4}
