"""A thin layer on transformers' Trainer, which runs the loop.

It adds batches by token budget that depend only on (seed, epoch); a loss normalised over all processes and accumulated
batches, so that any split of the same texts gives the same gradients; randomness that is seeded at every step, so that
a resumed training equals an uninterrupted one; averaged weights; the task's metrics on the validation text; and
checkpoints that are either complete or absent.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast, PrinterCallback, Trainer, TrainingArguments

from kermit.data.batching import SPECIALS_PER_ROW, Batch, BatchPlanner, BatchStream, RankShare, Text, batch_generator
from kermit.families.base import ITEMS, Collator
from kermit.loading import list_checkpoints, step_of
from kermit.modeling.tensors import as_tensors
from kermit.provenance import remove_leftovers, remove_whole, written_whole
from kermit.training.averaging import MovingAverage
from kermit.training.callbacks import Bar, Log, Progress, Signals
from kermit.training.cpu import fast_on_cpu
from kermit.training.optimizers import build_optimizer, build_schedule
from kermit.training.recipe import LoadedRecipe, Recipe
from kermit.training.settings import Precision

logger = logging.getLogger(__name__)

_STATE = "state.pt"
_VALIDATION_SEED = 0  # every evaluation drops the same tokens, whatever the seed of the run


@dataclass
class CollatedBatches(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Collates this process's share of each planned batch, for torch's DataLoader."""

    text: Text
    collator: Collator
    seed: int
    share: RankShare

    def __len__(self) -> int:
        return len(self.text)

    def __getitem__(self, batch: Batch) -> dict[str, torch.Tensor]:
        rows = self.text.epoch(batch.epoch).fetch(batch.rows)
        return as_tensors(self.collator(rows, batch_generator(self.seed, batch), self.share))


class KermitTrainer(Trainer):  # type: ignore[misc]
    """transformers' Trainer with this project's batches, loss, averaging, evaluation and checkpoints."""

    optimizer: Any
    lr_scheduler: Any
    control: Any
    stream: BatchStream

    def __init__(
        self,
        loaded: LoadedRecipe,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        text: Text,
        validation: Text | None,
        output: Path,
    ) -> None:
        recipe, family = loaded.recipe, loaded.family
        self.signals = Signals(self)
        optimizer = build_optimizer(model, recipe.optimizer, recipe.runtime.precision)
        super().__init__(
            model=model,
            args=_arguments(recipe, output),
            eval_dataset=validation,
            optimizers=(optimizer, build_schedule(optimizer, recipe.schedule)),
            callbacks=[Progress(self), Log(), Bar(None, hidden=not logger.isEnabledFor(logging.INFO)), self.signals],
        )
        self.remove_callback(PrinterCallback)
        self.recipe, self.task, self.family = recipe, loaded.task, family
        self.tokenizer, self.text, self.validation, self.output = tokenizer, text, validation, output
        self.evaluator = loaded.task.evaluator(loaded, tokenizer)
        self.collator = family.collator(recipe, tokenizer)
        self.validation_collator = family.collator(on_validation_text(recipe), tokenizer)
        weights = tuple(source.weight for source in recipe.data.train)
        self.planner = BatchPlanner(
            text, weights, recipe.batch.tokens, recipe.seed, processes=self.accelerator.num_processes
        )
        self.average = None if recipe.averaging.ema is None else MovingAverage(model, recipe.averaging.ema)
        self.loss_is_scaled_for_ga = True
        self.model_accepts_loss_kwargs = False

    # Data

    def get_train_dataloader(self) -> torch.utils.data.DataLoader[dict[str, torch.Tensor]]:
        """Return the stream of batches; each process takes its own share, so accelerate does not shard it."""
        self.stream = BatchStream(self.planner, self.recipe.schedule.max_steps * self.recipe.batch.accumulate)
        share = RankShare(self.args.process_index, self.accelerator.num_processes)
        batches = CollatedBatches(self.text, self.collator, self.recipe.seed, share)
        workers = self.recipe.runtime.workers
        return torch.utils.data.DataLoader(
            batches, batch_sampler=self.stream, collate_fn=itemgetter(0), num_workers=workers
        )

    # Loss

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> torch.Tensor | None:
        """Return the divisor of the step's loss: the items of all its batches on all processes."""
        if not batch_samples:
            return None
        items = torch.stack([batch[ITEMS].sum() for batch in batch_samples]).sum().to(device)
        return self.accelerator.reduce(items, reduction="sum")  # type: ignore[no-any-return]

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | None = None,
    ) -> Any:
        """Return this share's loss divided by the step's items, times the processes, as DDP averages over them."""
        with self.accelerator.autocast():  # the family's loss computes more than the model's forward
            total = self.family.loss(model, {k: v for k, v in inputs.items() if k != ITEMS}, self.recipe)
        items = inputs[ITEMS].sum() if num_items_in_batch is None else num_items_in_batch
        return total / items * self.accelerator.num_processes

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        """Run a forward and backward pass whose randomness depends only on (seed, step, batch in the step, process)."""
        self._batch_in_step = self._batch_in_step + 1 if self._last_step == self.state.global_step else 0
        self._last_step = self.state.global_step
        entropy = [self.recipe.seed, self._last_step, self._batch_in_step, self.args.process_index]
        torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]))
        with fast_on_cpu(entropy, self.args):
            return super().training_step(model, inputs, num_items_in_batch)

    _last_step = -1
    _batch_in_step = 0

    def largest(self, value: float) -> float:
        """Return the largest value of all processes, so that all take the same decision."""
        if self.accelerator.num_processes == 1:
            return value
        return float(self.accelerator.gather(torch.tensor([value], device=self.args.device)).max())

    # Evaluation

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Use the averaged weights, if there is an average, in evaluation mode; the next step sets training mode."""
        self.model.eval()
        with nullcontext() if self.average is None else self.average.applied():
            yield

    def evaluate(self, *arguments: Any, **keywords: Any) -> dict[str, float]:
        """Compute validation loss and metrics with the averaged weights; save the model to `best` if it is the best."""
        start = time.perf_counter()
        found: dict[str, float] = {}
        with self.averaged():
            if self.validation is not None:
                found["loss"] = self._validation_loss(self.validation)
            if self.is_world_process_zero():
                found |= self.evaluator(self.model) if self.evaluator is not None else {}
                best = self.task.best
                if best.name in found and best.improves(found[best.name], self.state.best_metric):
                    self.state.best_metric = found[best.name]
                    self.state.best_global_step = self.state.global_step
                    with written_whole(self.output / "best") as folder:
                        self.save_kept(folder)
        metrics = {f"eval_{name}": value for name, value in found.items()}
        metrics["eval_seconds"] = round(time.perf_counter() - start, 1)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        self.accelerator.wait_for_everyone()
        return metrics

    @torch.inference_mode()
    def _validation_loss(self, validation: Text) -> float:
        tokens = max(self.recipe.batch.tokens, 2 * self.recipe.data.max_tokens + SPECIALS_PER_ROW)
        batches = CollatedBatches(validation, self.validation_collator, _VALIDATION_SEED, RankShare())
        total, items = torch.zeros(()), torch.zeros(())
        for batch in BatchPlanner(validation, (1.0,), tokens, _VALIDATION_SEED).epoch(0):
            tensors = batches[batch]
            items += tensors.pop(ITEMS).sum()
            inputs = self._prepare_inputs(tensors)
            with self.accelerator.autocast():
                total += self.family.loss(self.model, inputs, self.recipe).cpu()
        return float(total / items)

    def save_kept(self, folder: Path) -> None:
        """Write the current model and its tokenizer into a folder that `from_pretrained` loads."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        (folder / "recipe.yaml").write_text((self.output / "recipe.yaml").read_text("utf-8"), encoding="utf-8")

    # Checkpoints

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """Write a complete checkpoint, and remove old ones."""
        if self.args.should_save:
            with written_whole(self.output / f"checkpoint-{self.state.global_step}") as folder:
                self.model.save_pretrained(folder)
                self.tokenizer.save_pretrained(folder)
                torch.save(self._state(), folder / _STATE)
                if self.average is not None:
                    self.average.save(folder / "average.safetensors")
                self.state.save_to_json(str(folder / "trainer_state.json"))
            remove_old(self.output, self.recipe.checkpoints.keep)
        self.accelerator.wait_for_everyone()

    def _state(self) -> dict[str, Any]:
        """Return everything besides the weights that resuming needs, as plain data and tensors."""
        state = {
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.lr_scheduler.state_dict(),
            "epochs": list(self.stream.sizes),
        }
        if getattr(self.accelerator, "scaler", None) is not None:
            state["scaler"] = self.accelerator.scaler.state_dict()
        return state

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        folder = Path(checkpoint)
        state = torch.load(folder / _STATE, map_location="cpu", weights_only=True)
        self.optimizer.load_state_dict(state["optimizer"])
        self.lr_scheduler.load_state_dict(state["schedule"])
        self.stream.resume(state["epochs"], step_of(folder) * self.recipe.batch.accumulate)
        if "scaler" in state:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        if self.average is not None:
            self.average.load(folder / "average.safetensors")

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Warn about missing weights, except those that are tied to others or never saved."""
        model = self.model
        known = {*getattr(model, "all_tied_weights_keys", ()), *(model._keys_to_ignore_on_save or ())}
        if load_result.unexpected_keys or set(load_result.missing_keys) - known:
            super()._issue_warnings_after_load(load_result)

    def _load_scaler(self, checkpoint: str | None) -> None:
        """Do nothing: the scaler is loaded with the schedule."""

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Do nothing: every step is seeded."""


def remove_old(output: Path, keep: int) -> None:
    """Remove all checkpoints but the last `keep`, and partial ones left by killed processes."""
    for path in list_checkpoints(output)[:-keep]:
        remove_whole(path)
    remove_leftovers(output, "checkpoint-*")


def on_validation_text(recipe: Recipe) -> Recipe:
    """Return the recipe with the validation text as its only training text."""
    if recipe.data.validation is None:
        return recipe
    data = recipe.data.model_copy(update={"train": (recipe.data.validation,)})
    objective = recipe.objective.for_validation()
    return recipe.model_copy(update={"data": data, "objective": objective})


def _arguments(recipe: Recipe, output: Path) -> TrainingArguments:
    return training_arguments(
        output,
        recipe.runtime.precision,
        max_steps=recipe.schedule.max_steps,
        gradient_accumulation_steps=recipe.batch.accumulate,
        learning_rate=recipe.optimizer.learning_rate,
        max_grad_norm=recipe.optimizer.clip_norm,
        logging_steps=recipe.runtime.log_every,
        logging_first_step=True,
        eval_strategy="no" if recipe.data.validation is None else "steps",
        eval_steps=recipe.evaluation.every,
        save_strategy="steps",
        save_steps=recipe.checkpoints.every,
        gradient_checkpointing=recipe.runtime.gradient_checkpointing,
        ddp_backend="gloo" if "WORLD_SIZE" in os.environ and not torch.cuda.is_available() else None,
        ddp_find_unused_parameters=False,
        report_to=["tensorboard"],
        remove_unused_columns=False,
        logging_nan_inf_filter=False,
        seed=recipe.seed,
    )


def training_arguments(output: Path, precision: Precision, **settings: Any) -> TrainingArguments:
    """Return the arguments of transformers' Trainer for one process per device, without its progress bar."""
    arguments = TrainingArguments(
        output_dir=str(output),
        bf16=precision is Precision.BFLOAT16,
        fp16=precision is Precision.FLOAT16,
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
        **settings,
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # several devices need several processes (torchrun), never DataParallel
    return arguments
