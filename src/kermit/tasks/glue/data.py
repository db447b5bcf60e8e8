"""The examples of a GLUE task, from the files of GLUE's download.

A row that does not match its header, has an unknown label or lacks a text is an error with its place, except in QQP's
published training file, whose few invalid rows are counted, reported and skipped. White space around a text is removed:
two of the three files of SST-2 have it. This module knows no model.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kermit.data.plain import read_lines
from kermit.errors import DataError, Place
from kermit.tasks.glue.table import GlueTask, Split

logger = logging.getLogger(__name__)

_ALIASES = {
    "Premise": "sentence1",
    "Hypothesis": "sentence2",
    "Label": "label",
}  # column names of the labelled diagnostic file


@dataclass(frozen=True)
class Example:
    """A text or a pair of texts.

    `label` is the label's index, or the target of a regression; None in the test split, which has an `index` instead.
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
    """The folder that GLUE's download creates."""

    folder: Path

    @classmethod
    def find(cls, folder: Path | None) -> GlueData:
        """Use the given folder, or `glue` in `KERMIT_DATA`."""
        folder = folder or Path(os.environ.get("KERMIT_DATA", ".")).expanduser() / "glue"
        if not folder.is_dir():
            raise DataError(f"{folder} does not exist; set --data to the folder that holds CoLA, SST-2 and so on")
        return cls(folder)

    def has(self, task: GlueTask, split: Split) -> bool:
        """Return whether all files of a split exist."""
        return all(path.is_file() for _, path in self._files(task, split))

    def read(self, task: GlueTask, split: Split) -> list[Part]:
        """Read all files of a split."""
        if task.trained_on and split is Split.TRAIN:
            raise DataError(f"{task.name} has no {split} split; use a model finetuned on {task.trained_on}")
        return [Part(part, self._read(task, split, path)) for part, path in self._files(task, split)]

    def _files(self, task: GlueTask, split: Split) -> list[tuple[str, Path]]:
        """List the files of a split, each with the name of its part."""
        if split in task.files:
            places = [self.folder / name for name in task.files[split]]
            return [("", next((place for place in places if place.is_file()), places[0]))]
        parts = ("",) if split is Split.TRAIN else task.parts
        return [(part, self.folder / task.name / f"{split}{part and f'_{part}'}.tsv") for part in parts]

    def _read(self, task: GlueTask, split: Split, path: Path) -> list[Example]:
        examples, broken = [], []
        for place, example in _rows(task, split, path):
            if isinstance(example, Example):
                examples.append(example)
            elif task.has_broken_rows and split is Split.TRAIN:
                broken.append(place)
            else:
                raise DataError(f"{example}; fix or remove the line", place=place)
        if broken:
            first = ", ".join(map(str, broken[:3]))
            logger.warning("%s: skipped %d invalid rows of the published file; the first: %s", path, len(broken), first)
        if not examples:
            raise DataError(f"{path}: the {split} split has no examples; download it again")
        return examples


def _rows(task: GlueTask, split: Split, path: Path) -> Iterator[tuple[Place, Example | str]]:
    """Yield every row of a file with its place: an example, or what is wrong with it."""
    header = None if split is Split.TEST else task.header
    for line in read_lines(path):
        if line.text is None:
            yield line.place, "invalid UTF-8"
            continue
        cells = line.text.split("\t")
        if header is None:
            header = tuple(_ALIASES.get(name, name) for name in cells)
            wanted = [*task.columns, task.index if split is Split.TEST else task.label]
            if missing := [name for name in wanted if name not in header]:
                known = ", ".join(header)
                raise DataError(f"the header lacks the column {', '.join(missing)}; it has {known}", place=line.place)
        elif len(cells) != len(header):
            yield line.place, f"{len(cells)} tab-separated columns instead of {len(header)} ({', '.join(header)})"
        else:
            yield line.place, _example(task, split, dict(zip(header, cells, strict=True)))


def _example(task: GlueTask, split: Split, row: Mapping[str, str]) -> Example | str:
    """Return the example of a row, or what is wrong with it."""
    texts = [row[column].strip() for column in task.columns]
    x, y = texts[0], texts[1] if len(texts) > 1 else None
    if split is Split.TEST:
        return Example(x, y, None, row[task.index])
    if "" in texts:
        return f"the column {task.columns[texts.index('')]} is empty"
    written = row[task.label]
    if task.limits is None:
        if written not in task.labels:
            return f"the {task.label} {written!r} is none of {', '.join(task.labels)}"
        return Example(x, y, task.labels.index(written), "")
    low, high = task.limits
    try:
        number = float(written)
    except ValueError:
        return f"the {task.label} {written!r} is not a number"
    if not low <= number <= high:
        return f"the {task.label} {written} is not between {low:g} and {high:g}"
    return Example(x, y, number, "")


def examples_checksum(parts: Sequence[Part]) -> str:
    """Return a short checksum of the texts and labels of examples, in order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(repr((part.name, [(each.x, each.y, each.label) for each in part.examples])).encode())
    return digest.hexdigest()[:12]
