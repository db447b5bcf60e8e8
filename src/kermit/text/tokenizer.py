"""Convert texts to tokens and back, with a tokenizer of the `tokenizers` library or a fast one of transformers.

This module knows no model and no recipe; `kermit.data.joint_tokenizer` trains tokenizers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
from tokenizers import Encoding, Tokenizer
from tokenizers.decoders import ByteLevel

from kermit.canvas.arrays import Booleans
from kermit.errors import DataError, ModelError, in_a_line

_DIGITS = "0123456789"
_BYTE_LEVEL_SPACE = "Ġ"
_METASPACE = "▁"
_PUNCTUATION_LEAD = "\xe2"  # stands for the first byte of dashes, curly quotes and the like
_INCOMPLETE = "\ufffd"  # what the decoder makes of a part of a character
_BYTE_LEVEL = ByteLevel()


class FastTokenizer(Protocol):
    """A fast tokenizer of transformers."""

    @property
    def backend_tokenizer(self) -> Tokenizer:
        """The tokenizer inside."""


AnyTokenizer = Tokenizer | FastTokenizer


def read_tokenizer(folder: Path) -> Tokenizer:
    """Read the tokenizer of a model's folder."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelError(f"{folder} has no tokenizer.json; copy it from the folder that the model was trained in")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises bare exceptions
        raise ModelError(f"{file}: cannot read the tokenizer: {in_a_line(error)}") from error
    return whole_texts(tokenizer)


def backend_of(tokenizer: AnyTokenizer) -> Tokenizer:
    """Return the tokenizer itself, or the one inside a tokenizer of transformers."""
    return tokenizer if isinstance(tokenizer, Tokenizer) else tokenizer.backend_tokenizer


def whole_texts(tokenizer: AnyTokenizer) -> Tokenizer:
    """Return the inner tokenizer with padding and truncation disabled, which some are saved with."""
    backend = backend_of(tokenizer)
    backend.no_padding()
    backend.no_truncation()
    return backend


def encode_texts(tokenizer: AnyTokenizer, texts: list[str]) -> list[list[int]]:
    """Return the ids of each text without special tokens; text that looks like a special token is encoded as text."""
    return [encoding.ids for encoding in _encodings(tokenizer, texts)]


def _encodings(tokenizer: AnyTokenizer, texts: list[str]) -> list[Encoding]:
    backend = whole_texts(tokenizer)
    special_as_text = backend.encode_special_tokens
    backend.encode_special_tokens = True
    try:
        if len(texts) == 1:  # avoid the threads of a batch
            return [backend.encode(texts[0], add_special_tokens=False)]
        return list(backend.encode_batch(texts, add_special_tokens=False))
    except TypeError as error:
        raise DataError("texts must be strings that can be encoded in UTF-8; at least one is not") from error
    finally:
        backend.encode_special_tokens = special_as_text


def decode_ids(tokenizer: AnyTokenizer, ids: list[int]) -> str:
    """Return the text of ids without special tokens and without cleanup of spaces."""
    return str(backend_of(tokenizer).decode(ids, skip_special_tokens=True))


def word_continuations(tokenizer: AnyTokenizer) -> Booleans:
    """Return whether each token would be glued to the word on its left.

    In a byte-level vocabulary, that is a token without a leading space whose first character is a letter or digit, or a
    byte of one (umlauts are two bytes); in WordPiece, a token with `##`; with Metaspace, a token without `▁` that
    starts with a letter or digit. Special tokens never continue a word.

    Returns:
        (vocab,) booleans, by token id.
    """
    backend = backend_of(tokenizer)
    vocabulary = backend.get_vocab()
    metaspace = any(token.startswith(_METASPACE) for token in vocabulary)
    prefix = getattr(backend.model, "continuing_subword_prefix", None)
    space = _METASPACE if metaspace else _BYTE_LEVEL_SPACE

    def continues(token: str) -> bool:
        if prefix:
            return token.startswith(prefix)
        return not token.startswith(space) and (token[0].isalnum() if metaspace else _starts_word(token))

    flags = [False] * (max(vocabulary.values()) + 1)
    specials = {index for index, token in backend.get_added_tokens_decoder().items() if token.special}
    for token, index in vocabulary.items():
        flags[index] = index not in specials and bool(token) and continues(token)
    return np.array(flags)


def digit_tokens(tokenizer: AnyTokenizer) -> dict[int, int] | None:
    """Return the digit of each token that writes one; None if any token holds a digit and more."""
    backend = backend_of(tokenizer)
    specials = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    with_digits = {
        token: index
        for token, index in backend.get_vocab().items()
        if token not in specials and any(sign in _DIGITS for sign in token)
    }
    if any(len(token) > 1 for token in with_digits):
        return None
    return {index: int(token) for token, index in with_digits.items()}


def _starts_word(token: str) -> bool:
    """Return whether a byte-level token begins with a letter, a digit, or part of the UTF-8 encoding of one."""
    first = str(_BYTE_LEVEL.decode([token]))[0]
    return token[0] != _PUNCTUATION_LEAD if first == _INCOMPLETE else first.isalnum()
