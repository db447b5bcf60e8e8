"""Texts and pairs as input of a trunk.

A KERMIT model sees a complete canvas, `[CLS] x [SEP]` or `[CLS] x [SEP] y [SEP]`, with its segments. Another encoder
gets its own tokenizer's template for pairs, or the same frame if the tokenizer has none. A causal model is read at the
last token, so its pairs end with a separator. Texts that are too long lose tokens at the end, in a pair always from the
longer one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from kermit.errors import ModelError
from kermit.loading import position_limit
from kermit.modeling import KermitConfig, KermitForSequenceClassification, LastTokenConfig
from kermit.tasks.glue.data import Example
from kermit.text.tokenizer import encode_texts

logger = logging.getLogger(__name__)

Features = dict[str, Any]
Lengths = NDArray[np.int64]


def is_causal(config: Any) -> bool:
    """Whether a model reads only from left to right: its config or its class in transformers says so."""
    kind = type(config)
    known = kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING
    return known or isinstance(config, LastTokenConfig) or bool(getattr(config, "is_decoder", False))


@dataclass(frozen=True)
class Frame:
    """The special tokens around texts: one at the start, unless it is None, and one after each text."""

    start: int | None
    separator: int

    @classmethod
    def of(cls, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Frame | None:
        """Return the frame for a model, or None if its tokenizer has a template."""
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
        """Return the number of tokens of the frame of one or two texts."""
        return texts + (self.start is not None)


@dataclass(frozen=True)
class ExampleEncoder:
    """Turns examples into the inputs of a model.

    Attributes:
        tokenizer: of the model.
        frame: the special tokens; None for the tokenizer's own template.
        max_length: maximum number of tokens of an input, frame included.
        max_text_length: maximum number of tokens of a single text, if positions restart with each.
        has_token_types: whether the trunk has token types for the texts of a pair.
    """

    tokenizer: PreTrainedTokenizerFast
    frame: Frame | None
    max_length: int
    max_text_length: int | None
    has_token_types: bool

    @classmethod
    def of(cls, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, max_length: int) -> ExampleEncoder:
        """Return the encoder for a model; `max_length` is limited by its positions."""
        frame = Frame.of(model, tokenizer)
        positions = position_limit(model)
        if isinstance(model, KermitForSequenceClassification):
            restarts, typed = model.config.positions == "restart", True
        else:
            config = model.base_model.config
            restarts, typed = False, getattr(config, "type_vocab_size", 0) > 1 and not is_causal(config)
        max_text_length = positions - 2 if restarts and positions is not None else None
        if positions is not None and not restarts:
            max_length = min(max_length, positions)
        if max_length < 4:
            raise ModelError(f"a length of {max_length} tokens is too short for two texts; allow at least 4")
        return cls(tokenizer, frame, max_length, max_text_length, typed)

    def encode(self, examples: Sequence[Example]) -> list[Features]:
        """Return `input_ids`, `attention_mask`, `token_type_ids` if the trunk has them, and `label` of each example."""
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
    """Return the number of tokens that each text keeps when the longer of a pair is cut until both fit the budget.

    `lengths` and the result are (texts, examples), with one or two texts per example. The longer text, or the first of
    equals, gets the odd token of a budget that is shared.
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
    """Ensure a padding token that no framed text holds, and that model and tokenizer agree on it.

    A causal classifier reads the last token that is not padding, so the separator must not be the padding token.
    """
    frame = Frame.of(model, tokenizer)
    in_use = () if frame is None else (frame.start, frame.separator)
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id in in_use:
        tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.base_model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.config.pad_token_id = tokenizer.pad_token_id
    tokenizer.padding_side = "right"
