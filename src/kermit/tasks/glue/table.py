"""GLUE's tasks as rows of one table: their files, columns, labels and metrics.

Files are those of GLUE's own download: tab-separated, without quoting, with columns identified by the header. Labels
are written as in the files, which is also the test server's format. This module reads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kermit.errors import DataError, nearest


class Split(StrEnum):
    """The splits of a task; test labels are not public."""

    TRAIN = "train"
    DEV = "dev"
    TEST = "test"


class Metric(StrEnum):
    """Metrics of tasks."""

    MATTHEWS = "matthews"
    ACCURACY = "accuracy"
    F1 = "f1"
    PEARSON = "pearson"
    SPEARMAN = "spearman"


@dataclass(frozen=True)
class GlueTask:
    """A row of the table.

    Attributes:
        labels: as in the files and for the test server; none for a regression.
        columns: the columns of the one or two texts.
        submission: the server's name for each file of the test split, with its number of rows.
        label, index: the columns of the label and, in the test split, of the row number.
        header: the columns of train and dev, if the files have no header line.
        parts: name suffixes of the files of dev and test, if there are several.
        limits: the minimum and maximum of a regression's target.
        files: possible names of the files of a split, if they are not named after it.
        trained_on: the task whose model answers this one, if it has no training split.
        has_broken_rows: whether the published training file has invalid rows, which are skipped.
    """

    name: str
    labels: tuple[str, ...]
    metrics: tuple[Metric, ...]
    columns: tuple[str, ...]
    submission: Mapping[str, int]
    label: str = "label"
    index: str = "index"
    header: tuple[str, ...] | None = None
    parts: tuple[str, ...] = ("",)
    limits: tuple[float, float] | None = None
    files: Mapping[Split, tuple[str, ...]] = field(default_factory=dict)
    trained_on: str | None = None
    has_broken_rows: bool = False

    @property
    def is_regression(self) -> bool:
        """Whether the answer is a number instead of a label."""
        return not self.labels


_BINARY = ("0", "1")
_ENTAILS = ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")
_SINGLE = ("sentence",)
_PAIR = ("sentence1", "sentence2")
_EQUAL = (Metric.F1, Metric.ACCURACY)
_COLA = ("source", "label", "annotation", "sentence")
_DIAGNOSTIC = {
    Split.DEV: ("diagnostic/diagnostic-full.tsv", "AX/diagnostic-full.tsv"),
    Split.TEST: ("diagnostic/diagnostic.tsv", "AX/test.tsv"),
}

TASKS: tuple[GlueTask, ...] = (
    GlueTask("CoLA", _BINARY, (Metric.MATTHEWS,), _SINGLE, {"CoLA": 1063}, header=_COLA),
    GlueTask("SST-2", _BINARY, (Metric.ACCURACY,), _SINGLE, {"SST-2": 1821}),
    GlueTask("MRPC", _BINARY, _EQUAL, ("#1 String", "#2 String"), {"MRPC": 1725}, label="Quality"),
    GlueTask("STS-B", (), (Metric.PEARSON, Metric.SPEARMAN), _PAIR, {"STS-B": 1379}, label="score", limits=(0.0, 5.0)),
    GlueTask(
        "QQP",
        _BINARY,
        _EQUAL,
        ("question1", "question2"),
        {"QQP": 390_965},
        label="is_duplicate",
        index="id",
        has_broken_rows=True,
    ),
    GlueTask(
        "MNLI",
        _NLI,
        (Metric.ACCURACY,),
        _PAIR,
        {"MNLI-m": 9796, "MNLI-mm": 9847},
        label="gold_label",
        parts=("matched", "mismatched"),
    ),
    GlueTask("QNLI", _ENTAILS, (Metric.ACCURACY,), ("question", "sentence"), {"QNLI": 5463}),
    GlueTask("RTE", _ENTAILS, (Metric.ACCURACY,), _PAIR, {"RTE": 3000}),
    GlueTask("WNLI", _BINARY, (Metric.ACCURACY,), _PAIR, {"WNLI": 146}),
    GlueTask("AX", _NLI, (Metric.MATTHEWS,), _PAIR, {"AX": 1104}, files=_DIAGNOSTIC, trained_on="MNLI"),
)


def task_named(name: str) -> GlueTask:
    """Return the task with this name, ignoring case and hyphens."""
    plain = name.lower().replace("-", "")
    for task in TASKS:
        if plain == task.name.lower().replace("-", ""):
            return task
    known = [task.name for task in TASKS]
    raise DataError(f"unknown GLUE task {name!r}{nearest(name, known)}; known: {', '.join(known)}")
