"""Classifiers: a trunk with new layers for a task's labels, or a finetuned model; and their inputs.

A KERMIT model sees a complete canvas, `[CLS] x [SEP]` or `[CLS] x [SEP] y [SEP]`, with its segments. Other encoders use
their tokenizer's template, or this one if the tokenizer has none. A causal model classifies the last token, so its
texts end with a separator. transformers' AutoModelForSequenceClassification can load a saved classifier. This module
does not train.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers.processors import TemplateProcessing
from tqdm import tqdm
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from kermit.data.joint_tokenizer import load_tokenizer
from kermit.errors import ModelError
from kermit.loading import lacking_in_trunk, on_device, position_limit, quietly, reading
from kermit.modeling import KermitConfig, LastTokenConfig, LastTokenForSequenceClassification
from kermit.tasks.glue.data import Example, Part
from kermit.tasks.glue.scoring import answers_of
from kermit.tasks.glue.table import GlueTask

Features = dict[str, Any]
_NUMBER = "number"  # the only label of a regression task
_HEADS = ("pre_classifier", "classifier", "score")  # names of classification layers in transformers


@dataclass(frozen=True)
class Classifier:
    """A classifier and its tokenizer; inputs have at most `max_length` tokens."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    max_length: int

    @classmethod
    def start(cls, trunk: Path, task: GlueTask, *, max_length: int, seed: int) -> Classifier:
        """Add new layers for a task's labels to a KERMIT model, a masked or causal language model, or an encoder."""
        labels = task.labels or (_NUMBER,)
        config = _load_config(
            trunk,
            num_labels=len(labels),
            id2label=dict(enumerate(labels)),
            label2id={label: number for number, label in enumerate(labels)},
            problem_type="regression" if task.is_regression else "single_label_classification",
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return cls._load(trunk, config, max_length, is_new=True)

    @classmethod
    def load(cls, folder: Path, task: GlueTask, *, max_length: int) -> Classifier:
        """Load a finetuned classifier; raise a ModelError if it has other labels."""
        config = _load_config(folder)
        labels = tuple(str(config.id2label[number]) for number in range(config.num_labels))
        if labels != (task.labels or (_NUMBER,)):
            raise ModelError(
                f"{folder} predicts {', '.join(labels)}, but {task.name} needs"
                f" {', '.join(task.labels) or 'a number'}; use a model that was finetuned for it"
            )
        return cls._load(folder, config, max_length, is_new=False)

    @classmethod
    def _load(cls, place: Path, config: Any, max_length: int, *, is_new: bool) -> Classifier:
        if is_causal(config):
            config.use_cache = False  # needed only for generation
        # transformers has no classifier for an encoder with a causal mask
        bare = is_new and is_causal(config) and type(config) in MODEL_FOR_MASKED_LM_MAPPING
        kind = AutoModel if bare else AutoModelForSequenceClassification
        with reading(place, kind.__name__), quietly():
            model, info = kind.from_pretrained(
                place, config=config, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=is_new
            )
        if inside := lacking_in_trunk(model, info):
            raise ModelError(f"{place} lacks weights of its trunk: {', '.join(inside[:5])}; use a complete checkpoint")
        if not is_new and (missing := sorted(info["missing_keys"])):
            raise ModelError(f"{place} lacks weights of its classifier: {', '.join(missing[:5])}; finetune it first")
        if is_new:
            _renew_head(model, info["missing_keys"])
        if bare:
            labels = {"id2label": config.id2label, "label2id": config.label2id, "problem_type": config.problem_type}
            model = LastTokenForSequenceClassification.from_trunk(model, **labels)
        tokenizer = load_tokenizer(place)
        add_frame(model, tokenizer)
        return cls(model, tokenizer, min(max_length, position_limit(model) or max_length))

    def encode(self, examples: Sequence[Example]) -> list[Features]:
        """Return the model inputs of each example, with its `label` if it has one.

        Texts that are too long are cut at the end; in a pair, tokens are removed from the longer text.
        """
        config = self.model.base_model.config
        typed = isinstance(self.model.config, KermitConfig)
        typed |= getattr(config, "type_vocab_size", 0) > 1 and not is_causal(config)
        found = self.tokenizer(
            [example.x for example in examples],
            None if examples[0].y is None else [example.y or "" for example in examples],
            truncation="longest_first",
            max_length=self.max_length,
            return_token_type_ids=typed,
            split_special_tokens=True,
        )
        rows = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
        for row, example in zip(rows, examples, strict=True):
            if example.label is not None:
                row["label"] = example.label
        return rows

    def logits(
        self, examples: Sequence[Example], *, batch_size: int = 64, title: str | None = None
    ) -> NDArray[np.floating]:
        """Return logits (examples, labels); `title` is the title of the progress bar, None for no bar."""
        features = self.encode([Example(example.x, example.y, None, "") for example in examples])
        order = sorted(range(len(features)), key=lambda number: len(features[number]["input_ids"]))
        collate = DataCollatorWithPadding(self.tokenizer)
        on_device(self.model)
        out = np.zeros((len(features), self.model.config.num_labels), dtype=np.float32)
        hidden = True if title is None else None
        with tqdm(total=len(features), desc=title, file=sys.stderr, disable=hidden, leave=False) as bar:
            for start in range(0, len(features), batch_size):
                rows = order[start : start + batch_size]
                batch = collate([features[row] for row in rows]).to(self.model.device)
                with torch.inference_mode():
                    out[rows] = self.model(**batch).logits.float().cpu().numpy()
                bar.update(len(rows))
        if not np.isfinite(out).all():
            raise ModelError(
                "the model's logits are not finite, probably because finetuning diverged; finetune with a lower"
                " learning rate"
            )
        return out

    def answers(self, task: GlueTask, parts: Sequence[Part], *, title: str | None = None) -> list[NDArray[np.floating]]:
        """Return the answer to each example of each part: a label's index, or a number."""
        return [answers_of(task, self.logits(part.examples, title=title)) for part in parts]

    def save(self, folder: Path) -> None:
        """Write the model and the tokenizer."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def is_causal(config: Any) -> bool:
    """Return whether a model is causal, according to its config or its class in transformers."""
    kind = type(config)
    known = kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING
    return known or isinstance(config, LastTokenConfig) or bool(getattr(config, "is_decoder", False))


def add_frame(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    """Set the tokenizer's template for the model, and a padding token that both agree on.

    A causal classifier reads the last token that is not padding, so the separator cannot be the padding token.
    """
    frame: set[str | None] = set()
    own = not is_causal(model.config) and not isinstance(model.config, KermitConfig)
    if not own or tokenizer.num_special_tokens_to_add(pair=True) == 0:
        separator, start = tokenizer.sep_token or tokenizer.eos_token, tokenizer.cls_token or tokenizer.bos_token
        if separator is None:
            raise ModelError("the tokenizer has neither a [SEP] nor an end token to end a text with; set one of them")
        begin = [] if start in (None, separator) else [start]
        frame = {*begin, separator}
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=[*begin, "$A", separator],
            pair=[*begin, "$A", separator, "$B:1", f"{separator}:1"],
            special_tokens=[(token, tokenizer.convert_tokens_to_ids(token)) for token in frame],
        )
    if tokenizer.pad_token is None or tokenizer.pad_token in frame:
        tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.base_model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.config.pad_token_id = tokenizer.pad_token_id
    tokenizer.padding_side = tokenizer.truncation_side = "right"


def _renew_head(model: PreTrainedModel, drawn: Iterable[str]) -> None:
    """Reinitialise classification layers that the checkpoint brings from another task."""
    for head in _HEADS:
        if hasattr(model, head) and not any(name.startswith(f"{head}.") for name in drawn):
            for layer in getattr(model, head).modules():
                if isinstance(layer, torch.nn.Linear):
                    torch.nn.init.normal_(layer.weight, std=getattr(model.config, "initializer_range", 0.02))
                    if layer.bias is not None:
                        torch.nn.init.zeros_(layer.bias)


def _load_config(folder: Path, **settings: Any) -> Any:
    with reading(folder):
        return AutoConfig.from_pretrained(folder, **settings)
