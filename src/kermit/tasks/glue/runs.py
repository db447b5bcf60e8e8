"""Finetuning runs: every task with every seed, each saved in its own folder as soon as it is finished.

`OUTPUT/TASK/seed-N` holds `result.json`, the score with everything that determined it, and optionally the finetuned
model. Finished runs are not repeated; an interrupted run starts over. If the folder holds results of another model,
other data or other settings, it is refused. The summary has each task's mean and deviation over seeds, and GLUE's
average.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean, stdev

from pydantic import TypeAdapter, ValidationError

import kermit
from kermit.errors import DataError, ModelError, in_a_line
from kermit.loading import find_model
from kermit.provenance import (
    is_complete,
    listed,
    model_checksum,
    restore_interrupted_swap,
    signature,
    write_json,
    written_whole,
)
from kermit.tasks.glue.classifier import Classifier
from kermit.tasks.glue.data import GlueData, examples_checksum
from kermit.tasks.glue.finetuning import Setting, finetune, subsample
from kermit.tasks.glue.scoring import glue_average, score_task
from kermit.tasks.glue.table import TASKS, GlueTask, Split, task_named

logger = logging.getLogger(__name__)

RESULT = "result.json"


@dataclass(frozen=True)
class Result:
    """A finetuned model's score on the dev split in percent, with everything that determined it."""

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
    signature: str

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read a `result.json`."""
        try:
            return TypeAdapter(cls).validate_json(path.read_bytes())
        except ValidationError as error:
            why = f"not the result of a finetuning run ({in_a_line(error)}); remove its folder"
            raise DataError(f"{path}: {why}") from error


@dataclass(frozen=True)
class Run:
    """A finished run: its folder and result."""

    folder: Path
    result: Result

    @property
    def has_model(self) -> bool:
        """Whether the weights were saved."""
        return (self.folder / "config.json").is_file()


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds; a single seed has no deviation."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Compute mean and deviation from one value per seed."""
        return cls(round(fmean(values), 2), round(stdev(values), 2) if len(values) > 1 else None)

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.deviation is None else f"{self.mean:.2f} ± {self.deviation:.2f}"


@dataclass(frozen=True)
class TaskSummary:
    """The results of a task, in the order of the seeds."""

    task: str
    score: Spread
    metrics: dict[str, Spread]
    seeds: list[int]
    setting: Setting
    train_examples: int
    signatures: list[str]


@dataclass(frozen=True)
class Summary:
    """All tasks, and GLUE's average over those present."""

    model: str
    tasks: list[TaskSummary]
    average: float | None
    split: str = "dev"
    version: str = kermit.__version__


@dataclass(frozen=True)
class Evaluation:
    """A finetuned model's score on a split: the output of `kermit evaluate glue --json`."""

    task: str
    split: str
    metrics: dict[str, float]
    score: float
    examples: int
    signature: str


def choose_tasks(names: str, data: GlueData) -> list[GlueTask]:
    """Choose the tasks to finetune: comma-separated names, or `all` for those with training and dev examples."""
    if names.strip().lower() != "all":
        chosen = [task_named(name) for name in names.split(",")]
        for task in chosen:
            if task.trained_on is not None:
                raise DataError(
                    f"{task.name} has no training split; finetune {task.trained_on}, whose model answers it"
                )
        return chosen
    own = [task for task in TASKS if task.trained_on is None]
    there = [task for task in own if data.has(task, Split.TRAIN) and data.has(task, Split.DEV)]
    if absent := [task.name for task in own if task not in there]:
        logger.warning("%s skipped: the train or dev split is missing in %s", ", ".join(absent), data.folder)
    if not there:
        raise DataError(f"{data.folder} holds no task with train and dev splits, such as CoLA/train.tsv; set --data")
    return there


def finetune_all(
    tasks: Sequence[GlueTask],
    trunk: str,
    data: GlueData,
    output: Path,
    *,
    seeds: Sequence[int] = (0,),
    setting: Setting | None = None,
    keep_models: bool = True,
    progress: bool = False,
) -> list[Run]:
    """Finetune and score every task with every seed, except runs that are already finished."""
    setting = setting or Setting()
    place = find_model(trunk)
    weights = model_checksum(place)
    _refuse_others(find_runs(output), model_checksum=weights)
    runs = []
    for task in tasks:
        train, dev = data.read(task, Split.TRAIN), data.read(task, Split.DEV)
        text = examples_checksum([*train, *dev])
        _refuse_others(find_runs(output, task), data_checksum=text, setting=setting)
        for seed in seeds:
            folder = output / task.name / f"seed-{seed}"
            restore_interrupted_swap(folder)
            if (folder / RESULT).is_file():
                runs.append(Run(folder, Result.read(folder / RESULT)))
                if keep_models and not runs[-1].has_model:
                    logger.warning("%s was finetuned without saving its model; remove the folder to repeat it", folder)
                continue
            title, start = f"{task.name} seed {seed}", time.perf_counter()
            with written_whole(folder) as scratch:
                classifier = Classifier.start(place, task, max_length=setting.max_length, seed=seed)
                examples = subsample(train[0].examples, setting.subsample)
                steps = finetune(classifier, examples, setting, seed=seed, title=title if progress else None)
                answers = classifier.answers(task, dev, title=f"{task.name} dev" if progress else None)
                scores = score_task(task, dev, answers)
                decided = {"data": text, "model": weights, "setting": listed(asdict(setting)), "seed": seed}
                result = Result(
                    task=task.name,
                    seed=seed,
                    setting=setting,
                    metrics=scores.metrics,
                    score=scores.score,
                    train_examples=len(examples),
                    dev_examples=sum(len(part.examples) for part in dev),
                    steps=steps,
                    seconds=round(time.perf_counter() - start, 1),
                    model=trunk,
                    model_checksum=weights,
                    data_checksum=text,
                    signature=signature({"task": f"glue/{task.name}", "split": Split.DEV, **decided}),
                )
                if keep_models:
                    classifier.save(scratch)
                write_json(scratch / RESULT, asdict(result))
            logger.info("%s: %s", title, ", ".join(f"{name} {value:.2f}" for name, value in scores.metrics.items()))
            runs.append(Run(folder, result))
    return runs


def find_runs(output: Path, task: GlueTask | None = None) -> list[Run]:
    """Find the finished finetunings in an output folder, of one task or of all."""
    found = sorted(output.glob(f"{task.name if task else '*'}/seed-*/{RESULT}"))
    return [Run(path.parent, Result.read(path)) for path in found if is_complete(path.parent)]


def summarise(results: Sequence[Result]) -> Summary:
    """Summarise results, tasks in GLUE's order."""
    names = [task.name for task in TASKS]
    ordered = sorted(results, key=lambda result: (names.index(result.task), result.seed))
    tasks = []
    for name, group in groupby(ordered, key=lambda result: result.task):
        seeds = list(group)
        tasks.append(
            TaskSummary(
                task=name,
                score=Spread.of([result.score for result in seeds]),
                metrics={metric: Spread.of([each.metrics[metric] for each in seeds]) for metric in seeds[0].metrics},
                seeds=[result.seed for result in seeds],
                setting=seeds[0].setting,
                train_examples=seeds[0].train_examples,
                signatures=[result.signature for result in seeds],
            )
        )
    average = glue_average({task.task: task.score.mean for task in tasks})
    return Summary(results[0].model, tasks, average)


def evaluate_finetuned(
    model: str,
    task: GlueTask,
    data: GlueData,
    split: Split = Split.DEV,
    *,
    max_length: int | None = None,
    progress: bool = False,
) -> Evaluation:
    """Score a finetuned model on train or dev; AX needs a model finetuned on MNLI.

    `max_length` is the maximum number of tokens of an input, by default that of finetuning.
    """
    place = find_model(model)
    trained_for = Result.read(place / RESULT) if (place / RESULT).is_file() else None
    if trained_for is not None and trained_for.task != (task.trained_on or task.name):
        raise ModelError(
            f"{model} was finetuned on {trained_for.task}; use a model finetuned on {task.trained_on or task.name}"
        )
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
    count = sum(len(part.examples) for part in parts)
    return Evaluation(task.name, split, scores.metrics, scores.score, count, signature(decided))


def _refuse_others(runs: Sequence[Run], **ours: object) -> None:
    """Raise if there are results of another model, other data or other settings."""
    for run in runs:
        for name, value in ours.items():
            if getattr(run.result, name) != value:
                raise DataError(
                    f"{run.folder} holds a result whose {name.removesuffix('_checksum')} differs (see its {RESULT});"
                    " choose another --output, or remove the folder"
                )
