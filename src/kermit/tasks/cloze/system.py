"""The base class of systems that answer cloze questions.

A system encodes instances for its model and answers them in batches. An answer does not depend on the other instances.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from kermit.loading import position_limit
from kermit.tasks.cloze.instances import ClozeInstance
from kermit.tasks.cloze.layout import ClozeLayout, TextEncoder, lay_out_cloze
from kermit.text.tokenizer import decode_ids, encode_texts, word_continuations

FRAME = 3
"""Number of special tokens: [CLS], [SEP] and [SEP]."""


@dataclass(frozen=True)
class ClozeAnswer:
    """An answer, its number of tokens, sequential model calls and sequences in them, and log-probability in nats."""

    text: str
    tokens: int
    forward_passes: int
    sequences: int
    score: float


class ClozeSystem(ABC):
    """A model that fills gaps.

    Args:
        oracle_length: whether answers have the gap's number of tokens.

    Attributes:
        splits: whether the passage is split over both segments.
        limit: number of positions of the model; None if there is no limit.
        continues: (vocabulary,) bool, the tokens that continue the word on their left. White space precedes the gap
            unless it is `joined`, so an answer does not begin with one of them.
        never: (vocabulary,) bool, special tokens and rows of the embedding without a token.
    """

    name: str
    splits = True

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, *, oracle_length: bool = False
    ) -> None:
        self.model, self.tokenizer, self.oracle_length = model.eval(), tokenizer, oracle_length
        self.encoder = TextEncoder(lambda text: encode_texts(tokenizer, [text])[0])
        self.limit = position_limit(model)
        vocabulary = model.get_input_embeddings().num_embeddings
        known = word_continuations(tokenizer)[:vocabulary]
        self.continues = torch.as_tensor(np.pad(known, (0, vocabulary - len(known))), device=model.device)
        self.never = torch.arange(vocabulary, device=model.device) >= len(tokenizer)
        self.never[[number for number in tokenizer.all_special_ids if number < vocabulary]] = True

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, object]:
        """The settings that determine answers, besides the weights, as plain data."""

    @abstractmethod
    def fits(self, layout: ClozeLayout) -> bool:
        """Return whether the model has room for a layout with the longest answer."""

    @abstractmethod
    def answer(self, layouts: Sequence[ClozeLayout]) -> list[ClozeAnswer]:
        """Fill the gaps, in order."""

    def lay_out(self, instance: ClozeInstance) -> ClozeLayout | None:
        """Encode an instance; return None if it does not fit."""
        return lay_out_cloze(instance, self.encoder, self.fits, split=self.splits)


def instance_seed(seed: int, identity: str) -> int:
    """Return the seed of an instance, which does not depend on its position."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{identity}".encode()).digest()[:7], "big")


def spelled(tokenizer: PreTrainedTokenizerFast, tokens: Sequence[int], passage: str) -> str:
    """Return an answer as text: as written in the passage if it occurs there, else as the tokenizer decodes it.

    BERT's tokenizer decodes 200,000 as ``200, 000`` and U.S. as ``u. s.``, which SQuAD's script does not accept.
    """
    wanted = list(tokens)
    found = tokenizer.backend_tokenizer.encode(passage, add_special_tokens=False)
    for start in range(len(found.ids) - len(wanted) + 1 if wanted else 0):
        if found.ids[start : start + len(wanted)] == wanted:
            (begin, _), (_, end) = found.offsets[start], found.offsets[start + len(wanted) - 1]
            return passage[begin:end].strip()
    return decode_ids(tokenizer, wanted).strip()
