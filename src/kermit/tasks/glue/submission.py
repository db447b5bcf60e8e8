"""The zip for GLUE's test server: one TSV of answers per file of the test split.

A task is answered by its model with the best dev score, and AX by MNLI's. The server rejects a zip that lacks a file,
so a task that was not finetuned gets a placeholder with the same answer in every row; its score is meaningless.
"""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kermit.errors import DataError
from kermit.provenance import partial
from kermit.tasks.glue.classifier import Classifier
from kermit.tasks.glue.data import GlueData
from kermit.tasks.glue.runs import Run, find_runs
from kermit.tasks.glue.table import TASKS, GlueTask, Split

logger = logging.getLogger(__name__)

_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # fixed, so that the same answers give the same zip


@dataclass(frozen=True)
class SubmittedFile:
    """A file of the zip: its name, number of rows, and the model that answered, None for a placeholder."""

    name: str
    rows: int
    model: str | None
    score: float | None


def submit(runs: Path, data: GlueData, output: Path, *, progress: bool = False) -> list[SubmittedFile]:
    """Answer the test split of every task that was finetuned in the folder `runs`, and write the zip.

    Tasks without a model need no test files.
    """
    found = sorted((run for run in find_runs(runs) if run.has_model), key=lambda run: run.result.score)
    best = {run.result.task: run for run in found}
    if not best:
        raise DataError(f"{runs} holds no finetuned model, as TASK/seed-N; run `kermit finetune glue` first")
    files, contents = [], {}
    for task in TASKS:
        run = best.get(task.trained_on or task.name)
        for name, indices, answers in _answers(task, run, data, progress):
            lines = ["index\tprediction", *(f"{i}\t{answer}" for i, answer in zip(indices, answers, strict=True))]
            contents[f"{name}.tsv"] = "\n".join(lines) + "\n"
            model, score = (None, None) if run is None else (str(run.folder), run.result.score)
            files.append(SubmittedFile(name, len(answers), model, score))
    output.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(partial(output), "w") as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), content, zipfile.ZIP_DEFLATED)
    partial(output).rename(output)
    return files


def _answers(
    task: GlueTask, run: Run | None, data: GlueData, progress: bool
) -> Iterator[tuple[str, Sequence[str], list[str]]]:
    """Yield the name, row numbers and answers of every file; placeholders if there is no model."""
    if run is None:
        for name, size in task.submission.items():
            yield name, [str(row) for row in range(size)], written(task, np.zeros(size))
        return
    parts = data.read(task, Split.TEST)
    classifier = Classifier.load(run.folder, task, max_length=run.result.setting.max_length)
    logger.info("%s: answering with %s, dev score %.2f", task.name, run.folder, run.result.score)
    answers = classifier.answers(task, parts, title=f"{task.name} test" if progress else None)
    for (name, size), part, given in zip(task.submission.items(), parts, answers, strict=True):
        if len(part.examples) != size:
            logger.warning("%s: the test file has %d rows, but the server expects %d", name, len(part.examples), size)
        yield name, [example.index for example in part.examples], written(task, given)


def written(task: GlueTask, answers: NDArray[np.floating]) -> list[str]:
    """Format answers for the server: labels as text, numbers with three decimals."""
    if task.is_regression:
        return [f"{answer:.3f}" for answer in answers]
    return [task.labels[int(answer)] for answer in answers]
