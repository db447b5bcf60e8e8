"""One tokenizer for both sides: a joint byte-level BPE, trained on the recipe's own text.

Byte level means that every text can be encoded without an unknown token, and that decoding returns exactly the text
that was encoded. The special tokens are those of a canvas (`[CLS]`, `[SEP]`, `[PAD]`, `[MASK]`) and end-of-slot, a
separate token that the model predicts and that occurs in no text or padding.

This module knows no model and no recipe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from kermit.errors import DataError, ModelError, in_a_line
from kermit.text.tokenizer import whole_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast  # imported here because it takes a second

PAD, CLS, SEP, MASK, END_OF_SLOT = "[PAD]", "[CLS]", "[SEP]", "[MASK]", "[EOSLOT]"
SPECIAL_TOKENS = (PAD, CLS, SEP, MASK, END_OF_SLOT)
SMALLEST_VOCABULARY = 256 + len(SPECIAL_TOKENS)


def train_tokenizer(texts: Iterable[str], vocab_size: int, *, split_digits: bool = False) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on `texts`; the same texts in the same order give the same tokenizer.

    Args:
        vocab_size: total number of tokens, including special tokens and the 256 bytes.
        split_digits: make every digit a token of its own, so that a number is copied digit by digit.
    """
    if vocab_size < SMALLEST_VOCABULARY:
        raise DataError(
            f"a vocabulary of {vocab_size} is too small: bytes and special tokens take {SMALLEST_VOCABULARY}; raise it"
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
        raise DataError("no text to train a tokenizer on; give at least one file that is not empty")


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerFast:
    """Load a tokenizer from a folder, such as that of a model, or from the Hub by name."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path}: no tokenizer that transformers can load, such as a tokenizer.json next to the weights:"
            f" {in_a_line(error)}"
        ) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ModelError(f"{path}: the tokenizer {type(tokenizer).__name__} has no fast version, which is required")
    whole_texts(tokenizer)
    return tokenizer


def end_of_slot_id(tokenizer: PreTrainedTokenizerFast) -> int:
    """Return the id of end-of-slot, adding it to the tokenizer if it is missing."""
    if END_OF_SLOT not in tokenizer.get_vocab():
        tokenizer.add_special_tokens({"extra_special_tokens": [END_OF_SLOT]}, replace_extra_special_tokens=False)
    return int(tokenizer.convert_tokens_to_ids(END_OF_SLOT))


def blank_id(tokenizer: PreTrainedTokenizerFast) -> int:
    """Return the id of the blank marker, the mask token, adding it to the tokenizer if it is missing."""
    if tokenizer.mask_token_id is None:
        tokenizer.add_special_tokens({"mask_token": MASK})
    return int(tokenizer.mask_token_id)


def fingerprint(tokenizer: PreTrainedTokenizerFast) -> str:
    """Return a short hash of everything that determines how the tokenizer encodes a text."""
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()[:16]
