"""GLUE's scores in percent: of a task, and of the benchmark.

A task's score is the mean of its metrics (over both parts of MNLI), and GLUE's average is the mean of the scores of its
nine tasks, without the diagnostic set AX. Correlations of constant answers are 0. This module knows no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from kermit.errors import DataError
from kermit.tasks.glue.data import Part
from kermit.tasks.glue.table import GlueTask, Metric, task_named

_OF_LABELS = {
    Metric.MATTHEWS: matthews_corrcoef,
    Metric.ACCURACY: accuracy_score,
    Metric.F1: partial(f1_score, zero_division=0),
}
_CORRELATIONS = {Metric.PEARSON: pearsonr, Metric.SPEARMAN: spearmanr}


@dataclass(frozen=True)
class Scores:
    """Scores of a task in percent: each metric, and their mean."""

    metrics: dict[str, float]
    score: float


def answers_of(task: GlueTask, logits: NDArray[np.floating]) -> NDArray[np.floating]:
    """Turn logits (examples, labels) into answers: the best label's index, or a number within the task's limits."""
    if task.limits is None:
        return np.asarray(logits.argmax(1), dtype=np.float64)
    low, high = task.limits
    numbers: NDArray[np.floating] = np.clip(logits[:, 0].astype(np.float64), low, high)
    return numbers


def score_task(task: GlueTask, parts: Sequence[Part], answers: Sequence[NDArray[np.floating]]) -> Scores:
    """Score the answers to every part of a split."""
    metrics: dict[str, float] = {}
    for part, given in zip(parts, answers, strict=True):
        labels = [example.label for example in part.examples]
        if any(label is None for label in labels):
            raise DataError(f"{task.name}: the examples have no labels; only GLUE's server can score the test split")
        tail = f"_{part.name}" if part.name else ""
        for metric in task.metrics:
            metrics[f"{metric}{tail}"] = round(100 * _value(metric, np.asarray(labels, dtype=np.float64), given), 2)
    return Scores(metrics, round(fmean(metrics.values()), 2))


def _value(metric: Metric, labels: NDArray[np.floating], answers: NDArray[np.floating]) -> float:
    if metric in _CORRELATIONS:
        varied = np.ptp(labels) > 0 and np.ptp(answers) > 0
        return float(_CORRELATIONS[metric](labels, answers).statistic) if varied else 0.0
    return float(_OF_LABELS[metric](labels, answers))


def glue_average(scores: Mapping[str, float]) -> float | None:
    """Return the mean score of the given tasks, without AX; None if there are none."""
    counted = [score for name, score in scores.items() if task_named(name).trained_on is None]
    return round(fmean(counted), 2) if counted else None
