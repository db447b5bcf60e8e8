"""Exact match and F1 as in SQuAD's script, worked out by hand."""

import pytest

from kermit.tasks.cloze.squad_metrics import exact_match, f1, normalise


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Tinside Pool.", "tinside pool"),
        ("65 %", "65"),
        ("65%", "65"),
        ("an apple a day, the end", "apple day end"),
        ("theatre of Ana", "theatre of ana"),
        ("U.S.", "us"),
        ("well-known", "wellknown"),
        ("“Quoted”", "“quoted”"),
        ("A.", ""),
        ("", ""),
    ],
)
def test_texts_are_compared_without_case_punctuation_and_articles(text, normal):
    assert normalise(text) == normal


def test_exact_match_accepts_any_of_the_gold_answers():
    assert exact_match("the Pool!", ["Tinside", "pool"])
    assert not exact_match("the Tinside pool", ["Tinside", "pool"])
    assert exact_match("the", ["A"])  # both are empty once normalised, as in the script


@pytest.mark.parametrize(
    ("answer", "gold", "value"),
    [
        ("the tinside pool", ["Tinside Pool"], 1.0),
        # 1 word in common, precision 1/1, recall 1/2
        ("plymouth", ["plymouth hoe"], 2 / 3),
        # 2 in common, precision 2/4, recall 2/3
        ("in a pool of cold water", ["cold water pool", "ice"], 2 * 3 / (5 + 3)),
        # a repeated word counts only as often as it occurs on the other side: 1 in common of 2 and 1
        ("pool pool", ["pool"], 2 / 3),
        ("plymouth", ["pool", "hoe"], 0.0),
        ("", ["pool"], 0.0),
        ("the", ["the"], 0.0),  # no words on either side: the script gives 0
        # the best of several: 1/2 against the first, 4/5 against the second
        ("cold water", ["water is wet", "cold water pool"], 4 / 5),
    ],
)
def test_f1_compares_bags_of_words_with_the_best_gold_answer(answer, gold, value):
    assert f1(answer, gold) == pytest.approx(value)
