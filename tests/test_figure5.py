"""The example of the paper's Figure 5, with tiny models of all three kinds."""

import runpy
import sys
from pathlib import Path

import pytest
from cloze_models import gpt2, kermit, masked_lm, tokenizer
from insertion_models import cached_model_of

from kermit import Strategy

EXAMPLE = Path(__file__).parents[1] / "examples" / "figure5.py"


def test_every_given_model_answers_and_the_correct_answer_is_shown(tmp_path, monkeypatch, capsys):
    words = tokenizer()
    models = {"kermit": kermit(words, room=400), "masked-lm": masked_lm(words, positions=800), "causal-lm": gpt2(words)}
    arguments = []
    for name, model in models.items():
        model.save_pretrained(tmp_path / name)
        words.save_pretrained(tmp_path / name)
        arguments += [f"--{name}", str(tmp_path / name)]
    monkeypatch.setattr(sys, "argv", ["figure5.py", *arguments])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    for line in (
        "KERMIT, serial",
        "KERMIT, parallel, at least one token",
        "masked LM, oracle length",
        "causal LM",
        "correct",
        "Tinside Pool",
    ):
        assert line in shown
    assert "What notable location" in shown
    assert "left_to_right" not in shown  # the model was not trained for it


def test_a_model_of_two_orders_answers_with_every_strategy(tmp_path, monkeypatch, capsys):
    words = tokenizer()
    for part in (cached_model_of(words), words):
        part.save_pretrained(tmp_path)
    monkeypatch.setattr(sys, "argv", ["figure5.py", "--kermit", str(tmp_path)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    for strategy in Strategy:
        assert f"KERMIT, {strategy}" in shown


def test_without_a_model_the_error_says_what_to_pass(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["figure5.py"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "at least one model" in capsys.readouterr().err
