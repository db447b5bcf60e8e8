"""Variants of text pairs: each kind by examples and properties, consistent on both sides, drawn from its own seed."""

import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kermit.data import lexicon
from kermit.data.alignment import dictionary
from kermit.data.names import find_names
from kermit.data.variants import (
    DEFAULTS,
    MAX_JOINED,
    checked,
    copies,
    mistyped,
    numbers,
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


def test_what_would_equal_the_original_is_skipped() -> None:
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
def test_final_punctuation_goes_where_both_sides_have_it(pair, expected) -> None:
    assert unpunctuated(pair, draw()) == expected


@given(st.text("abcdefghijklmnopqrstuvwxyzäöüß", min_size=4, max_size=12), SEEDS)
def test_a_slip_changes_one_letter_or_swaps_two_and_keeps_the_first(word, seed) -> None:
    new = slip(word, draw(seed))
    assert new[0] == word[0]
    assert abs(len(new) - len(word)) <= 1
    gone, come = Counter(word) - Counter(new), Counter(new) - Counter(word)
    assert gone.total() <= 1
    assert come.total() <= 1


@given(st.text(max_size=60), SEEDS)
def test_slips_are_in_at_most_two_words_and_never_beside_digits(text, seed) -> None:
    new = mistyped(text, draw(seed))
    assert abs(len(new) - len(text)) <= 2
    assert re.findall(r"\w*\d\w*", new) == re.findall(r"\w*\d\w*", text)


def test_neighbours_on_the_keyboard_are_beside_above_or_below() -> None:
    made = {slip("abcg", draw(seed)) for seed in range(900)}
    assert {word[3] for word in made if word[:3] == "abc" and len(word) == 4} == set("gftyhvb")


def test_slips_leave_short_words_and_words_with_digits_alone() -> None:
    assert {mistyped("I am so MP3abcd abcd4 ok", draw(seed)) for seed in range(50)} == {"I am so MP3abcd abcd4 ok"}


def test_no_slip_makes_another_word_of_the_corpus() -> None:
    made = {mistyped("from", draw(seed), {"form", "fro"}) for seed in range(300)}
    assert made & {"fomr", "fromm", "ftom"}
    assert not made & {"form", "fro"}


@given(
    st.lists(
        st.integers(0, 10**6).map(str) | st.sampled_from(["007", "2:30", "3.5", "3,5", "1,000", "10th"]), max_size=5
    ),
    SEEDS,
)
def test_numbers_stay_alike_on_both_sides_and_keep_their_shape(drawn, seed) -> None:
    pair = " and ".join(["x", *drawn, "."]), " und ".join(["y", *reversed(drawn), "."])
    x, y = numbers(pair, draw(seed))
    assert Counter(re.findall(r"\d+", x)) == Counter(re.findall(r"\d+", y))
    shape = [re.sub(r"\d", "0", text) for text in (*pair, x, y)]
    assert shape[:2] == shape[2:]
    for old, new in zip(re.findall(r"\d+", pair[0]), re.findall(r"\d+", x), strict=True):
        assert (old[0] == "0") == (new[0] == "0")


@pytest.mark.parametrize("seed", range(20))
def test_numbers_of_clocks_and_calendars_stay_plausible(seed) -> None:
    x, y = numbers(("On May 14, 1987 at 10:45.", "Am 14. Mai 1987 um 10.45 Uhr."), draw(seed))
    day, year, hour, minute = map(int, re.fullmatch(r"On May (\d\d), (\d{4}) at (\d\d):(\d\d)\.", x).groups())
    assert y == f"Am {day}. Mai {year} um {hour}.{minute:02} Uhr."
    assert day <= 31
    assert hour <= 23
    assert minute <= 59
    assert "14" not in (day, hour, minute)


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


def corpus_of_names() -> list[tuple[str, str]]:
    return [
        ("Yesterday Zorro met Quill.", "Gestern traf Zorro Quill."),
        ("I live in Zembla.", "Ich wohne in Zembla."),
        ("I use the Internet and a Computer.", "Ich nutze das Internet und einen Computer."),
        ("Was it Gift?", "Was war Gift?"),
    ] * 4


def test_names_are_capitalised_words_inside_sentences_of_both_sides() -> None:
    names = find_names(corpus_of_names())
    assert {"Zorro", "Quill"} <= set(names.groups["others"])
    assert "Zembla" in names.groups["places"]
    assert not {"Internet", "Computer", "Was", "Yesterday"} & set(names.group_of)


def test_a_word_that_is_common_in_lower_case_is_no_name() -> None:
    pairs = [("You see Rust here.", "Da ist Rust hier."), ("Iron will rust.", "Eisen wird rosten.")] * 4
    assert "Rust" not in find_names(pairs).group_of


@given(SEEDS)
def test_names_are_replaced_alike_on_both_sides_with_their_genitives(seed) -> None:
    names = find_names(corpus_of_names())
    pair = ("Zorro's dog saw Tom in Zembla, not Zorro.", "Zorros Hund sah Tom in Zembla, nicht Zorro.")
    x, y = names.replaced(pair, draw(seed))
    one, tom, place, again = re.fullmatch(r"(\w+)'s dog saw (\w+) in (\w+), not (\w+)\.", x).groups()
    assert one == again
    assert y == f"{one}s Hund sah {tom} in {place}, nicht {one}."
    assert place in names.groups["places"]
    assert tom not in names.groups["places"]
    assert one[-1] not in "sxzß"


@pytest.mark.parametrize(
    "pair",
    [
        ("Tom and Tom", "Tom"),
        ("Chris' car and Mary-Lou", "Chris' Auto und Mary-Lou"),
        ("Mary sleeps.", "Maria schläft."),
        ("Who was it?", "Wer war es?"),
    ],
)
def test_names_that_are_not_the_same_on_both_sides_stay(pair) -> None:
    assert find_names([]).replaced(pair, draw()) == pair


def test_the_lists_hold_names_once_and_none_that_is_excluded() -> None:
    names = [name for group in lexicon.GROUPS.values() for name in group]
    assert 190 <= len(names) == len(set(names)) <= 250
    assert not set(names) & lexicon.NOT_NAMES
    assert all(name[0].isupper() and name[1:].islower() for name in names)


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


def test_alignment_finds_the_dictionary_of_a_synthetic_corpus() -> None:
    expected = {(x, y.lower()) for x, y in WORDS.items()}
    assert set(dictionary(synthetic(), draw())) == {*expected, ("and", "und")}


def test_alignment_finds_the_dictionary_of_the_tests_corpus(corpus: Path) -> None:
    sides = [(corpus / f"train.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "de")]
    pairs = list(zip(*sides, strict=True))
    expected = {pair for x, y in pairs for pair in zip(x[:-1].split(), y[:-1].lower().split(), strict=True)}
    assert set(dictionary(pairs, draw())) == expected


def test_alignment_leaves_rare_words_long_texts_and_too_many_cells_out() -> None:
    pairs = [("rare", "selten")] * 4 + [(" ".join(["long"] * 31), "lang")] * 9 + [("often", "oft")] * 5
    assert dictionary(pairs, draw()) == [("often", "oft")]
    assert dictionary(pairs, draw(), max_cells=3) == []
    assert dictionary([("12", "34")], draw()) == []


def test_parts_of_a_compound_are_not_its_translation() -> None:
    pairs = [("flea market", "Flohmarkt"), ("fire", "Feuer"), ("red", "rot")] * 20
    assert dict(dictionary(pairs, draw())) == {"fire": "feuer", "red": "rot"}


def test_words_are_cased_as_inside_sentences_and_some_have_capitals_too() -> None:
    made = words(synthetic(), 100, draw())
    assert set(WORDS.items()) <= set(made)
    capital = set(made) - set(WORDS.items())
    assert capital
    assert all(x[0].isupper() and y[0].isupper() and WORDS[x.lower()].lower() == y.lower() for x, y in capital)
    assert len({x.lower() for x, _ in words(synthetic(), 3, draw())}) == 3


def test_copies_map_to_themselves_and_are_distinct() -> None:
    made = variants([], "copies", 500, 0)["both"]
    assert all(x == y for x, y in made)
    assert len(set(made)) == 500
    text = "\n".join(copies(500, draw()))
    assert "://" in text
    assert "@" in text
    assert not re.search(r"<[wntdeix]>", text)


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
def test_wrong_rates_are_told(settings, message) -> None:
    with pytest.raises(UsageError, match=message):
        checked(settings)
