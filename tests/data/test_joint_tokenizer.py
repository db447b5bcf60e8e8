from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from kermit.data.joint_tokenizer import END_OF_SLOT, end_of_slot_id, fingerprint, load_tokenizer, train_tokenizer
from kermit.errors import DataError, ModelError
from kermit.text.tokenizer import decode_ids, encode_texts, word_continuations

TEXTS = ["Ein Mädchen läuft über die Straße.", "A girl runs over the street.", "die Straßen, die Straße"] * 5


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(TEXTS, 330)


@settings(max_examples=150, deadline=None)
@given(text=st.text())
def test_any_text_is_decoded_exactly(text: str) -> None:
    shared = train_tokenizer(["some words"], 262)
    (ids,) = encode_texts(shared, [text])
    assert decode_ids(shared, ids) == text


def test_split_digits_makes_every_digit_a_token() -> None:
    texts = ["In 2019 there were 2019 of 2019."] * 50
    split, whole = train_tokenizer(texts, 330, split_digits=True), train_tokenizer(texts, 330)
    (ids,) = encode_texts(split, ["In 2019, x 77"])
    digits = [token for token in split.convert_ids_to_tokens(ids) if any(map(str.isdigit, token))]
    assert digits == list("201977")
    assert decode_ids(split, ids) == "In 2019, x 77"
    assert len(encode_texts(whole, ["2019"])[0]) < 4


def test_what_looks_like_a_special_token_is_text(tokenizer: PreTrainedTokenizerFast) -> None:
    text = f"[SEP] and {END_OF_SLOT}[PAD]"
    (ids,) = encode_texts(tokenizer, [text])
    assert not set(ids) & set(tokenizer.all_special_ids)
    assert decode_ids(tokenizer, ids) == text


def test_special_tokens_differ_and_none_is_the_unknown_token(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = [tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id]
    ids.append(end_of_slot_id(tokenizer))
    assert len(set(ids)) == 5
    assert set(ids) == set(tokenizer.all_special_ids)
    assert tokenizer.unk_token is None


def test_the_same_text_gives_the_same_tokenizer_and_other_text_a_different_one() -> None:
    assert fingerprint(train_tokenizer(TEXTS, 330)) == fingerprint(train_tokenizer(TEXTS, 330))
    assert fingerprint(train_tokenizer(TEXTS, 330)) != fingerprint(train_tokenizer(TEXTS[:1], 330))


def test_saving_and_loading_changes_nothing(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert fingerprint(loaded) == fingerprint(tokenizer)
    assert end_of_slot_id(loaded) == end_of_slot_id(tokenizer)
    assert loaded.all_special_ids == tokenizer.all_special_ids
    assert decode_ids(loaded, encode_texts(loaded, ["Straße ."])[0]) == "Straße ."


def test_a_tokenizer_without_end_of_slot_is_given_one() -> None:
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    plain = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")
    assert end_of_slot_id(plain) == 2
    assert len(plain) == 3


def test_adding_end_of_slot_does_not_displace_other_special_tokens() -> None:
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    plain = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", extra_special_tokens=["<who>"])
    assert set(plain.all_special_ids) == {0, 2}
    assert end_of_slot_id(plain) == 3
    assert set(plain.all_special_ids) == {0, 2, 3}


@pytest.mark.parametrize(
    ("token", "continues"),
    [("Ġdie", False), ("e", True), (".", False), ("Ã", True), ("¼", True), ("3", True), ("Ġ", False), ("â", False)],
)
def test_byte_level_tokens_that_continue_a_word_are_found(
    tokenizer: PreTrainedTokenizerFast, token: str, continues: bool
) -> None:
    flags = word_continuations(tokenizer)
    assert flags.shape == (len(tokenizer),)
    assert bool(flags[tokenizer.get_vocab()[token]]) is continues


def test_no_special_token_continues_a_word(tokenizer: PreTrainedTokenizerFast) -> None:
    assert not word_continuations(tokenizer)[tokenizer.all_special_ids].any()


def test_wordpiece_and_metaspace_tokens_that_continue_a_word_are_found() -> None:
    pieces = Tokenizer(models.WordPiece({"[UNK]": 0, "play": 1, "##ing": 2, "##!": 3, ".": 4}, unk_token="[UNK]"))
    wordpiece = PreTrainedTokenizerFast(tokenizer_object=pieces, unk_token="[UNK]")
    assert word_continuations(wordpiece).tolist() == [False, False, True, True, False]
    spaced = Tokenizer(models.WordLevel({"[UNK]": 0, "▁play": 1, "ing": 2, ".": 3}, unk_token="[UNK]"))
    spaced.pre_tokenizer = pre_tokenizers.Metaspace()
    metaspace = PreTrainedTokenizerFast(tokenizer_object=spaced, unk_token="[UNK]")
    assert word_continuations(metaspace).tolist() == [False, False, True, False]


def test_a_vocabulary_that_is_too_small_and_missing_text_are_errors() -> None:
    with pytest.raises(DataError, match="261"):
        train_tokenizer(TEXTS, 200)
    with pytest.raises(DataError, match="no text"):
        train_tokenizer([], 300)


@pytest.mark.parametrize("broken", ["half of a pair: \ud83d", None, 5])
def test_invalid_text_is_an_error(tokenizer: PreTrainedTokenizerFast, broken: object) -> None:
    with pytest.raises(DataError, match="texts must be strings that can be encoded in UTF-8"):
        encode_texts(tokenizer, ["fine", broken])  # type: ignore[list-item]
    assert encode_texts(tokenizer, ["[CLS]"])[0] != [tokenizer.cls_token_id]  # as before


def test_a_folder_without_a_tokenizer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no tokenizer"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_saved_with_padding_and_truncation_encodes_whole_texts(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["one two three"], 280)
    tokenizer.backend_tokenizer.enable_padding(length=8)
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.save_pretrained(tmp_path)
    for cut in (tokenizer, load_tokenizer(tmp_path)):
        assert [decode_ids(cut, ids) for ids in encode_texts(cut, ["one two three one two", "one"])] == [
            "one two three one two",
            "one",
        ]
        assert len(encode_texts(cut, ["q"])[0]) == 1


def test_added_tokens_are_classified_as_continuing_a_word_or_not() -> None:
    pieces = Tokenizer(models.WordPiece({"[UNK]": 0, "play": 1, "##ing": 2}, unk_token="[UNK]"))
    wordpiece = PreTrainedTokenizerFast(tokenizer_object=pieces, unk_token="[UNK]")
    assert word_continuations(wordpiece).tolist() == [False, False, True]
    wordpiece.add_tokens(["##ed"])
    assert word_continuations(wordpiece).tolist() == [False, False, True, True]
    assert word_continuations(wordpiece.backend_tokenizer).tolist() == [False, False, True, True]


def test_hash_signs_in_the_text_do_not_turn_a_byte_level_tokenizer_into_wordpiece() -> None:
    headed = train_tokenizer(["### one", "### two", "###### three and play"] * 20, 330)
    assert any(token.startswith("##") and len(token) > 2 for token in headed.get_vocab())
    flags = word_continuations(headed)
    assert bool(flags[headed.get_vocab()["e"]])
    assert not flags[[index for token, index in headed.get_vocab().items() if token.startswith("##")]].any()
