import pytest
from hypothesis import given, strategies as st

from kermit.text.casing import in_capitals, sentence_case


@pytest.mark.parametrize("text", ["HELLO", "GUTEN TAG!", "3 HUNDE", "DIE STRAßE", "ÄÖ"])
def test_text_whose_letters_are_all_capitals_is_in_capitals(text: str) -> None:
    assert in_capitals(text)


@pytest.mark.parametrize("text", ["", "I", "A.", "12:30", "Hello", "NATO says no", "ß", "你好"])
def test_other_text_is_not_in_capitals(text: str) -> None:
    assert not in_capitals(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("WHERE AM I?", "Where am i?"), ('"GUTEN TAG!"', '"Guten tag!"'), ("3 DOGS", "3 Dogs"), ("", ""), ("12", "12")],
)
def test_sentence_case_keeps_only_the_first_letter(text: str, expected: str) -> None:
    assert sentence_case(text) == expected


@given(st.text())
def test_a_text_in_sentence_case_is_in_capitals_only_if_its_letters_have_no_lower_case(text: str) -> None:
    if in_capitals(text) and text.isascii():
        assert not in_capitals(sentence_case(text))
        assert sentence_case(text).upper() == text
