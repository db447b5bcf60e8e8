"""The interface of systems that answer cloze questions.

A system encodes an instance for its model, and answers many at once. An answer does not depend on the other instances.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from kermit.canvas.arrays import Booleans
from kermit.tasks.cloze.instances import ClozeInstance
from kermit.tasks.cloze.layout import ClozeLayout, TextEncoder
from kermit.text.tokenizer import decode_ids, encode_texts, word_continuations

CALL_TOKENS = 2**14
CPU_CALL_TOKENS = 2**11
"""Maximum number of tokens of a forward pass, including padding and cache; smaller on a CPU, so that they fit its
caches."""


@dataclass(frozen=True)
class ClozeAnswer:
    """An answer: its tokens, consecutive calls of the model and sequences in them, and its log-probability in nats."""

    text: str
    tokens: int
    forward_passes: int
    sequences: int
    score: float


class ClozeSystem(Protocol):
    """A model that fills gaps."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast

    @property
    def name(self) -> str:
        """Its name on the command line."""
        ...

    @property
    def settings(self) -> Mapping[str, object]:
        """What decides answers besides the weights, as plain data."""
        ...

    def lay_out(self, instance: ClozeInstance) -> ClozeLayout | None:
        """Encode an instance; None if it does not fit."""
        ...

    def answer(self, layouts: Sequence[ClozeLayout]) -> list[ClozeAnswer]:
        """Fill the gaps, in order."""
        ...


def call_tokens(model: PreTrainedModel) -> int:
    """Return the maximum number of tokens of a forward pass on the model's device."""
    return CPU_CALL_TOKENS if model.device.type == "cpu" else CALL_TOKENS


def in_calls(sizes: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield numbers by ascending size, in parts whose count times largest size is within the budget, or of one."""
    part: list[int] = []
    for number in sorted(range(len(sizes)), key=lambda number: sizes[number]):
        if part and (len(part) + 1) * sizes[number] > budget:
            yield part
            part = []
        part.append(number)
    if part:
        yield part


def instance_seed(seed: int, identity: str) -> int:
    """Return the seed of one instance, whatever its position."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{identity}".encode()).digest()[:7], "big")


def text_encoder(tokenizer: PreTrainedTokenizerFast) -> TextEncoder:
    """Return the encoder of a tokenizer."""
    return TextEncoder(lambda text: encode_texts(tokenizer, [text])[0])


def spelled(tokenizer: PreTrainedTokenizerFast, tokens: Sequence[int], passage: str) -> str:
    """Return an answer as text: as in the passage if it has these tokens in a row, else as the tokenizer decodes it.

    BERT's tokenizer decodes 200,000 as ``200, 000`` and U.S. as ``u. s.``, which SQuAD's script does not accept.
    """
    wanted = list(tokens)
    found = tokenizer.backend_tokenizer.encode(passage, add_special_tokens=False)
    for start in range(len(found.ids) - len(wanted) + 1 if wanted else 0):
        if found.ids[start : start + len(wanted)] == wanted:
            (begin, _), (_, end) = found.offsets[start], found.offsets[start + len(wanted) - 1]
            return passage[begin:end].strip()
    return decode_ids(tokenizer, wanted).strip()


def continuing_tokens(tokenizer: PreTrainedTokenizerFast, vocabulary: int) -> Booleans:
    """Return (vocabulary,) bool, the tokens that continue the word on their left.

    The gap is bounded by white space, so no answer may begin with one, unless the gap is joined.
    """
    known = word_continuations(tokenizer)[:vocabulary]
    return np.pad(known, (0, vocabulary - len(known)))


def never_generated(tokenizer: PreTrainedTokenizerFast, vocabulary: int) -> Tensor:
    """Return (vocabulary,) bool, special tokens and rows of the embedding without a token."""
    never = torch.arange(vocabulary) >= len(tokenizer)
    never[[number for number in tokenizer.all_special_ids if number < vocabulary]] = True
    return never
