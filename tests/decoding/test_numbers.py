"""From left to right, numbers of the source are finished as the source has them."""

import re

import numpy as np
import pytest
from hypothesis import given, strategies as st
from insertion_models import END, Says, TableEngine, canvas_of

from kermit.data.joint_tokenizer import train_tokenizer
from kermit.decoding import Constraints, DecodingSettings, Sampling, Strategy, decode
from kermit.text.detokenizing import Detokenizer

WORD, ZERO, SIZE = 10, 20, 40
DIGIT_OF = np.full(SIZE, -1)
DIGIT_OF[ZERO : ZERO + 10] = range(10)
CONSTRAINTS = Constraints(digit_of=DIGIT_OF)


def ids(text: str) -> tuple[int, ...]:
    """A token per digit, and one for every other sign."""
    return tuple(ZERO + int(sign) if sign.isdigit() else WORD for sign in text)


def text_of(tokens: tuple[int, ...]) -> str:
    return "".join(str(DIGIT_OF[token]) if DIGIT_OF[token] >= 0 else "-" for token in tokens)


def writes(text: str) -> TableEngine:
    """A model that writes a text from left to right, and then ends; anything else is less likely."""

    def rule(canvas):
        written = len(canvas.segments[1])
        wanted = ids(text)[written] if written < len(text) else END
        chances = dict.fromkeys([*range(WORD, SIZE), END], 0.01) | {WORD: 0.02, wanted: 0.5}
        return Says(dict.fromkeys(canvas.open_slots, chances))

    return TableEngine(rule, vocab_size=SIZE)


def translated(source: str, wanted: str, constraints: Constraints = CONSTRAINTS, **settings: object) -> str:
    settings = DecodingSettings(Strategy.LEFT_TO_RIGHT, constraints=constraints, max_tokens=12, **settings)
    [found] = decode(writes(wanted), [canvas_of(*ids(source))], settings)
    return text_of(found.canvas.segments[1])


@pytest.mark.parametrize(
    ("source", "wanted", "expected"),
    [
        ("in 2022", "2022-", "2022-"),
        ("in 2022", "20222", "2022-"),  # a digit too many
        ("in 2022", "202-", "2022"),  # one too few
        ("in 2022", "202", "2022"),  # an end too early
        ("7 and 71", "7-", "7-"),  # either number may be meant
        ("7 and 71", "71", "71"),
        ("7 and 71", "72", "7-"),
        ("2:30", "14-30", "14-30"),  # no number of the source begins so
        ("no number", "20222", "20222"),
    ],
)
def test_a_number_that_begins_like_one_of_the_source_is_finished_like_it(source, wanted, expected) -> None:
    assert translated(source, wanted) == expected


def test_without_the_constraint_numbers_are_free() -> None:
    assert translated("in 2022", "20222", Constraints()) == "20222"


def test_beams_finish_numbers_too() -> None:
    assert translated("in 2022", "20222", beams=3).startswith("2022")
    assert not translated("in 2022", "20222", beams=3).startswith("20222")


@given(st.text("12 ", min_size=1, max_size=6), st.integers(0, 99))
def test_every_number_of_a_sample_that_begins_like_one_of_the_source_is_one(source, seed) -> None:
    engine = TableEngine(
        lambda canvas: Says(
            {slot: {ids("1")[0]: 0.4, ids("2")[0]: 0.4, WORD: 0.1, END: 0.1} for slot in canvas.open_slots}
        ),
        vocab_size=SIZE,
    )
    settings = DecodingSettings(Strategy.LEFT_TO_RIGHT, Sampling(1.0), constraints=CONSTRAINTS, max_tokens=30)
    [found] = decode(engine, [canvas_of(*ids(source))], settings, seeds=[seed])
    meant = set(re.findall(r"\d+", source))
    for number in re.findall(r"\d+", text_of(found.canvas.segments[1]))[: -1 if found.finish == "max_tokens" else None]:
        assert number in meant or not any(one.startswith(number[0]) for one in meant)


def test_a_tokenizer_with_a_token_per_digit_tells_which_they_are() -> None:
    texts = ["In 2022 and 2023 it was 30.", "Im Jahr 2022 und 2023 waren es 30."] * 3
    split = train_tokenizer(texts, 320, split_digits=True)
    found = Detokenizer(split, len(split)).digit_of
    encoded = split.encode("At 1907.", add_special_tokens=False)
    assert [digit for digit in found[encoded].tolist() if digit >= 0] == [1, 9, 0, 7]
    whole = train_tokenizer(texts, 320)
    assert Detokenizer(whole, len(whole)).digit_of is None
