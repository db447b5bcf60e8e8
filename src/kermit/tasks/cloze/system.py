"""What answers cloze questions: the seam between the three systems and everything that uses them.

A system lays an instance out as its model wants it, and answers many layouts at once. What it answers to one does not
depend on the others.
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
from kermit.tasks.cloze.layout import Layout, TextEncoder
from kermit.text.tokenizer import decode_ids, encode_texts, word_continuations

CALL_TOKENS = 2**14
PROCESSOR_CALL_TOKENS = 2**11
"""The most tokens of a forward pass, padding and what is cached included; on a processor, whose arithmetic a few texts
keep busy, no more than its caches have room for."""


@dataclass(frozen=True)
class ClozeAnswer:
    """What a system put into a gap.

    Args:
        text: the answer.
        tokens: how many tokens it has.
        forward_passes: how many calls of the model, one after the other, it took.
        sequences: how many sequences went through the model in those calls.
        score: the log-probability by which it was chosen, in nats.
    """

    text: str
    tokens: int
    forward_passes: int
    sequences: int
    score: float


class ClozeSystem(Protocol):
    """A model with a way of filling gaps."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        ...

    @property
    def settings(self) -> Mapping[str, object]:
        """What decides its answers beside the weights, as plain data."""
        ...

    def lay_out(self, instance: ClozeInstance) -> Layout | None:
        """An instance as token ids; None where it cannot be made to fit."""
        ...

    def answer(self, layouts: Sequence[Layout]) -> list[ClozeAnswer]:
        """Fill the gaps, in order."""
        ...


def call_tokens(model: PreTrainedModel) -> int:
    """The most tokens of a forward pass, by where the model computes."""
    return PROCESSOR_CALL_TOKENS if model.device.type == "cpu" else CALL_TOKENS


def in_calls(sizes: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Numbers by ascending size, in parts whose count times largest size is within the budget, or of one."""
    part: list[int] = []
    for number in sorted(range(len(sizes)), key=lambda number: sizes[number]):
        if part and (len(part) + 1) * sizes[number] > budget:
            yield part
            part = []
        part.append(number)
    if part:
        yield part


def instance_seed(seed: int, identity: str) -> int:
    """A seed for the draws of one instance, wherever it stands among the others."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{identity}".encode()).digest()[:7], "big")


def text_encoder(tokenizer: PreTrainedTokenizerFast) -> TextEncoder:
    """A tokenizer's way with the parts of an instance."""
    return TextEncoder(lambda text: encode_texts(tokenizer, [text])[0])


def spelled(tokenizer: PreTrainedTokenizerFast, tokens: Sequence[int], passage: str) -> str:
    """An answer as text: as the passage spells it where these tokens stand there in a row, else as the tokenizer does.

    BERT's tokenizer gives back ``200, 000`` for 200,000 and ``u. s.`` for U.S., which SQuAD's script takes for other
    words; its answers are parts of the passage.
    """
    wanted = list(tokens)
    found = tokenizer.backend_tokenizer.encode(passage, add_special_tokens=False)
    for start in range(len(found.ids) - len(wanted) + 1 if wanted else 0):
        if found.ids[start : start + len(wanted)] == wanted:
            (begin, _), (_, end) = found.offsets[start], found.offsets[start + len(wanted) - 1]
            return passage[begin:end].strip()
    return decode_ids(tokenizer, wanted).strip()


def continuing_tokens(tokenizer: PreTrainedTokenizerFast, vocabulary: int) -> Booleans:
    """(vocabulary,) bool, the tokens that would continue the word on their left.

    The gap is bounded by white space, so no system may begin its answer with one, unless the gap is joined.
    """
    known = word_continuations(tokenizer)[:vocabulary]
    return np.pad(known, (0, vocabulary - len(known)))


def never_generated(tokenizer: PreTrainedTokenizerFast, vocabulary: int) -> Tensor:
    """(vocabulary,) bool, the special tokens and the rows of an embedding that no token has."""
    never = torch.arange(vocabulary) >= len(tokenizer)
    never[[number for number in tokenizer.all_special_ids if number < vocabulary]] = True
    return never


def position_offset(model: PreTrainedModel) -> int:
    """The number of the first position: RoBERTa and its kin count from their padding index."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return int(module.padding_idx) + 1
    return 0


def position_limit(model: PreTrainedModel) -> int | None:
    """How many tokens a language model has positions for, or None if there is no limit."""
    limit: int | None = getattr(model.config, "max_position_embeddings", None)
    return None if limit is None or limit < 1 else limit - position_offset(model)
