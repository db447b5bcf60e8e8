import re

import pytest
from hypothesis import given, strategies as st

from kermit.canvas.blanks import BLANK, BlankedText


def test_a_text_is_split_at_its_blanks_and_white_space_before_a_blank_belongs_to_it() -> None:
    text = BlankedText.parse("A man ____ a red ____.")
    assert text.fragments == ("A man", " a red", ".")
    assert text.spaces == (" ", " ")
    assert text.joined == (False, False)


def test_more_than_four_underscores_are_one_blank_and_fewer_are_text() -> None:
    assert BlankedText.parse("a ________ b").fragments == ("a", " b")
    assert BlankedText.parse("a ___ b").fragments == ("a ___ b",)


def test_a_blank_that_touches_the_word_on_its_left_is_joined() -> None:
    assert BlankedText.parse("un____able").joined == (True,)
    assert BlankedText.parse("____able").joined == (False,)
    assert BlankedText.parse("A man____ or a ____").joined == (True, False)


def test_text_without_blanks_is_one_fragment() -> None:
    assert BlankedText.parse("as it is") == BlankedText(("as it is",), ())
    assert BlankedText.parse("") == BlankedText(("",), ())


@pytest.mark.parametrize(
    ("template", "pieces", "expected"),
    [
        ("A man ____ a red ____.", [" in", " hat"], "A man in a red hat."),
        ("A man ____ a red ____.", ["in", "hat"], "A man in a red hat."),  # pieces of a tokenizer that drops spaces
        ("A man ____ a red ____.", ["", ""], "A man a red."),
        ("A man ____.", [", he said"], "A man, he said."),
        ("un____able", ["believ"], "unbelievable"),
        ("un____able", [""], "unable"),
        ("____ man", [" A"], "A man"),
        ("____ man", [""], "man"),
        ("A ____", [""], "A"),
        ("A ____man", [""], "A man"),  # nothing was inserted, and the two words stay two
        ("A\n____man", [""], "A\nman"),
        ("One.\n\n____ man.", [" A"], "One.\n\nA man."),
        ("One.\n____", ["Two"], "One.\nTwo"),
        ("A\t____ man", [", old"], "A, old man"),
        ("A____man", [" old "], "A old man"),
        ("A ____man", [" sales"], "A salesman"),
        ("____", [" all"], "all"),
        ("\n\t____ man", [" A"], "\n\tA man"),  # white space around a text is kept
        ("\n\t____ man", [""], "\n\tman"),
        (" A ____ \n", ["man"], " A man \n"),
        ("(____) A man.", [" One"], "(One) A man."),  # nothing comes between a bracket and a blank that touches it
        ("A „____“ man", [" red"], "A „red“ man"),
        ('A "____" man', [" red"], 'A "red" man'),
        ('A "red"____', [" man"], 'A "red" man'),
        ("A „red“____", [" man"], "A „red“ man"),
        ('("____', [" red"], '("red'),
        ("A ____ man", ["(old)"], "A (old) man"),
        ("____ ____ end", ["one", ""], "one end"),
        ("____ ____ end", ["", ""], "end"),
    ],
)
def test_pieces_fill_the_blanks(template: str, pieces: list[str], expected: str) -> None:
    assert BlankedText.parse(template).fill(pieces) == expected


def test_the_number_of_pieces_must_equal_the_number_of_blanks() -> None:
    with pytest.raises(ValueError, match="zip"):
        BlankedText.parse("a ____").fill([])


@given(st.lists(st.text("ab .,\n", max_size=6), min_size=1, max_size=5))
def test_fragments_and_spaces_hold_every_character_of_the_text(parts: list[str]) -> None:
    text = BLANK.join(parts)
    parsed = BlankedText.parse(text)
    before, after = parsed.outer
    rebuilt = before + parsed.fragments[0]
    for space, fragment in zip(parsed.spaces, parsed.fragments[1:], strict=True):
        rebuilt += space + BLANK + fragment
    assert rebuilt + after == re.sub("_{4,}", BLANK, text)  # blanks that meet are one
