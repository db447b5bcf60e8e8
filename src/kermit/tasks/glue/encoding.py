"""Texts and pairs as the trunk wants to see them.

A KERMIT model sees a complete canvas, `[CLS] x [SEP]` or `[CLS] x [SEP] y [SEP]`, with its segments. Another encoder
gets what its own tokenizer makes of a pair, or the same frame where the tokenizer has no template. A causal model reads
its answer at the last token, so there the pair ends with a separator. Too long a text loses tokens from its end, of a
pair always the longer one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from kermit.errors import ModelError
from kermit.modeling import KermitConfig, KermitForSequenceClassification
from kermit.modeling.trunk import first_position
from kermit.tasks.glue.data import Example
from kermit.tasks.glue.reading import is_causal
from kermit.text.tokenizer import encode_texts

logger = logging.getLogger(__name__)

Features = dict[str, Any]
Lengths = NDArray[np.int64]


@dataclass(frozen=True)
class Frame:
    """The special tokens around texts: one at the start, unless it is None, and one after each text."""

    start: int | None
    separator: int

    @classmethod
    def of(cls, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Frame | None:
        """The frame that a model wants, or None where its tokenizer has a template of its own.

        Raises:
            ModelError: the tokenizer has no token to separate texts with.
        """
        if isinstance(model.config, KermitConfig):
            return cls(model.config.cls_token_id, model.config.sep_token_id)
        if not is_causal(model.config) and tokenizer.num_special_tokens_to_add(pair=True) > 0:
            return None
        separator = tokenizer.eos_token_id if tokenizer.sep_token_id is None else tokenizer.sep_token_id
        start = tokenizer.bos_token_id if tokenizer.cls_token_id is None else tokenizer.cls_token_id
        if separator is None:
            raise ModelError("the tokenizer has neither a [SEP] nor an end token to put after a text; set one of them")
        return cls(None if start == separator else start, separator)

    def size(self, texts: int) -> int:
        """How many tokens the frame of one or two texts has."""
        return texts + (self.start is not None)


@dataclass(frozen=True)
class TextEncoder:
    """Examples to what the model's forward takes.

    Attributes:
        tokenizer: of the model.
        frame: the special tokens; None for the tokenizer's own template.
        max_length: the most tokens of a whole input, frame included.
        max_text_length: the most tokens of a single text, where positions restart with each.
        has_token_types: whether the trunk tells the texts of a pair apart by their types.
    """

    tokenizer: PreTrainedTokenizerFast
    frame: Frame | None
    max_length: int
    max_text_length: int | None
    has_token_types: bool

    @classmethod
    def of(cls, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, max_length: int) -> TextEncoder:
        """What suits a model; `max_length` is cut to the number of its positions."""
        frame = Frame.of(model, tokenizer)
        if isinstance(model, KermitForSequenceClassification):
            positions, restarts, typed = model.kermit.max_positions, model.config.positions == "restart", True
        else:
            config = model.base_model.config
            limit = getattr(config, "max_position_embeddings", None)
            positions = None if limit is None else limit - first_position(model.base_model)
            restarts = False
            typed = getattr(config, "type_vocab_size", 0) > 1 and not is_causal(config)
        max_text_length = positions - 2 if restarts and positions is not None else None
        if positions is not None and not restarts:
            max_length = min(max_length, positions)
        if max_length < 4:
            raise ModelError(f"a length of {max_length} tokens leaves no room for two texts; allow at least 4")
        return cls(tokenizer, frame, max_length, max_text_length, typed)

    def encode(self, examples: Sequence[Example]) -> list[Features]:
        """`input_ids`, `attention_mask`, `token_type_ids` where the trunk has them, and `label`; one for each."""
        rows = self._by_template(examples) if self.frame is None else self._in_frame(self.frame, examples)
        for row, example in zip(rows, examples, strict=True):
            if example.label is not None:
                row["label"] = example.label
        return rows

    def _by_template(self, examples: Sequence[Example]) -> list[Features]:
        if not examples:
            return []
        x = [example.x for example in examples]
        y = None if examples[0].y is None else [example.y or "" for example in examples]
        found = self.tokenizer(
            x, y, truncation="longest_first", max_length=self.max_length, return_token_type_ids=self.has_token_types
        )
        return [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]

    def _in_frame(self, frame: Frame, examples: Sequence[Example]) -> list[Features]:
        sides = [encode_texts(self.tokenizer, [example.x for example in examples])]
        if examples and examples[0].y is not None:
            sides.append(encode_texts(self.tokenizer, [example.y or "" for example in examples]))
        lengths = np.array([[len(text) for text in side] for side in sides], dtype=np.int64)
        kept = longest_first(lengths, self.max_length - frame.size(len(sides)))
        if self.max_text_length is not None:
            kept = np.minimum(kept, self.max_text_length)
        if cut := int((kept < lengths).any(0).sum()):
            logger.info("%d of %d texts cut to %d tokens", cut, len(examples), self.max_length)
        rows = []
        for number in range(len(examples)):
            ids = [] if frame.start is None else [frame.start]
            types = [0] * len(ids)
            for segment, side in enumerate(sides):
                text = side[number][: kept[segment, number]]
                ids += [*text, frame.separator]
                types += [segment] * (len(text) + 1)
            row: Features = {"input_ids": ids, "attention_mask": [1] * len(ids)}
            rows.append(row | {"token_type_ids": types} if self.has_token_types else row)
        return rows


def longest_first(lengths: Lengths, budget: int) -> Lengths:
    """How many tokens each text keeps when the longer of a pair is cut until both fit.

    Args:
        lengths: (texts, examples), with one or two texts an example.
        budget: the most tokens of an example.

    Returns:
        (texts, examples). Of an odd budget that is shared the longer text gets the odd token, the first where both are
        as long.
    """
    if len(lengths) == 1:
        return np.minimum(lengths, budget)
    shorter, longer = lengths.min(0), lengths.max(0)
    kept_shorter = np.minimum(shorter, np.maximum(budget // 2, budget - longer))
    kept_longer = np.minimum(longer, budget - kept_shorter)
    first_is_longer = lengths[0] >= lengths[1]
    kept: Lengths = np.where(first_is_longer, (kept_longer, kept_shorter), (kept_shorter, kept_longer))
    return kept


def give_padding(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    """Make sure of a padding token that no framed text holds, and that model and tokenizer agree on it.

    A causal classifier takes the last token that is no padding; were that the separator, it would be passed over.
    """
    frame = Frame.of(model, tokenizer)
    in_use = () if frame is None else (frame.start, frame.separator)
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id in in_use:
        tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.base_model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.config.pad_token_id = tokenizer.pad_token_id
    tokenizer.padding_side = "right"
