"""Errors carry their details as data, from which the message is formatted."""

import pytest

from kermit.errors import DataError, KermitError, ModelError, Place, placed


def test_an_error_message_names_the_text_or_the_place() -> None:
    assert str(DataError("too long", text=3, limit=8)) == "text 3: too long"
    assert str(DataError("too long", place=Place("train.en", 7))) == "train.en:7: too long"
    assert str(DataError("too long", place=Place("argument 1"))) == "argument 1: too long"
    assert str(KermitError("broken")) == "broken"


def test_an_error_about_one_of_several_texts_has_its_number() -> None:
    with pytest.raises(ModelError) as refused, placed([Place("a", 1), Place("b", 2)]):
        raise ModelError("too long", text=1, limit=8)
    assert (refused.value.place, refused.value.text, refused.value.limit) == (Place("b", 2), None, 8)
    assert str(refused.value) == "b:2: too long"


@pytest.mark.parametrize("text", [None, 2])
def test_an_error_about_no_text_is_unchanged(text: int | None) -> None:
    with pytest.raises(DataError) as refused, placed([Place("a", 1)]):
        raise DataError("text 0 is only mentioned here", text=text)
    assert (refused.value.place, refused.value.text) == (None, text)
