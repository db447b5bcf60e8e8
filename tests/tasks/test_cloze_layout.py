"""Where an instance's tokens go, and which part of a long passage is kept."""

import re

import pytest
from hypothesis import given, strategies as st

from kermit.tasks.cloze.instances import ClozeInstance
from kermit.tasks.cloze.layout import TextEncoder, halves, lay_out_cloze, passage_window

PASSAGE = "One is here. Two reads a book. Three owns the red house. Four likes it. Five is gone."


words = TextEncoder(str.split)  # a tokenizer of whole words, so that layouts can be read


def test_the_passage_is_split_in_half_between_words_and_all_parts_are_in_place():
    instance = ClozeInstance.from_text("a b c d", "q r?", "left ____ right .", ["g h"], id="7")
    layout = lay_out_cloze(instance, words, lambda layout: True, split=True)
    assert layout.first == ("a", "b")
    assert layout.before == ("c", "d", "q", "r?", "left")
    assert layout.after == ("right", ".")
    assert (layout.id, layout.gap_length, layout.cut, layout.joined) == ("7", 2, False, False)
    assert len(layout) == 9


def test_a_passage_that_is_not_split_precedes_the_question():
    instance = ClozeInstance.from_text("a b c d", "q?", "____ right", ["g"])
    layout = lay_out_cloze(instance, words, lambda layout: True, split=False)
    assert (layout.first, layout.before) == ((), ("a", "b", "c", "d", "q?"))


@pytest.mark.parametrize(
    ("token", "following"),
    [
        (".", ["."]),
        ("▁?.", ["."]),  # the marker and the text after it are one token
        (r"▁a\.|.", ["."]),  # and so are an a and its full stop
        (r"▁[a(0]\.|.", ["▁", "."]),  # where they cannot be separated, it stays
    ],
)
def test_only_the_first_part_has_a_start_marker(token, following):
    encoder = TextEncoder(lambda text: re.findall(token, "▁" + text.replace(" ", "▁")))
    assert encoder.following(".") == following


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("aa bb", ("aa", "bb")),
        ("a bbbbbb c", ("a bbbbbb", "c")),
        ("one", ("one", "")),
        ("", ("", "")),
        ("aaaa b c", ("aaaa", "b c")),
    ],
)
def test_the_passage_is_split_at_the_white_space_nearest_to_its_middle(text, parts):
    assert halves(text) == parts


@pytest.mark.parametrize(
    ("room", "window"),
    [
        (100, PASSAGE),
        (85, PASSAGE),
        (84, "Two reads a book. Three owns the red house. Four likes it. Five is gone."),
        (60, "Two reads a book. Three owns the red house. Four likes it."),
        (45, "Three owns the red house. Four likes it."),
        (30, "Three owns the red house."),
        (24, "Three owns the red"),
        (4, ""),
    ],
)
def test_whole_sentences_are_kept_around_the_one_that_shares_most_words_with_the_question(room, window):
    assert passage_window(PASSAGE, "Who owns the red house?", lambda text: len(text) <= room) == window


def test_the_kept_sentences_do_not_depend_on_the_answer():
    def cut(answer):
        instance = ClozeInstance.from_text(PASSAGE, "Who reads a book?", "____ reads .", [answer])
        return lay_out_cloze(instance, words, lambda layout: len(layout) <= 14, split=True)

    layout = cut("Two")
    assert layout.cut
    assert cut("Five") == layout
    assert " ".join(layout.first + layout.before) == "One is here. Two reads a book. Who reads a book?"


def test_question_and_sentence_are_never_cut():
    instance = ClozeInstance.from_text(PASSAGE, "Who reads a book?", "____ reads .", ["Two"])
    least = 4 + 2
    layout = lay_out_cloze(instance, words, lambda layout: len(layout) <= least, split=True)
    assert (layout.first, layout.before, layout.after) == ((), ("Who", "reads", "a", "book?"), ("reads", "."))
    assert lay_out_cloze(instance, words, lambda layout: len(layout) < least, split=True) is None


@given(
    st.lists(st.sampled_from(["One ran.", "Who? Me!", 'He said "so." Yes.', "no end", "a"]), min_size=1, max_size=8),
    st.integers(0, 60),
)
def test_a_window_is_a_part_of_the_passage_that_fits_and_cannot_be_grown_by_the_next_sentence(parts, room):
    passage = " ".join(parts)
    window = passage_window(passage, "Who ran?", lambda text: len(text) <= room)
    assert window in passage
    assert len(window) <= room
    if len(passage) <= room:
        assert window == passage.strip()
