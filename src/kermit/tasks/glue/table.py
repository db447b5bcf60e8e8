"""GLUE's tasks as rows of one table: their files, columns, labels and metrics.

Files are those of GLUE's own download: tab-separated, a double quote is a character like any other, and columns are
found by the names in the header. Labels are in the order of the Hugging Face Hub, and written as in the files, which is
also how the test server wants them. This module reads nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kermit.errors import DataError

HUB_DATASET = "nyu-mll/glue"


class Split(StrEnum):
    """Which examples of a task; test labels are not public."""

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
class Columns:
    """The columns of a file that hold the texts, the label and the row's number; `y` is None for single texts."""

    x: str
    y: str | None = None
    label: str = "label"
    index: str = "index"


@dataclass(frozen=True)
class GlueFile:
    """A file of a task.

    Attributes:
        names: possible names; the first that exists is read.
        columns: the columns to take.
        part: what tells it from others of its split, such as `matched`.
        header: the names of the columns where the file has no header line.
        hub_split: its split on the Hub; None if it is not there.
    """

    names: tuple[str, ...]
    columns: Columns
    part: str = ""
    header: tuple[str, ...] | None = None
    hub_split: str | None = None


@dataclass(frozen=True)
class GlueTask:
    """A row of the table.

    Attributes:
        labels: as in the files and for the test server; none for a regression.
        submission: the server's name for each file of the test split, with the number of its rows.
        limits: the smallest and largest number of a regression.
        folders: possible names of the folder.
        trained_on: the task whose model answers this one, if it has no training text.
        has_broken_rows: whether the published training file has invalid rows, which are then skipped.
    """

    name: str
    labels: tuple[str, ...]
    metrics: tuple[Metric, ...]
    files: Mapping[Split, tuple[GlueFile, ...]]
    hub_config: str
    hub_columns: Columns
    submission: Mapping[str, int]
    limits: tuple[float, float] | None = None
    folders: tuple[str, ...] = ()
    trained_on: str | None = None
    has_broken_rows: bool = False

    @property
    def is_regression(self) -> bool:
        """Whether the answer is a number instead of a label."""
        return not self.labels


def _files(
    columns: Columns,
    *,
    test: Columns | None = None,
    parts: tuple[str, ...] = ("",),
    header: tuple[str, ...] | None = None,
) -> dict[Split, tuple[GlueFile, ...]]:
    """`train.tsv`, `dev.tsv` and `test.tsv`, or `dev_PART.tsv` and `test_PART.tsv` for several parts."""

    def held_out(split: Split, columns: Columns, header: tuple[str, ...] | None, hub: str) -> tuple[GlueFile, ...]:
        tails = [f"_{part}" if part else "" for part in parts]
        return tuple(
            GlueFile((f"{split}{tail}.tsv",), columns, part, header, f"{hub}{tail}")
            for part, tail in zip(parts, tails, strict=True)
        )

    return {
        Split.TRAIN: (GlueFile(("train.tsv",), columns, header=header, hub_split="train"),),
        Split.DEV: held_out(Split.DEV, columns, header, "validation"),
        Split.TEST: held_out(Split.TEST, test or columns, None, "test"),
    }


_PAIR = Columns("sentence1", "sentence2")
_MRPC = Columns("#1 String", "#2 String", "Quality")
_PREMISE = Columns("premise", "hypothesis", index="idx")
_HUB_SINGLE = Columns("sentence", index="idx")
_HUB_PAIR = Columns("sentence1", "sentence2", index="idx")
_BINARY = ("0", "1")
_ENTAILS = ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")

TASKS: tuple[GlueTask, ...] = (
    GlueTask(
        "CoLA",
        _BINARY,
        (Metric.MATTHEWS,),
        _files(Columns("sentence"), header=("source", "label", "annotation", "sentence")),
        "cola",
        _HUB_SINGLE,
        {"CoLA": 1063},
    ),
    GlueTask("SST-2", _BINARY, (Metric.ACCURACY,), _files(Columns("sentence")), "sst2", _HUB_SINGLE, {"SST-2": 1821}),
    GlueTask("MRPC", _BINARY, (Metric.F1, Metric.ACCURACY), _files(_MRPC), "mrpc", _HUB_PAIR, {"MRPC": 1725}),
    GlueTask(
        "STS-B",
        (),
        (Metric.PEARSON, Metric.SPEARMAN),
        _files(Columns("sentence1", "sentence2", "score")),
        "stsb",
        _HUB_PAIR,
        {"STS-B": 1379},
        limits=(0.0, 5.0),
    ),
    GlueTask(
        "QQP",
        _BINARY,
        (Metric.F1, Metric.ACCURACY),
        _files(Columns("question1", "question2", "is_duplicate", "id")),
        "qqp",
        Columns("question1", "question2", index="idx"),
        {"QQP": 390_965},
        has_broken_rows=True,
    ),
    GlueTask(
        "MNLI",
        _NLI,
        (Metric.ACCURACY,),
        _files(Columns("sentence1", "sentence2", "gold_label"), parts=("matched", "mismatched")),
        "mnli",
        _PREMISE,
        {"MNLI-m": 9796, "MNLI-mm": 9847},
    ),
    GlueTask(
        "QNLI",
        _ENTAILS,
        (Metric.ACCURACY,),
        _files(Columns("question", "sentence")),
        "qnli",
        Columns("question", "sentence", index="idx"),
        {"QNLI": 5463},
    ),
    GlueTask("RTE", _ENTAILS, (Metric.ACCURACY,), _files(_PAIR), "rte", _HUB_PAIR, {"RTE": 3000}),
    GlueTask("WNLI", _BINARY, (Metric.ACCURACY,), _files(_PAIR), "wnli", _HUB_PAIR, {"WNLI": 146}),
    GlueTask(
        "AX",
        _NLI,
        (Metric.MATTHEWS,),
        {
            Split.DEV: (GlueFile(("diagnostic-full.tsv",), Columns("Premise", "Hypothesis", "Label")),),
            Split.TEST: (GlueFile(("test.tsv", "diagnostic.tsv"), _PAIR, hub_split="test"),),
        },
        "ax",
        _PREMISE,
        {"AX": 1104},
        folders=("AX", "diagnostic"),
        trained_on="MNLI",
    ),
)


def task_named(name: str) -> GlueTask:
    """Return the task of a name, ignoring case and hyphens."""
    known = {_plain(task.name): task for task in TASKS}
    if _plain(name) in known:
        return known[_plain(name)]
    near = difflib.get_close_matches(_plain(name), list(known), n=1)
    hint = f"; did you mean {known[near[0]].name}" if near else ""
    raise DataError(f"GLUE has no task {name!r}{hint}; there are {', '.join(task.name for task in TASKS)}")


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
