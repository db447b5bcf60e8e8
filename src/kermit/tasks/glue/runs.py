"""Many finetunings: tasks by seeds by settings, each saved in its own folder as soon as it is done.

`OUTPUT/TASK/seed-N/SETTING` holds `result.json`, the score with everything that decided it, and optionally the
finetuned model. Of several settings of a seed only the best one on the dev split keeps its weights. Finished runs are
not repeated; an interrupted run starts over. Results of another model or other data are refused.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import kermit
from kermit.errors import DataError, ModelError, member_of
from kermit.loading import find_model
from kermit.provenance import (
    is_complete,
    model_checksum,
    restore_interrupted_swap,
    signature,
    write_json,
    written_whole,
)
from kermit.tasks.glue.classifier import Classifier
from kermit.tasks.glue.data import GlueData, Part, examples_checksum
from kermit.tasks.glue.finetuning import Setting, finetune, subsample
from kermit.tasks.glue.scoring import score_task
from kermit.tasks.glue.table import TASKS, GlueTask, Split, task_named

logger = logging.getLogger(__name__)

RESULT = "result.json"


@dataclass(frozen=True)
class Result:
    """A finetuned model's score on the dev split in percent, with everything that decided it."""

    task: str
    seed: int
    setting: Setting
    metrics: dict[str, float]
    score: float
    train_examples: int
    dev_examples: int
    steps: int
    seconds: float
    model: str
    model_checksum: str
    data_checksum: str
    version: str

    @property
    def signature(self) -> str:
        """Everything that decided the score, on one line."""
        parts = {
            "task": f"glue/{self.task}",
            "split": Split.DEV,
            "data": self.data_checksum,
            "model": self.model_checksum,
            "setting": self.setting.name,
            "seed": self.seed,
        }
        return signature(parts, self.version)

    def to_json(self) -> dict[str, Any]:
        """Return what `result.json` holds."""
        return asdict(self) | {"signature": self.signature}

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read a `result.json`."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            record.pop("signature")
            return cls(**{**record, "setting": Setting(**record["setting"])})
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: this is not the result of a finetuning ({error}); remove its folder") from error


@dataclass(frozen=True)
class Run:
    """A finished finetuning: its folder, and the result in it."""

    folder: Path
    result: Result

    @property
    def has_model(self) -> bool:
        """Whether the weights were kept."""
        return (self.folder / "config.json").is_file()


@dataclass(frozen=True)
class Evaluation:
    """A finetuned model's score on a split, as `kermit evaluate glue --json` prints it."""

    task: str
    split: str
    metrics: dict[str, float]
    score: float
    examples: int
    signature: str


def choose_tasks(names: str, data: GlueData) -> list[GlueTask]:
    """Choose the tasks to finetune: names separated by commas, or `all` that have training and dev text."""
    if names.strip().lower() != "all":
        chosen = [task_named(name) for name in names.split(",")]
        for task in chosen:
            if task.trained_on is not None:
                raise DataError(f"{task.name} has no training text; finetune {task.trained_on}, whose model answers it")
        return chosen
    own = [task for task in TASKS if task.trained_on is None]
    there = [task for task in own if data.has(task, Split.TRAIN) and data.has(task, Split.DEV)]
    if absent := [task.name for task in own if task not in there]:
        logger.warning("%s skipped: train or dev is not in %s", ", ".join(absent), data.folder)
    if not there:
        raise DataError(f"{data.folder} holds no task with train and dev split, such as CoLA/train.tsv")
    return there


def finetune_all(
    tasks: Sequence[GlueTask],
    trunk: str,
    data: GlueData,
    output: Path,
    *,
    seeds: Sequence[int] = (0,),
    settings: Sequence[Setting] = (Setting(),),
    keep_models: bool = True,
    progress: bool = False,
) -> list[Run]:
    """Finetune and score every task with every seed and setting that is not done yet.

    Args:
        tasks: which.
        trunk: any name that `find_model` knows.
        data: where the tasks are.
        output: where results and models go.
        seeds: one finetuning per seed.
        settings: one finetuning per setting.
        keep_models: whether the finetuned models are written beside their results.
        progress: whether to show bars on a terminal.
    """
    if negative := [seed for seed in seeds if seed < 0]:
        raise ModelError(f"seeds must be 0 or more, not {negative[0]}")
    place = find_model(trunk)
    weights = model_checksum(place)
    _refuse_others(find_runs(output), "model", weights)
    runs = []
    for task in tasks:
        train, dev = data.read(task, Split.TRAIN), data.read(task, Split.DEV)
        text = examples_checksum([*train, *dev])
        _refuse_others(find_runs(output, task), "data", text)
        for seed, setting in product(seeds, settings):
            folder = output / task.name / f"seed-{seed}" / setting.name
            restore_interrupted_swap(folder)
            if (folder / RESULT).is_file():
                if keep_models and not any(folder.parent.glob("*/config.json")):
                    logger.warning("%s was finetuned before without keeping its model; remove it to repeat it", folder)
                runs.append(Run(folder, Result.read(folder / RESULT)))
                continue
            title = f"{task.name} seed {seed} {setting.name}"
            start = time.perf_counter()
            with written_whole(folder) as scratch:
                classifier = Classifier.start(place, task, max_length=setting.max_length, seed=seed)
                examples = subsample(train[0].examples, setting.subsample)
                steps = finetune(classifier, examples, setting, seed=seed, title=title if progress else None)
                answers = classifier.answers(task, dev, title=f"{task.name} dev" if progress else None)
                scores = score_task(task, dev, answers)
                result = Result(
                    task=task.name,
                    seed=seed,
                    setting=setting,
                    metrics=scores.metrics,
                    score=scores.score,
                    train_examples=len(examples),
                    dev_examples=_count(dev),
                    steps=steps,
                    seconds=round(time.perf_counter() - start, 1),
                    model=trunk,
                    model_checksum=weights,
                    data_checksum=text,
                    version=kermit.__version__,
                )
                if keep_models:
                    classifier.save(scratch)
                write_json(scratch / RESULT, result.to_json())
            logger.info("%s: %s", title, ", ".join(f"{name} {value:.2f}" for name, value in scores.metrics.items()))
            _keep_best(folder.parent)
            runs.append(Run(folder, result))
    return runs


def find_runs(output: Path, task: GlueTask | None = None) -> list[Run]:
    """Find every finished finetuning in an output folder, or those of a task."""
    found = sorted(output.glob(f"{task.name if task else '*'}/seed-*/*/{RESULT}"))
    return [Run(path.parent, Result.read(path)) for path in found if is_complete(path.parent)]


def evaluate_finetuned(
    model: str,
    task: GlueTask,
    data: GlueData,
    split: Split = Split.DEV,
    *,
    max_length: int | None = None,
    progress: bool = False,
) -> Evaluation:
    """Score a finetuned model on train or dev; AX takes a model finetuned on MNLI.

    Inputs have at most `max_length` tokens, by default as in finetuning.
    """
    split = member_of(Split, split, "split", DataError)
    if split is Split.TEST:
        raise DataError(f"{task.name}: test labels are not public; score dev, or make a zip with `kermit submit`")
    place = find_model(model)
    trained_for = Result.read(place / RESULT) if (place / RESULT).is_file() else None
    if trained_for is not None and trained_for.task != (task.trained_on or task.name):
        raise ModelError(f"{model} was finetuned on {trained_for.task}, not on {task.trained_on or task.name}")
    length = (trained_for.setting if trained_for else Setting()).max_length if max_length is None else max_length
    parts = data.read(task, split)
    classifier = Classifier.load(place, task, max_length=length)
    answers = classifier.answers(task, parts, title=f"{task.name} {split}" if progress else None)
    scores = score_task(task, parts, answers)
    decided = {
        "task": f"glue/{task.name}",
        "split": split,
        "data": examples_checksum(parts),
        "model": model_checksum(place),
        "length": length,
    }
    return Evaluation(task.name, split, scores.metrics, scores.score, _count(parts), signature(decided))


def _refuse_others(runs: Sequence[Run], what: str, ours: str) -> None:
    """Raise for results of another model or other data."""
    for run in runs:
        if getattr(run.result, f"{what}_checksum") != ours:
            raise DataError(
                f"{run.folder} holds a result with another {what} (see its {RESULT}); choose another --output, or"
                " remove it"
            )


def _keep_best(seed_folder: Path) -> None:
    """Keep only the weights of a seed's best setting on dev; the first of equals."""
    kept = [run for run in find_runs(seed_folder.parents[1]) if run.folder.parent == seed_folder and run.has_model]
    for run in sorted(kept, key=lambda run: run.result.score, reverse=True)[1:]:
        (run.folder / "config.json").unlink()  # first, so that half of a model is never taken for one
        for path in run.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != RESULT:
                path.unlink()


def _count(parts: Sequence[Part]) -> int:
    return sum(len(part.examples) for part in parts)
