"""Classifiers: a trunk with new layers for a task's labels, or a finetuned model.

A saved classifier is loaded by transformers' AutoModelForSequenceClassification. This module does not train.
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
from tqdm import tqdm
from transformers import (
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
from kermit.loading import lacking_in_trunk, on_device, quietly, reading
from kermit.modeling import LastTokenForSequenceClassification
from kermit.tasks.glue.data import Example, Part
from kermit.tasks.glue.framing import ExampleEncoder, give_padding, is_causal
from kermit.tasks.glue.scoring import answers_of
from kermit.tasks.glue.table import GlueTask

_NUMBER = "number"  # the only label of a regression task
_HEADS = ("pre_classifier", "classifier", "score")  # names of the layers for labels in transformers


@dataclass(frozen=True)
class Classifier:
    """A model that classifies, with its tokenizer and its encoder of examples."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    encoder: ExampleEncoder

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
        """Load a finetuned classifier; one for other labels is a ModelError."""
        config = _load_config(folder)
        labels = tuple(str(config.id2label[number]) for number in range(config.num_labels))
        if labels != (task.labels or (_NUMBER,)):
            raise ModelError(
                f"{folder} answers {', '.join(labels)}, but {task.name} asks for"
                f" {', '.join(task.labels) or 'a number'}; name a model that was finetuned for it"
            )
        return cls._load(folder, config, max_length, is_new=False)

    @classmethod
    def _load(cls, place: Path, config: Any, max_length: int, *, is_new: bool) -> Classifier:
        if is_causal(config):
            config.use_cache = False  # only for generating
        # transformers has no classifier for an encoder with a causal mask
        bare = is_new and is_causal(config) and type(config) in MODEL_FOR_MASKED_LM_MAPPING
        kind = AutoModel if bare else AutoModelForSequenceClassification
        with reading(place, kind.__name__), quietly():
            model, info = kind.from_pretrained(
                place,
                config=config,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=is_new,
            )
        if inside := lacking_in_trunk(model, info):
            raise ModelError(f"{place} lacks weights of its trunk: {', '.join(inside[:5])}")
        if not is_new and (missing := sorted(info["missing_keys"])):
            raise ModelError(f"{place} lacks weights of its classifier: {', '.join(missing[:5])}")
        if is_new:
            _renew_head(model, info["missing_keys"])
        if bare:
            labels = {"id2label": config.id2label, "label2id": config.label2id, "problem_type": config.problem_type}
            model = LastTokenForSequenceClassification.from_trunk(model, **labels)
        tokenizer = load_tokenizer(place)
        give_padding(model, tokenizer)
        return cls(model, tokenizer, ExampleEncoder.of(model, tokenizer, max_length))

    def logits(
        self, examples: Sequence[Example], *, batch_size: int = 64, title: str | None = None
    ) -> NDArray[np.floating]:
        """Return the logits (examples, labels); `title` is that of the progress bar, if there is one."""
        features = self.encoder.encode([Example(example.x, example.y, None, "") for example in examples])
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
                "the model's logits are not finite, as after a finetuning that diverged; finetune with a lower learning"
                " rate"
            )
        return out

    def answers(self, task: GlueTask, parts: Sequence[Part], *, title: str | None = None) -> list[NDArray[np.floating]]:
        """Return the answer to each example of each part; labels by number."""
        return [answers_of(task, self.logits(part.examples, title=title)) for part in parts]

    def save(self, folder: Path) -> None:
        """Write model and tokenizer."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def _renew_head(model: PreTrainedModel, drawn: Iterable[str]) -> None:
    """Reinitialise layers for labels that came with the checkpoint from another task."""
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
