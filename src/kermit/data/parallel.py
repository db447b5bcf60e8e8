"""Pairs of texts, and unpaired texts, from several kinds of sources.

A `TextSource` is two line-aligned files, one file for one side (unpaired), TSV, JSONL, or a Hugging Face dataset.
`read_pairs` yields `Pair`s; the other side of an unpaired text is empty. Files are plain or gzipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Self

from pydantic import NonNegativeInt, model_validator

from kermit.data.hub import field_of, load_hub, read_hub
from kermit.data.plain import Fault, Line, Report, file_checksum, read_lines
from kermit.errors import DataError, Place
from kermit.validated_settings import Settings

Sides = tuple[Line | None, Line | None]
"""The lines of x and y; None for a side that the source lacks."""


@dataclass(frozen=True)
class Pair:
    """A text of each side, and their places; the other side of an unpaired text is empty."""

    x: str
    y: str
    places: tuple[Place, Place]


_ONLY_FOR = {("tsv",): ("columns",), ("jsonl", "hub"): ("fields",), ("hub",): ("config", "split")}


class TextSource(Settings):
    """A source of texts: line-aligned files (`x`, `y`), `tsv`, `jsonl` or `hub`.

    Texts are unpaired if one of the two files, columns or fields is None.

    Attributes:
        columns: the columns of x and y in a TSV, counted from 0.
        fields: the keys of x and y in a JSON object or a record of a dataset, dotted if nested.
        hub: the name of a Hugging Face dataset, with `config` and `split`.
    """

    x: Path | None = None
    y: Path | None = None
    tsv: Path | None = None
    jsonl: Path | None = None
    hub: str | None = None
    config: str | None = None
    split: str = "train"
    columns: tuple[NonNegativeInt | None, NonNegativeInt | None] = (0, 1)
    fields: tuple[str | None, str | None] = ("x", "y")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [self.x is not None or self.y is not None, self.tsv is not None, self.jsonl is not None, bool(self.hub)]
        if sum(kinds) != 1:
            raise ValueError("give exactly one of: x and/or y files, tsv, jsonl, hub")
        if not any(self.sides):
            raise ValueError("columns or fields: both are null; give the one that holds the texts")
        for kinds_of, names in _ONLY_FOR.items():
            if all(getattr(self, kind) is None for kind in kinds_of):
                for name in self.changed(*names):
                    raise ValueError(f"{name} applies only to {' and '.join(kinds_of)}; leave it out")
        return self

    @property
    def sides(self) -> tuple[bool, bool]:
        """Whether there are texts of x, and of y."""
        files = (self.x, self.y)
        named = files if any(files) else self.columns if self.tsv is not None else self.fields
        return named[0] is not None, named[1] is not None

    @property
    def paired(self) -> bool:
        """Whether every text has both sides."""
        return all(self.sides)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files to read, in order."""
        return tuple(path for path in (self.x, self.y, self.tsv, self.jsonl) if path is not None)

    def under(self, folder: Path) -> Self:
        """Return the source with relative paths resolved against a folder."""
        named = {name: getattr(self, name) for name in ("x", "y", "tsv", "jsonl")}
        found = {name: folder / path.expanduser() for name, path in named.items() if path is not None}
        return self.model_copy(update=found)

    def checksum(self) -> str:
        """Return a checksum of the content and how it is read; for a Hub dataset, its fingerprint."""
        parts = [file_checksum(path) for path in self.paths]
        if self.hub is not None:
            parts.append(load_hub(self.hub, self.config, self.split)._fingerprint)
        settings = (self.x is not None, self.y is not None, self.columns, self.fields, self.split)
        return hashlib.sha256(repr((parts, settings)).encode()).hexdigest()

    def checksums(self, folder: Path) -> dict[str, str]:
        """Return the checksum of each file by its name in the recipe, or of the dataset."""
        if self.hub is not None:
            return {self.hub: self.checksum()}
        return {str(path): file_checksum(folder / path.expanduser()) for path in self.paths}


def read_pairs(source: TextSource, report: Report) -> Iterator[Pair]:
    """Read every valid pair of a source, in order; the report handles the others."""
    for sides in _sides(source, report):
        given = [line for line in sides if line is not None]
        if broken := [line for line in given if line.text is None]:
            report.bad(Fault.INVALID_UTF8, broken[0].place)
        elif empty := [line for line in given if not (line.text or "").strip()]:
            report.bad(Fault.EMPTY, empty[0].place)
        else:
            report.read += 1
            x, y = ("" if line is None else line.text or "" for line in sides)
            x_place, y_place = ((line or given[0]).place for line in sides)
            yield Pair(x, y, (x_place, y_place))


def _sides(source: TextSource, report: Report) -> Iterator[Sides]:
    """Read the lines of both sides together, or of the only side."""
    if source.tsv is not None:
        yield from _from_records(source.tsv, lambda text: _cells(text, source.columns), report)
    elif source.jsonl is not None:
        yield from _from_records(source.jsonl, lambda text: _fields(text, source.fields), report)
    elif source.hub is not None:
        for place, texts in read_hub(source.hub, source.config, source.split, source.fields, report):
            x, y = (None if text is None else Line(_utf8(text), place) for text in texts)
            yield x, y
    elif source.x is not None and source.y is not None:
        yield from _from_aligned(source.x, source.y)
    elif source.x is not None:
        yield from ((line, None) for line in read_lines(source.x))
    elif source.y is not None:
        yield from ((None, line) for line in read_lines(source.y))


def _from_aligned(x_path: Path, y_path: Path) -> Iterator[Sides]:
    for count, (x, y) in enumerate(zip_longest(read_lines(x_path), read_lines(y_path))):
        if x is None or y is None:
            shorter, longer = (x_path, y_path) if x is None else (y_path, x_path)
            total = sum(1 for _ in read_lines(longer))
            raise DataError(
                f"the file ends here, but {longer} has {total:,} lines; line-aligned files need the same number of"
                " lines",
                place=Place(str(shorter), count),
            )
        yield x, y


def _from_records(path: Path, read: Callable[[str], Sequence[str | None]], report: Report) -> Iterator[Sides]:
    """Read the texts of x and y from every line; None for a side that the source lacks."""
    for line in read_lines(path):
        if line.text is None:
            yield line, None
            continue
        try:
            x, y = (None if text is None else Line(_utf8(text), line.place) for text in read(line.text))
        except (ValueError, KeyError, TypeError) as error:
            what = f"no field {error}" if isinstance(error, KeyError) else str(error)
            report.bad(Fault.MALFORMED, line.place, what)
            continue
        yield x, y


def _cells(text: str, columns: Sequence[int | None]) -> list[str | None]:
    cells = text.split("\t")
    if (last := max(column for column in columns if column is not None)) >= len(cells):
        raise ValueError(f"column {last} is missing; columns are counted from 0")
    return [None if column is None else cells[column] for column in columns]


def _fields(text: str, fields: Sequence[str | None]) -> list[str | None]:
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg}") from error
    return [None if field is None else field_of(record, field) for field in fields]


def _utf8(text: str) -> str | None:
    """Return the text, or None if it holds an unpaired surrogate, which JSON can encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text
