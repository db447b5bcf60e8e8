"""Finetuning of a classifier on a task's examples.

The schedule is BERT's: AdamW with weight decay 0.01, a warm-up over the first tenth of the steps, a linear decay to
zero, gradients clipped to norm 1. The last weights are kept. transformers' Trainer runs the loop; texts of similar
length share a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from transformers import DataCollatorWithPadding, PrinterCallback, Trainer, TrainingArguments

from kermit.tasks.glue.classifier import Classifier, Features
from kermit.tasks.glue.data import Example
from kermit.training.callbacks import Bar
from kermit.training.cpu import fast_on_cpu
from kermit.training.settings import Precision
from kermit.training.trainer import training_arguments

WARMUP, WEIGHT_DECAY, CLIP_NORM, EPSILON = 0.1, 0.01, 1.0, 1e-6
SUBSAMPLE_SEED = 0


@dataclass(frozen=True)
class Setting:
    """The settings of a finetuning run.

    `max_length` is the maximum number of tokens of a text or pair, including special tokens. `subsample` is the number
    of training examples to draw, None for all; the draw does not depend on the run's seed.
    """

    learning_rate: float = 3e-5
    epochs: int = 3
    batch_size: int = 32
    max_length: int = 128
    subsample: int | None = None
    precision: Precision = Precision.FLOAT32


def finetune(
    classifier: Classifier, examples: Sequence[Example], setting: Setting, *, seed: int, title: str | None = None
) -> int:
    """Train a classifier in place on the (subsampled) examples, and return the number of steps.

    The seed determines the order of texts and dropout. `title` is the title of the progress bar, None for no bar.
    """
    with TemporaryDirectory() as scratch, torch.random.fork_rng():
        trainer = _GlueTrainer(
            model=classifier.model,
            args=_arguments(setting, seed, Path(scratch)),
            train_dataset=classifier.encode(examples),
            data_collator=DataCollatorWithPadding(classifier.tokenizer),
            callbacks=[Bar(title, hidden=title is None)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return int(trainer.state.global_step)


def subsample(examples: Sequence[Example], count: int | None) -> list[Example]:
    """Draw `count` examples at random and keep their order; return all if there are not more."""
    if count is None or count >= len(examples):
        return list(examples)
    drawn = np.random.default_rng(SUBSAMPLE_SEED).choice(len(examples), count, replace=False)
    return [examples[number] for number in sorted(drawn)]


class _GlueTrainer(Trainer):  # type: ignore[misc]
    """transformers' Trainer with faster steps on a CPU."""

    def training_step(self, model: torch.nn.Module, inputs: Features, num_items_in_batch: Any = None) -> Any:
        with fast_on_cpu([self.args.seed, self.state.global_step], self.args):
            return super().training_step(model, inputs, num_items_in_batch)


def _arguments(setting: Setting, seed: int, scratch: Path) -> TrainingArguments:
    return training_arguments(
        scratch,
        setting.precision,
        per_device_train_batch_size=setting.batch_size,
        num_train_epochs=setting.epochs,
        learning_rate=setting.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=WARMUP,
        weight_decay=WEIGHT_DECAY,
        adam_epsilon=EPSILON,
        max_grad_norm=CLIP_NORM,
        train_sampling_strategy="group_by_length",
        seed=seed,
        data_seed=seed,
        dataloader_pin_memory=torch.cuda.is_available(),
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
    )
