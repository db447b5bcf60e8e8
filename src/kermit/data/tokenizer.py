"""One tokenizer for both sides: a joint byte-level BPE, trained from the recipe's own text.

Byte level means that every text can be encoded without an unknown token, and that decoding returns exactly the text
that was encoded. The special tokens are the canvas's (`[CLS]`, `[SEP]`, `[PAD]`, `[MASK]`) and end-of-slot, a token of
its own that the model predicts and that no text or padding ever holds.

This module knows no model and no recipe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from tokenizers import Encoding, Tokenizer, decoders, models, pre_tokenizers, trainers

from kermit.errors import DataError, ModelError, in_a_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast  # imported where it is used: it takes a second

PAD, CLS, SEP, MASK, END_OF_SLOT = "[PAD]", "[CLS]", "[SEP]", "[MASK]", "[EOSLOT]"
SPECIAL_TOKENS = (PAD, CLS, SEP, MASK, END_OF_SLOT)
SMALLEST_VOCABULARY = 256 + len(SPECIAL_TOKENS)

_BYTE_LEVEL_SPACE = "Ġ"
_METASPACE = "▁"
_PUNCTUATION_LEAD = 0xE2  # the first byte of dashes, curly quotes and the like


def train_tokenizer(texts: Iterable[str], vocab_size: int, *, split_digits: bool = False) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on `texts`; the same texts in the same order give the same tokenizer.

    Args:
        texts: the training text, line by line or paragraph by paragraph; read once.
        vocab_size: total number of tokens, including special tokens and the 256 bytes.
        split_digits: make every digit a token of its own, so that a number is copied digit by digit.
    """
    if vocab_size < SMALLEST_VOCABULARY:
        raise DataError(
            f"a vocabulary of {vocab_size} is too small: the bytes and the special tokens are already"
            f" {SMALLEST_VOCABULARY}; ask for more"
        )
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level]) if split_digits else byte_level
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_not_empty(texts), trainer=trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        cls_token=CLS,
        sep_token=SEP,
        mask_token=MASK,
        extra_special_tokens=[END_OF_SLOT],
        clean_up_tokenization_spaces=False,
        model_max_length=1_000_000,
    )


def _not_empty(texts: Iterable[str]) -> Iterator[str]:
    empty = True
    for text in texts:
        empty = False
        yield text
    if empty:
        raise DataError("there is no text to train a tokenizer on; name at least one file that is not empty")


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerFast:
    """Load a tokenizer from a folder (beside a model's weights, say) or from the Hub by name."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path} holds no tokenizer that transformers can load; it is saved beside the weights, as tokenizer.json:"
            f" {in_a_line(error)}"
        ) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ModelError(f"{path}: the tokenizer {type(tokenizer).__name__} has no fast version, which is needed here")
    return _whole_texts(tokenizer)


def _whole_texts(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Return the tokenizer without the padding and truncation that some are saved with."""
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def end_of_slot_id(tokenizer: PreTrainedTokenizerFast) -> int:
    """Return the id of end-of-slot; it is added to a tokenizer that lacks it."""
    if END_OF_SLOT not in tokenizer.get_vocab():
        tokenizer.add_special_tokens({"extra_special_tokens": [END_OF_SLOT]}, replace_extra_special_tokens=False)
    return int(tokenizer.convert_tokens_to_ids(END_OF_SLOT))


def blank_id(tokenizer: PreTrainedTokenizerFast) -> int:
    """Return the id of the token that marks a blank: the mask token, which is added if it is missing."""
    if tokenizer.mask_token_id is None:
        tokenizer.add_special_tokens({"mask_token": MASK})
    return int(tokenizer.mask_token_id)


def encode_texts(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> list[list[int]]:
    """Encode texts without special tokens; what looks like a special token in a text is encoded as text.

    Raises:
        DataError: something is not a string, or holds half of a surrogate pair.
    """
    return [encoding.ids for encoding in _encodings(tokenizer, texts)]


def token_ends(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """Return where in the text each of its tokens ends."""
    (encoding,) = _encodings(tokenizer, [text])
    return [end for _, end in encoding.offsets]


def _encodings(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> list[Encoding]:
    backend = _whole_texts(tokenizer).backend_tokenizer
    special_as_text = backend.encode_special_tokens
    backend.encode_special_tokens = True
    try:
        return list(backend.encode_batch(texts, add_special_tokens=False))
    except TypeError as error:
        raise DataError("a text must be a string that can be written in UTF-8; one of these is not") from error
    finally:
        backend.encode_special_tokens = special_as_text


def decode_ids(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> str:
    """Return the text of ids, without special tokens and without clean-up of spaces."""
    return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def fingerprint(tokenizer: PreTrainedTokenizerFast) -> str:
    """Return a short hash of everything that decides how the tokenizer encodes a text."""
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()[:16]


def word_continuations(tokenizer: PreTrainedTokenizerFast) -> torch.Tensor:
    """Return whether each token continues the word on its left.

    In a byte-level vocabulary that is a token without a leading space whose first character is a letter or a digit
    (or a byte of one: umlauts are two bytes); in WordPiece one with `##`; with Metaspace one without the `▁` that
    starts with a letter or a digit. Special tokens never continue a word.

    It is computed once per tokenizer, and again if the tokenizer has grown.

    Returns:
        (vocab,) booleans, by token id; do not modify.
    """
    size, continues = _continuations.get(tokenizer, (0, None))
    if continues is None or size != len(tokenizer):
        continues = _word_continuations(tokenizer)
        _continuations[tokenizer] = len(tokenizer), continues
    return continues


_continuations: WeakKeyDictionary[PreTrainedTokenizerFast, tuple[int, torch.Tensor]] = WeakKeyDictionary()


def _word_continuations(tokenizer: PreTrainedTokenizerFast) -> torch.Tensor:
    vocabulary = tokenizer.get_vocab()
    metaspace = any(token.startswith(_METASPACE) for token in vocabulary)
    prefix = getattr(tokenizer.backend_tokenizer.model, "continuing_subword_prefix", None)  # a heading of ## is none
    space = _METASPACE if metaspace else _BYTE_LEVEL_SPACE

    def continues(token: str) -> bool:
        if prefix:
            return token.startswith(prefix)
        return not token.startswith(space) and (token[0].isalnum() if metaspace else _starts_word(token))

    flags = [False] * (max(vocabulary.values()) + 1)
    specials = set(tokenizer.all_special_ids)
    for token, index in vocabulary.items():
        flags[index] = index not in specials and bool(token) and continues(token)
    return torch.tensor(flags)


def _starts_word(token: str) -> bool:
    """Whether a byte-level token begins with a letter, a digit, or a part of one's UTF-8 (an umlaut is two bytes)."""
    spelled = bytes(_byte_of(symbol) for symbol in token)
    whole = spelled.decode("utf-8", errors="ignore")
    if whole and spelled.startswith(whole[0].encode()):
        return whole[0].isalnum()
    return spelled[0] != _PUNCTUATION_LEAD


def _byte_of(symbol: str) -> int:
    """The byte that a symbol of the byte-level alphabet stands for.

    The alphabet writes the printable Latin-1 characters as themselves and the other bytes, in order, from U+0100 on.
    """
    code = ord(symbol)
    place = code - 0x100
    if place < 0:
        return code
    return _UNPRINTABLE[place] if place < len(_UNPRINTABLE) else 0xFF


_UNPRINTABLE = [byte for byte in range(256) if not (0x21 <= byte < 0x7F or 0xA1 <= byte < 0xAD or byte >= 0xAE)]
