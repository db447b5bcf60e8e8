"""A training run from recipe to saved model: tokenizer, encoded text, model, trainer, and the final model.

The output folder holds `recipe.yaml` (with defaults), `inputs.json` (checksums of text and tokenizer), `checkpoint-N`
folders to resume from, `best` (the best model on the validation text so far), `runs` (TensorBoard), and at the end the
model with its tokenizer.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import torch
import yaml
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from kermit.data.batching import SPECIALS_PER_ROW, Text
from kermit.data.cache import cache_folder, made_once
from kermit.data.joint_tokenizer import fingerprint, load_tokenizer, train_tokenizer
from kermit.data.plain import Fault, OnBad, Report, file_checksum, read_lines
from kermit.engines.torch_engine import model_info
from kermit.errors import RecipeError
from kermit.loading import list_checkpoints
from kermit.modeling import KermitForInsertion
from kermit.provenance import differences, partial, restore_interrupted_swap, write_json, write_whole, written_whole
from kermit.training.callbacks import minutes_spent
from kermit.training.recipe import RESUMABLE_CHANGES, LoadedRecipe, Recipe, check_recipe, dump_recipe, read_keys
from kermit.training.settings import Precision
from kermit.training.task import BestMetric
from kermit.training.trainer import KermitTrainer
from kermit.training.warm_start import named, prepare_model

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run: the model's folder, the best value of the metric, and the signal that stopped it."""

    model: Path
    steps: int
    best: float | None
    metric: BestMetric
    stopped_by: int | None


def train(loaded: LoadedRecipe, output: Path, *, resume: bool = False) -> TrainingResult:
    """Train a recipe's model and write it to an output folder, which must not contain another run.

    With `resume`, continue from the last complete checkpoint in the folder, or start over if there is none.
    """
    recipe = loaded.recipe
    _check_precision(recipe)
    main = int(os.environ.get("RANK", "0")) == 0
    checkpoint = _prepare_output(recipe, output, resume=resume, write=main)
    tokenizer = prepare_tokenizer(loaded)
    _check_inputs(loaded, tokenizer, output, resumed=checkpoint is not None, write=main)
    text = loaded.task.training_text(loaded, tokenizer)
    validation = loaded.task.validation_text(loaded, tokenizer)
    model = prepare_model(loaded, tokenizer)
    for rows in (text, validation):
        if rows is not None:
            _check_room(model, rows)
    trainer = KermitTrainer(loaded, model, tokenizer, text, validation, output)
    parameters = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    logger.info("%s, %s parameters, %s texts", loaded.family.name, f"{parameters:,}", f"{len(text):,}")
    start = time.perf_counter()
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    logger.info("trained to step %d in %.1f minutes", trainer.state.global_step, (time.perf_counter() - start) / 60)
    caught = trainer.signals.caught
    if caught is None and main:
        _keep(trainer, output, parameters)
    return TrainingResult(output, trainer.state.global_step, trainer.state.best_metric, loaded.task.best, caught)


def _check_precision(recipe: Recipe) -> None:
    """Raise for float16 on a CPU, where accelerate would silently train in float32."""
    if recipe.runtime.precision is Precision.FLOAT16 and not torch.cuda.is_available():
        raise RecipeError("runtime.precision: float16 needs a GPU, but this machine has none; set bfloat16 or float32")


def prepare_tokenizer(loaded: LoadedRecipe) -> PreTrainedTokenizerFast:
    """Return the recipe's tokenizer: loaded, or trained and then cached by the content of its text."""
    settings = loaded.recipe.tokenizer
    if settings.path is not None:
        return load_tokenizer(named(loaded, settings.path))
    assert settings.vocab_size is not None
    vocab_size = settings.vocab_size
    files = [loaded.data / path for path in settings.texts]
    checksums = [] if files else [source.checksum() for source in loaded.sources]
    on_bad = loaded.recipe.data.on_bad
    strict = [str(on_bad)] if files and on_bad is OnBad.ERROR else []
    options = ["split_digits"] if settings.split_digits else []
    key = repr((vocab_size, [file_checksum(file) for file in files], checksums, *strict, *options))
    folder = cache_folder() / "tokenizers" / sha256(key.encode()).hexdigest()[:24]

    def make(scratch: Path) -> None:
        texts = _texts_of_files(files, on_bad) if files else loaded.task.texts(loaded)
        train_tokenizer(texts, vocab_size, split_digits=settings.split_digits).save_pretrained(scratch)

    return load_tokenizer(made_once(folder, make))


def _texts_of_files(files: Sequence[Path], on_bad: OnBad) -> Iterator[str]:
    """Yield the lines of files, except blank ones, which may separate articles."""
    for file in files:
        report = Report(on_bad)
        for line in read_lines(file):
            if line.text is None:
                report.bad(Fault.INVALID_UTF8, line.place)
            elif line.text.strip():
                report.read += 1
                yield line.text
        logger.info("%s: %s", file, report.summary())


def _check_room(model: PreTrainedModel, text: Text) -> None:
    """Raise if the longest text needs more positions than the insertion model has."""
    if not isinstance(model, KermitForInsertion):
        return
    rows, info = text.epoch(0), model_info(model)
    side = int(max(rows.x_lengths.max(initial=0), rows.y_lengths.max(initial=0)))
    whole = int((rows.x_lengths + rows.y_lengths).max(initial=0)) + SPECIALS_PER_ROW
    for longest, room in ((side, info.max_segment_length), (whole, info.max_length)):
        if room is not None and longest > room:
            raise RecipeError(
                f"data.max_tokens: the longest text has {longest} tokens, but the model has positions for {room};"
                " lower data.max_tokens, or give the trunk more positions"
            )


def _prepare_output(recipe: Recipe, output: Path, *, resume: bool, write: bool) -> Path | None:
    """Check that the folder is empty or belongs to this run; return the checkpoint to resume from."""
    restore_interrupted_swap(output / "best")
    checkpoints = list_checkpoints(output)
    done = (output / "model.safetensors").is_file()
    if not checkpoints and not done:
        _refuse_foreign(output)
    if resume:
        _check_resumable(recipe, output, finished=done and not checkpoints)
    elif checkpoints or done or (output / "best").is_dir():
        raise RecipeError(
            f"{output} already contains a training run; add --resume to continue it, or choose another folder"
        )
    if write:
        output.mkdir(parents=True, exist_ok=True)
        if not checkpoints:
            shutil.rmtree(output / "runs", ignore_errors=True)
        write_whole(output / "recipe.yaml", dump_recipe(recipe))
    return checkpoints[-1] if checkpoints else None


def _check_resumable(recipe: Recipe, output: Path, *, finished: bool) -> None:
    """Raise if the folder contains a run of another recipe, or a finished run without checkpoints."""
    kept = output / "recipe.yaml"
    if kept.is_file():
        before = check_recipe(read_keys(kept), data=Path(), where=str(kept)).recipe.model_dump(mode="json")
        changes = [
            key
            for key in differences(before, recipe.model_dump(mode="json"))
            if not any(key == allowed or key.startswith(f"{allowed}.") for allowed in RESUMABLE_CHANGES)
        ]
        if changes:
            raise RecipeError(
                f"{output} was trained with another recipe: {', '.join(changes)} differ; resume with the same recipe,"
                " or train into another folder"
            )
    if finished:
        raise RecipeError(
            f"{output} contains a finished run without checkpoints, so it cannot be resumed; choose another folder,"
            " and set `init_from` to start from this model"
        )


def _refuse_foreign(output: Path) -> None:
    """Raise if training would overwrite files that it did not write: its recipe has every section."""
    try:
        raw = yaml.safe_load((output / "recipe.yaml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        raw = None
    ours = isinstance(raw, dict) and raw.keys() >= Recipe.model_fields.keys()
    for name in () if ours else ("recipe.yaml", "best", "runs"):
        if (output / name).exists():
            raise RecipeError(
                f"{output / name} was not written by `kermit train` and would be overwritten; choose another folder"
            )


def _check_inputs(
    loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast, output: Path, *, resumed: bool, write: bool
) -> None:
    """Record checksums of text and tokenizer; raise if they differ from those of the training being resumed."""
    kept, sources = output / "inputs.json", loaded.recipe.data.sources.values()
    now = {name: found for source in sources for name, found in source.checksums(loaded.data).items()}
    now["tokenizer"] = fingerprint(tokenizer)
    before = json.loads(kept.read_text(encoding="utf-8")) if resumed and kept.is_file() else now
    if changed := differences(before, now):
        raise RecipeError(
            f"{', '.join(changed)}: changed since {output} was trained; restore it, or train into another folder"
        )
    if write:
        write_json(kept, now)


def _keep(trainer: KermitTrainer, output: Path, parameters: int) -> None:
    """Copy the best model, or without validation the last averaged one, to the output folder, with a summary."""
    best = output / "best"
    if not best.is_dir():
        with trainer.averaged(), written_whole(best) as folder:
            trainer.save_kept(folder)
    for path in best.iterdir():
        kept = output / path.name
        shutil.copyfile(path, partial(kept))
        partial(kept).rename(kept)
    state = trainer.state
    summary = {
        "steps": state.global_step,
        "epochs": round(state.epoch or 0.0, 2),
        "minutes": round(minutes_spent(state), 1),
        "parameters": parameters,
        "best_step": state.best_global_step,
        f"best_validation_{trainer.task.best.name}": state.best_metric,
        "seed": trainer.recipe.seed,
    }
    write_json(output / "summary.json", summary)
