"""What is left out of distilled text as visibly wrong: each filter by small examples."""

import math
from collections import Counter

import pytest

from kermit.tasks.distillation_filters import Reason, WordCounts, is_copy, lengths_differ, repeats, wrong_pair


@pytest.mark.parametrize(("source", "target", "differ"), [(2, 7, False), (2, 8, True), (8, 2, True), (0, 4, True)])
def test_lengths_may_differ_by_a_factor_of_two_and_three_words(source: int, target: int, differ: bool) -> None:
    assert lengths_differ("a " * source, "b " * target) is differ


@pytest.mark.parametrize(
    ("source", "target", "copy"),
    [
        ("Two dogs run.", "two dogs run!", True),
        ("New York!", "New York.", False),  # two words may stay what they are
        ("Two dogs run.", "Two dogs ran.", False),
        ("- - - -", "- - - -", False),
    ],
)
def test_a_copy_has_the_words_of_its_source(source: str, target: str, copy: bool) -> None:
    assert is_copy(source, target) is copy


@pytest.mark.parametrize(
    ("text", "loop"),
    [
        ("ein sehr sehr großer Hund", False),
        ("ein sehr sehr sehr großer Hund", True),
        ("oder Fotos oder Fotos oder Bilder", False),
        ("Bilder oder Fotos oder Fotos oder Fotos", True),
        ("ein Hund, ein Hund, Ein Hund", False),  # the last comma is missing
        ("Hund, ein Hund, ein Hund, ein", True),
        ("Er wartet...", False),
        ("a b a b a c a b", False),
        ("", False),
    ],
)
def test_a_loop_is_a_sequence_three_times_in_a_row(text: str, loop: bool) -> None:
    assert repeats(text) is loop


ENGLISH = ["the dog sees the man", "the man runs over the street", "a dog runs", "the street is green"] * 5
GERMAN = ["der Hund sieht den Mann", "der Mann läuft über die Straße", "ein Hund läuft", "die Straße ist grün"] * 5


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("the dog runs over the street", "der Hund läuft über die Straße", None),
        ("the dog runs over the street", "a dog sees the green street", Reason.LANGUAGE),
        ("der Hund läuft über die Straße", "der Mann läuft über die Straße", Reason.LANGUAGE),
        ("the dog runs", "a dog runs", None),  # three words say too little
        ("Anna Maria Schmidt Meyer", "Anna Maria Müller Meyer", None),  # words that neither language has
        ("the dog", "der Hund der Hund der Hund", Reason.REPETITION),
        ("the dog the dog the dog", "der Hund der Hund der Hund", None),
        ("the dog runs", "The dog runs!", Reason.COPY),
        ("the dog", "der Hund " * 4, Reason.LENGTH),
    ],
)
def test_a_pair_is_left_out_for_its_first_reason(source: str, target: str, reason: Reason | None) -> None:
    assert wrong_pair(source, target, WordCounts.count(zip(ENGLISH, GERMAN, strict=True))) is reason


def test_log_odds_are_those_of_naive_bayes_without_the_text_itself() -> None:
    languages = WordCounts(Counter(the=7, dog=1), Counter(der=4, the=3, hund=1))
    # 4 kinds of words, 8 words on each side; of the target's three "the" two are the text's own
    the, der, dog = math.log(7.5 / 1.5), math.log(0.5 / 3.5), math.log(1.5 / 0.5)
    assert languages.target_margin("The the der dog") == pytest.approx((2 * the + der + dog) / 4)


def test_words_of_copies_are_not_counted() -> None:
    languages = WordCounts.count([("the dog runs", "The dog runs."), ("the man", "der Mann")])
    assert languages == WordCounts(Counter(the=1, man=1), Counter(der=1, mann=1))
