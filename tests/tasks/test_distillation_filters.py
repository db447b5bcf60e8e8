"""Filters for visibly wrong pairs of distilled text, each with small examples."""

from collections import Counter

import pytest

from kermit.tasks.distillation_filters import PairFilter, Reason, repeats, wrong_form

ENGLISH = ["the dog sees the man", "the man runs over the street", "a dog runs", "the street is green"] * 5
GERMAN = ["der Hund sieht den Mann", "der Mann läuft über die Straße", "ein Hund läuft", "die Straße ist grün"] * 5


@pytest.mark.parametrize(("source", "target", "differ"), [(2, 7, False), (2, 8, True), (8, 2, True), (0, 4, True)])
def test_lengths_may_differ_by_a_factor_of_two_and_three_words(source: int, target: int, differ: bool) -> None:
    assert (wrong_form("a " * source, "b " * target) is Reason.LENGTH) is differ


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("the dog runs over the street", "der Hund läuft über die Straße", None),
        ("the dog runs over the street", "a dog sees the green street", Reason.LANGUAGE),
        ("der Hund läuft über die Straße", "der Mann läuft über die Straße", Reason.LANGUAGE),
        ("the dog runs", "a dog runs", None),  # three words are too few
        ("Anna Maria Schmidt Meyer", "Anna Maria Müller Meyer", None),  # words of neither language
        ("the dog runs", "The dog runs!", Reason.COPY),
        ("New York!", "New York.", None),  # two words may stay unchanged
        ("- - - -", "- - - -", None),
        ("the dog", "der Hund der Hund der Hund", Reason.REPETITION),
        ("the dog the dog the dog", "der Hund der Hund der Hund", None),
        ("the dog", "der Hund " * 4, Reason.LENGTH),
    ],
)
def test_a_pair_is_left_out_for_its_first_reason(source: str, target: str, reason: Reason | None) -> None:
    assert PairFilter.of(zip(ENGLISH, GERMAN, strict=True)).reason(source, target) is reason


@pytest.mark.parametrize(
    ("text", "loop"),
    [
        ("ein sehr sehr großer Hund", False),
        ("ein sehr sehr sehr großer Hund", True),
        ("Bilder oder Fotos oder Fotos oder Fotos", True),
        ("ein Hund, ein Hund, Ein Hund", False),  # the last comma is missing
        ("Er wartet...", False),
        ("", False),
    ],
)
def test_a_loop_is_a_sequence_three_times_in_a_row(text: str, loop: bool) -> None:
    assert repeats(text) is loop


def test_words_of_copies_are_not_counted() -> None:
    found = PairFilter.of([("the dog runs", "The dog runs."), ("the man", "der Mann")])
    assert found == PairFilter(Counter(the=1, man=1), Counter(der=1, mann=1))
