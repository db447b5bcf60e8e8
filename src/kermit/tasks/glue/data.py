"""The examples of a GLUE task, from the files of GLUE's download or from the Hugging Face Hub.

A row that does not match its header, has an unknown label or lacks a text is an error with its place. Only QQP's
published training file has a few invalid rows; they are counted, reported and skipped. White space around a text is
removed: SST-2 has it in two of its three files. This module knows no model.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kermit.data.plain import read_lines
from kermit.errors import DataError, Place
from kermit.tasks.glue.table import HUB_DATASET, Columns, GlueFile, GlueTask, Split

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Example:
    """A text or a pair of texts.

    `label` is the number of the label, or the target of a regression; None in the test split, which has an `index`.
    """

    x: str
    y: str | None
    label: float | None
    index: str


@dataclass(frozen=True)
class Part:
    """The examples of one file; named `matched` or `mismatched` if a split has both."""

    name: str
    examples: list[Example]


@dataclass(frozen=True)
class GlueData:
    """Where the tasks are: a folder as in GLUE's download, or None for the Hub."""

    folder: Path | None = None

    @classmethod
    def find(cls, folder: Path | None) -> GlueData:
        """Return the given folder, `glue` in `KERMIT_DATA`, or the Hub."""
        if folder is None and (chosen := os.environ.get("KERMIT_DATA")):
            inside = Path(chosen).expanduser() / "glue"
            folder = inside if inside.is_dir() else None
        if folder is not None and not folder.is_dir():
            raise DataError(f"{folder}: there is no such folder; --data names the one that holds CoLA, SST-2 and so on")
        return cls(folder)

    def has(self, task: GlueTask, split: Split) -> bool:
        """Whether a split exists; on the Hub, whether it should."""
        files = task.files.get(split, ())
        if self.folder is None:
            return bool(files) and all(file.hub_split is not None for file in files)
        return bool(files) and all(self._find(task, file).is_file() for file in files)

    def read(self, task: GlueTask, split: Split) -> list[Part]:
        """Read all files of a split."""
        files = task.files.get(split)
        if files is None:
            raise DataError(f"{task.name} has no {split} split; it is answered by a model trained on {task.trained_on}")
        return [Part(file.part, self._read(task, split, file)) for file in files]

    def _read(self, task: GlueTask, split: Split, file: GlueFile) -> list[Example]:
        where = f"{HUB_DATASET}/{task.hub_config}" if self.folder is None else self._find(task, file)
        rows = _from_hub(task, split, file) if self.folder is None else self._rows(task, split, file)
        examples, broken = [], []
        for place, example in rows:
            if isinstance(example, Example):
                examples.append(example)
            elif task.has_broken_rows and split is Split.TRAIN:
                broken.append(place)
            else:
                raise DataError(f"{example}; fix or remove the line", place=place)
        if broken:
            first = ", ".join(map(str, broken[:3]))
            logger.warning("%s: %d invalid rows skipped, as published; the first: %s", where, len(broken), first)
        if not examples:
            raise DataError(f"{where}: the {split} split holds no example")
        return examples

    def _rows(self, task: GlueTask, split: Split, file: GlueFile) -> Iterator[tuple[Place, Example | str]]:
        """Yield every row of a file with its place: an example, or what is wrong with it."""
        path = self._find(task, file)
        if not path.is_file():
            raise DataError(
                f"{path}: there is no such file; {task.name} is looked for as GLUE's download lays it out, and without"
                " --data on the Hugging Face Hub"
            )
        header = file.header
        for line in read_lines(path):
            if line.text is None:
                yield line.place, "invalid UTF-8"
                continue
            cells = line.text.split("\t")
            if header is None:
                header = tuple(cells)
                _check_header(header, file.columns, split, line.place)
            elif len(cells) != len(header):
                yield line.place, f"{len(cells)} tab-separated columns instead of {len(header)} ({', '.join(header)})"
            else:
                yield line.place, _example(task, split, file.columns, dict(zip(header, cells, strict=True)))

    def _find(self, task: GlueTask, file: GlueFile) -> Path:
        """Return the file that exists, or the first possible name."""
        assert self.folder is not None
        places = [self.folder / folder / name for folder in task.folders or (task.name,) for name in file.names]
        return next((place for place in places if place.is_file()), places[0])


def _check_header(header: Sequence[str], columns: Columns, split: Split, place: Place) -> None:
    wanted = [columns.x, columns.y, columns.index if split is Split.TEST else columns.label]
    missing = [name for name in wanted if name is not None and name not in header]
    if missing:
        raise DataError(
            f"the header has no column {', '.join(missing)}, only {', '.join(header)}; give the file as GLUE's"
            " download has it",
            place=place,
        )


def _example(task: GlueTask, split: Split, columns: Columns, row: Mapping[str, Any]) -> Example | str:
    """Return the example of a row, or what is wrong with it."""
    x = row[columns.x].strip()
    y = None if columns.y is None else row[columns.y].strip()
    if split is Split.TEST:
        return Example(x, y, None, str(row[columns.index]))
    if not x or y == "":
        return f"the column {columns.x if not x else columns.y} is empty"
    written = row[columns.label]
    if task.is_regression:
        try:
            label = float(written)
        except ValueError:
            return f"the {columns.label} {written!r} is not a number"
        assert task.limits is not None
        low, high = task.limits
        if not low <= label <= high:
            return f"the {columns.label} {written} is not between {low:g} and {high:g}"
    elif written in task.labels:
        label = task.labels.index(written)
    else:
        return f"the {columns.label} {written!r} is none of {', '.join(task.labels)}"
    return Example(x, y, label, str(row.get(columns.index, "")))


def _from_hub(task: GlueTask, split: Split, file: GlueFile) -> Iterator[tuple[Place, Example | str]]:
    """Yield every row on the Hub with its place: an example, or what is wrong with it."""
    import datasets

    if file.hub_split is None:
        raise DataError(f"the {split} split of {task.name} is not on the Hub; name a folder that has it with --data")
    try:
        rows = datasets.load_dataset(HUB_DATASET, task.hub_config, split=file.hub_split)
    except Exception as error:
        raise DataError(
            f"{task.name} cannot be loaded from the Hub ({HUB_DATASET}): {error}; name a folder with GLUE's files with"
            " --data"
        ) from error
    columns = replace(task.hub_columns, label="label")
    for number, row in enumerate(rows):
        label = row["label"]
        written = label if task.is_regression else task.labels[label] if 0 <= label < len(task.labels) else str(label)
        place = Place(f"{HUB_DATASET}/{task.hub_config}[{file.hub_split}]", number)
        yield place, _example(task, split, columns, {**row, "label": written})


def examples_checksum(parts: Sequence[Part]) -> str:
    """Return a short hash of the texts and labels of examples, in order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(repr((part.name, len(part.examples))).encode())
        for example in part.examples:
            digest.update(repr((example.x, example.y, example.label)).encode())
    return digest.hexdigest()[:12]
