"""Variants of text pairs: each kind by examples and properties, consistent on both sides, drawn from its own seed."""

import random
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kermit.data.variants import (
    DEFAULTS,
    MAX_JOINED,
    checked,
    copies,
    dictionary,
    find_names,
    labelled,
    mistyped,
    numbers,
    renamed,
    slip,
    unpunctuated,
    variants,
    words,
)
from kermit.errors import UsageError

WORDS = {"one": "eins", "dogs": "Hunde", "girls": "Mädchen", "run": "laufen", "over": "über", "streets": "Straßen"}
SEEDS = st.integers(0, 2**32)
PAIRS = [
    ("Tom saw 25 dogs in Boston.", "Tom sah 25 Hunde in Boston."),
    ("Is this the street?", "Ist das die Straße?"),
    ("We met Mary at 2:30.", "Wir trafen Mary um 2.30 Uhr."),
    ("Everything was closed yesterday.", "Gestern war alles geschlossen."),
] * 5


def draw(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def in_both(kind: str, pairs: list[tuple[str, str]], rate: float = 1.0, seed: int = 0) -> list[tuple[str, str]]:
    return variants(pairs, kind, rate, seed)["both"]


def test_the_source_is_in_lower_case_or_in_capitals_and_the_target_is_clean() -> None:
    pair = ("Is this the Street?", "Ist das die Straße?")
    assert variants([pair], "lower", 1.0, 0) == {
        "source_x": [("is this the street?", pair[1])],
        "source_y": [(pair[0], "ist das die straße?")],
    }
    assert variants([pair], "capitals", 1.0, 0) == {
        "source_x": [("IS THIS THE STREET?", pair[1])],
        "source_y": [(pair[0], "IST DAS DIE STRASSE?")],
    }


def test_variants_equal_to_the_original_are_skipped() -> None:
    assert variants([("ok", "Gut.")], "lower", 1.0, 0) == {"source_x": [], "source_y": [("ok", "gut.")]}


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("Yes.", "Ja!"), ("Yes", "Ja")),
        (("Really?!", "Wirklich ?"), ("Really", "Wirklich")),
        (("Yes", "Ja."), None),
        (("Well...", "Nun..."), None),
        (("At 9 a.m.", "Um 9 Uhr."), None),
        ((".", "."), None),
    ],
)
def test_final_punctuation_is_removed_if_both_sides_have_it(pair, expected) -> None:
    assert unpunctuated(pair, draw()) == expected


@given(st.text("abcdefghijklmnopqrstuvwxyzäöüß", min_size=4, max_size=12), SEEDS)
def test_a_typo_changes_one_letter_or_swaps_two_and_keeps_the_first(word, seed) -> None:
    new = slip(word, draw(seed))
    assert new[0] == word[0]
    assert abs(len(new) - len(word)) <= 1
    gone, come = Counter(word) - Counter(new), Counter(new) - Counter(word)
    assert gone.total() <= 1
    assert come.total() <= 1


@given(st.text(max_size=60), SEEDS)
def test_typos_are_in_at_most_two_words_and_never_next_to_digits(text, seed) -> None:
    new = mistyped(text, draw(seed))
    assert abs(len(new) - len(text)) <= 2
    assert re.findall(r"\w*\d\w*", new) == re.findall(r"\w*\d\w*", text)


def test_typos_leave_short_words_and_words_with_digits_unchanged() -> None:
    assert {mistyped("I am so MP3abcd abcd4 ok", draw(seed)) for seed in range(50)} == {"I am so MP3abcd abcd4 ok"}


def test_no_typo_produces_another_word_of_the_corpus() -> None:
    made = {mistyped("from", draw(seed), {"form", "fro"}) for seed in range(300)}
    assert made & {"fomr", "fromm"}
    assert not made & {"form", "fro"}


@given(
    st.lists(
        st.integers(0, 10**6).map(str) | st.sampled_from(["007", "2:30", "3.5", "3,5", "1,000", "10th"]), max_size=5
    ),
    SEEDS,
)
def test_numbers_stay_equal_on_both_sides(drawn, seed) -> None:
    pair = " and ".join(["x", *drawn, "."]), " und ".join(["y", *reversed(drawn), "."])
    x, y = numbers(pair, draw(seed))
    assert Counter(re.findall(r"\d+", x)) == Counter(re.findall(r"\d+", y))
    shape = [re.sub(r"\d+", "0", text) for text in (*pair, x, y)]
    assert shape[:2] == shape[2:]


@pytest.mark.parametrize("seed", range(20))
def test_numbers_of_clocks_and_calendars_stay_plausible(seed) -> None:
    x, y = numbers(("On May 14, 1987 at 10:45.", "Am 14. Mai 1987 um 10.45 Uhr."), draw(seed))
    day, year, hour, minute = map(int, re.fullmatch(r"On May (\d+), (\d{4}) at (\d+):(\d+)\.", x).groups())
    assert y == f"Am {day}. Mai {year} um {hour}.{minute} Uhr."
    assert day <= 14
    assert hour <= 10
    assert minute <= 45
    assert 1500 <= year < 2100


@pytest.mark.parametrize("seed", range(5))
def test_number_words_become_the_same_digits_on_both_sides(seed) -> None:
    x, y = numbers(("Three cats saw ten dogs.", "Drei Katzen sahen zehn Hunde."), draw(seed))
    assert re.sub(r"\d+", "#", x) == "# cats saw # dogs."
    assert re.sub(r"\d+", "#", y) == "# Katzen sahen # Hunde."
    assert re.findall(r"\d+", x) == re.findall(r"\d+", y)


def test_doubled_digits_are_frequent() -> None:
    drawn = draw()
    found = [numbers(("Room 1234.", "Zimmer 1234."), drawn)[0] for _ in range(300)]
    assert sum(bool(re.search(r"(\d)\1", text)) for text in found) > 120  # 81 of 300 in uniform numbers


def test_number_words_without_a_counterpart_stay() -> None:
    for pair in [("It is ten.", "Es ist elf."), ("Ten of ten men.", "Zehn Männer."), ("two men", "zwei Männer")]:
        assert numbers(pair, draw()) == pair


@pytest.mark.parametrize(
    "pair",
    [
        ("It is 2:30.", "Es ist halb drei."),
        ("The 10th of May", "Der 10. Mai"),
        ("1 dog", "1 Hund"),
        ("7 and 7", "7"),
        ("The B2 bomber", "Der B2-Bomber"),
    ],
)
def test_numbers_that_are_not_the_same_on_both_sides_stay(pair) -> None:
    assert numbers(pair, draw()) == pair


def test_names_are_capitalised_words_inside_sentences_of_both_sides() -> None:
    pairs = [
        ("Yesterday Zorro met Quill.", "Gestern traf Zorro Quill."),
        ("I use a Computer.", "Ich nutze einen Rechner."),
        ("Was it Gift?", "Was war Gift?"),
    ] * 3
    assert find_names([*pairs, ("In Rome and Paris", "In Rome und Paris")]) == ["Gift", "Quill", "Zorro"]


@given(SEEDS)
def test_names_are_replaced_in_the_same_way_on_both_sides(seed) -> None:
    names = ["Zorro", "Quill", "Zembla", "Mary"]
    x, y = renamed(("Zorro saw Quill, not Zorro.", "Zorro sah Quill, nicht Zorro."), names, draw(seed))
    one, two = re.fullmatch(r"(\w+) saw (\w+), not \1\.", x).groups()
    assert y == f"{one} sah {two}, nicht {one}."
    assert one != two
    starts, ends = ({name[:2] for name in names}, {name[-2:] for name in names})
    assert all(name[:2] in starts and name[-2:] in ends for name in (one, two))


def test_about_half_of_the_drawn_names_are_made_up_of_two_known_ones() -> None:
    names = ["Zorro", "Quill", "Zembla", "Mary"]
    drawn = [renamed(("Tom sleeps.", "Tom schläft."), [*names, "Tom"], draw(seed))[0].split()[0] for seed in range(400)]
    made_up = sum(name not in names for name in drawn) / len(drawn)
    assert 0.35 < made_up < 0.65


@pytest.mark.parametrize(
    "pair",
    [
        ("Tom and Tom", "Tom"),
        ("Tom's car and Mary-Lou", "Toms Auto und Mary-Lou"),
        ("Mary sleeps.", "Maria schläft."),
        ("Quill", "Quill"),
    ],
)
def test_names_that_are_unknown_or_not_the_same_on_both_sides_stay(pair) -> None:
    assert renamed(pair, ["Tom", "Mary", "Lou"], draw()) == pair


@given(SEEDS)
def test_a_label_follows_a_shared_name_on_both_sides(seed) -> None:
    x, y = labelled(("Does Zorro see Quill?", "Sieht Zorro Quill?"), ["Zorro", "Zembla"], draw(seed))
    label = re.fullmatch(r"Does Zorro (.+) see Quill\?", x)[1]
    assert y == f"Sieht Zorro {label} Quill?"


@given(SEEDS)
def test_without_a_shared_name_a_label_stands_before_the_final_mark(seed) -> None:
    x, y = labelled(("We met Mary.", "Wir trafen Maria!"), ["Zorro"], draw(seed))
    label = re.fullmatch(r"We met Mary (.+)\.", x)[1]
    assert y == f"Wir trafen Maria {label}!"


def test_labels_hold_names_numbers_quotes_and_brackets() -> None:
    made = [labelled(("Go", "Los"), ["Zorro", "Quill"], draw(seed))[0] for seed in range(200)]
    for pattern in (r'"', r"\(", r"\d{4}", r"Zorro", r"Quill", r"\b\d\b"):
        assert any(re.search(pattern, text) for text in made)
    assert not any("{" in text for text in made)


def test_joined_pairs_are_two_or_three_pairs_in_the_same_order() -> None:
    sentences = [(f"No {n}.", f"Nummer {n}!") for n in range(50)]
    joined = in_both("joined", sentences)
    assert {len(x.split(". ")) for x, _ in joined} == {2, 3}
    for x, y in joined:
        assert re.findall(r"\d+", x) == re.findall(r"\d+", y)


def test_joined_pairs_stay_short_and_end_their_sentences() -> None:
    long = [(" ".join(["word"] * size + [f"{size}."]), f"Satz {size}.") for size in range(5, 38)]
    joined = in_both("joined", [*long, ("no end", "kein Ende")])
    assert joined
    assert max(len(x.split()) for x, _ in joined) < MAX_JOINED
    assert not any("no end" in x for x, _ in joined)


def synthetic(lines: int = 400) -> list[tuple[str, str]]:
    """Word-for-word translations, with the German words in another order."""
    chooser = random.Random(3)
    pairs = []
    for _ in range(lines):
        english = chooser.sample(list(WORDS), chooser.randint(2, 5))
        german = [WORDS[word] for word in english]
        chooser.shuffle(german)
        pairs.append((f"And {' '.join(english)}.", f"Und {' '.join(german)}."))
    return pairs


def test_the_dictionary_of_a_synthetic_corpus_is_found() -> None:
    expected = {(x, y.lower()) for x, y in WORDS.items()}
    assert set(dictionary(synthetic())) == {*expected, ("and", "und")}


def test_rare_words_are_not_in_the_dictionary() -> None:
    assert dictionary([("rare", "selten")] * 4 + [("often", "oft")] * 5) == [("often", "oft")]


def test_parts_of_a_compound_are_not_its_translation() -> None:
    pairs = [("flea market", "Flohmarkt"), ("fire", "Feuer"), ("red", "rot")] * 20
    assert dict(dictionary(pairs)) == {"fire": "feuer", "red": "rot"}


def test_words_have_the_case_they_have_inside_sentences_and_some_also_start_with_a_capital() -> None:
    made = words(synthetic(), 100, draw())
    assert set(WORDS.items()) <= set(made)
    capital = set(made) - set(WORDS.items())
    assert capital
    assert all(x[0].isupper() and y[0].isupper() and WORDS[x.lower()].lower() == y.lower() for x, y in capital)
    assert len({x.lower() for x, _ in words(synthetic(), 3, draw())}) == 3


def test_copies_map_to_themselves_and_are_distinct() -> None:
    made = variants(PAIRS, "copies", 500, 0)["both"]
    assert all(x == y for x, y in made)
    assert len(set(made)) == 500
    text = "\n".join(copies(PAIRS, 500, draw()))
    assert "://" in text
    assert "@" in text
    assert "{" not in text


@pytest.mark.parametrize("kind", DEFAULTS)
def test_variants_are_deterministic_and_follow_the_seed(kind) -> None:
    pairs = [(f"Case {n}: {x}", f"Fall {n}: {y}") for n, (x, y) in enumerate(PAIRS)]
    rate = 20 if kind in ("words", "copies") else 0.3
    first = variants(pairs, kind, rate, 1)
    assert first == variants(pairs, kind, rate, 1)
    assert kind == "words" or first != variants(pairs, kind, rate, 2)
    assert variants(pairs, kind, 0, 1) in ({"source_x": [], "source_y": []}, {"both": []})


@pytest.mark.parametrize("kind", [kind for kind in DEFAULTS if kind not in ("words", "copies")])
def test_a_rate_is_a_share_of_the_pairs_and_a_lower_one_draws_the_first_of_them(kind) -> None:
    for name, few in variants(PAIRS, kind, 0.1, 5).items():
        assert len(few) == 2
        assert variants(PAIRS, kind, 0.2, 5)[name][:2] == few


def test_rates_are_completed_by_the_defaults() -> None:
    assert checked({"lower": 0, "words": 7}) == {**DEFAULTS, "lower": 0, "words": 7}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"typo": 0.1}, r"typo: unknown kind \(did you mean 'typos'\?\); known: lower, "),
        ({"lower": 1.5}, r"lower=1.5: must be a share of the pairs, from 0 to 1"),
        ({"lower": "much"}, r"lower=much: must be a share"),
        ({"lower": True}, r"lower=True: must be a share"),
        ({"lower": float("nan")}, r"lower=nan: must be a share"),
        ({"words": 0.5}, r"words=0.5: must be a whole number, 0 or more"),
        ({"copies": -1}, r"copies=-1: must be a whole number"),
    ],
)
def test_wrong_rates_are_errors(settings, message) -> None:
    with pytest.raises(UsageError, match=message):
        checked(settings)
