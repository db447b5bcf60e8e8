import pytest
from hypothesis import example, given, strategies as st

from kermit.text.splitting import split_text


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("en", "A dog sleeps. Two dogs run!", ["A dog sleeps.", "Two dogs run!"]),
        ("en", "Mr. Smith paid $3.50 on Jan. 5th. He left.", ["Mr. Smith paid $3.50 on Jan. 5th.", "He left."]),
        ("en", '"Really?" she asked. Yes.', ['"Really?" she asked.', "Yes."]),
        ("de", "Am 3. Oktober war Dr. Müller z. B. in Wien. Er ging.", [
            "Am 3. Oktober war Dr. Müller z. B. in Wien.", "Er ging.",
        ]),
        ("en", "A title without a stop\nA sentence.\r\n\r\nAnother", [
            "A title without a stop", "A sentence.", "Another",
        ]),
        ("x", "One. Two.", ["One.", "Two."]),
        ("en", " \n\t ", []),
        ("en", "", []),
    ],
)  # fmt: skip
def test_a_text_is_split_where_a_reader_would(language: str, text: str, sentences: list[str]) -> None:
    assert list(split_text(text, language).sentences) == sentences


def test_new_sentences_are_joined_with_the_original_layout() -> None:
    split = split_text("  A dog.  A cat.\n\n- One. \n", "en")
    assert split.join(["Ein Hund.", "Eine Katze.", "- Eins."]) == "  Ein Hund.  Eine Katze.\n\n- Eins. \n"


@given(
    text=st.text() | st.text(" .!?\n\r\u2028\u00a0\"'()aA1…。"), language=st.sampled_from(["en", "de", "x", "!", ""])
)
@example(text="a\x1c \x85b\u3000", language="en")
def test_joining_the_same_sentences_gives_the_text_back(text: str, language: str) -> None:
    split = split_text(text, language)
    assert split.join(split.sentences) == text
    assert all(sentence and sentence == sentence.strip() for sentence in split.sentences)
    assert not "".join(split.gaps).strip()
