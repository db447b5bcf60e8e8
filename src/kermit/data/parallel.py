"""Pairs of texts, and texts that lack their other half, from wherever they are.

A `TextSource` says where: two line-aligned files, one file for one side (unpaired), TSV, JSONL, or a Hugging Face
dataset by name. `read_pairs` yields `Pair`s with the missing side empty. Files are plain or gzipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from kermit.data.hub import field_of, load_hub
from kermit.data.plain import Fault, Line, Report, file_checksum, read_lines, read_texts
from kermit.errors import DataError


@dataclass(frozen=True)
class Pair:
    """A text of each side; an unpaired text has the other side empty. `places` say where each came from."""

    x: str
    y: str
    places: tuple[str, str]


@dataclass(frozen=True)
class TextSource:
    """Where texts are: exactly one of line-aligned files (`x`, `y`), `tsv`, `jsonl` or `hub`.

    Attributes:
        x, y: line-aligned files; with only one of them the texts are unpaired.
        tsv: a file of tab-separated columns; `columns` are the two that hold x and y, counted from 0.
        jsonl: a file of JSON objects, one a line; `fields` are the two keys, dotted where nested.
        hub: a Hugging Face dataset's name, with `config` and `split`; `fields` as for `jsonl`.
    """

    x: Path | None = None
    y: Path | None = None
    tsv: Path | None = None
    jsonl: Path | None = None
    hub: str | None = None
    config: str | None = None
    split: str = "train"
    columns: tuple[int, int] = (0, 1)
    fields: tuple[str, str] = ("x", "y")

    @property
    def paired(self) -> bool:
        """Whether every text has its other half."""
        return (self.x is None) == (self.y is None)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files read, in order."""
        return tuple(path for path in (self.x, self.y, self.tsv, self.jsonl) if path is not None)


def read_pairs(source: TextSource, report: Report) -> Iterator[Pair]:
    """Every whole pair of a source, in order; what is broken raises or is counted, as the report says."""
    if source.tsv is not None:
        yield from _whole(_from_tsv(source.tsv, source.columns, report), report)
    elif source.jsonl is not None:
        yield from _whole(_from_jsonl(source.jsonl, source.fields, report), report)
    elif source.hub is not None:
        yield from _whole(_from_hub(source.hub, source, report), report)
    elif source.x is not None and source.y is not None:
        yield from _whole(_from_aligned(source.x, source.y), report)
    elif source.x is not None:
        yield from _one_side(source.x, report, is_x=True)
    elif source.y is not None:
        yield from _one_side(source.y, report, is_x=False)
    else:
        raise DataError("a data source names no text; give x and y, one of them, tsv, jsonl or hub")


def checksum(source: TextSource) -> str:
    """A hash of what the source holds and how it is read; a Hub dataset answers with its fingerprint there."""
    parts = [file_checksum(path) for path in source.paths]
    if source.hub is not None:
        parts.append(load_hub(source.hub, source.config, source.split)._fingerprint)
    settings = (source.x is not None, source.y is not None, source.columns, source.fields, source.split)
    return hashlib.sha256(repr((parts, settings)).encode()).hexdigest()


def _whole(pairs: Iterator[tuple[Line, Line]], report: Report) -> Iterator[Pair]:
    for x, y in pairs:
        if x.text is None or y.text is None:
            report.bad(Fault.INVALID_UTF8, x.place if x.text is None else y.place)
        elif not x.text.strip() or not y.text.strip():
            report.bad(Fault.EMPTY, y.place if x.text.strip() else x.place)
        else:
            report.read += 1
            yield Pair(x.text, y.text, (x.place, y.place))


def _one_side(path: Path, report: Report, *, is_x: bool) -> Iterator[Pair]:
    for text, place in read_texts(path, report):
        yield Pair(text if is_x else "", "" if is_x else text, (place, place))


def _from_aligned(x_path: Path, y_path: Path) -> Iterator[tuple[Line, Line]]:
    for count, (x, y) in enumerate(zip_longest(read_lines(x_path), read_lines(y_path))):
        if x is None or y is None:
            shorter, longer = (x_path, y_path) if x is None else (y_path, x_path)
            total = sum(1 for _ in read_lines(longer))
            raise DataError(
                f"{shorter}:{count}: the file ends here, but {longer} has {total:,} lines; line-aligned files need"
                " the same number, line n of one beside line n of the other"
            )
        yield x, y


def _from_tsv(path: Path, columns: tuple[int, int], report: Report) -> Iterator[tuple[Line, Line]]:
    for line in read_lines(path):
        if line.text is None:
            yield line, line
            continue
        cells = line.text.split("\t")
        if max(columns) >= len(cells):
            report.bad(Fault.MALFORMED, line.place, f"{len(cells)} columns, but column {max(columns)} is asked for")
            continue
        yield Line(cells[columns[0]], line.place), Line(cells[columns[1]], line.place)


def _from_jsonl(path: Path, fields: tuple[str, str], report: Report) -> Iterator[tuple[Line, Line]]:
    for line in read_lines(path):
        if line.text is None:
            yield line, line
            continue
        try:
            record = json.loads(line.text)
            x, y = (field_of(record, name) for name in fields)
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            report.bad(Fault.MALFORMED, line.place, f"{type(error).__name__}: {error}")
            continue
        yield Line(_utf8(x), line.place), Line(_utf8(y), line.place)


def _utf8(text: str) -> str | None:
    """The text, or None where it holds half of a surrogate pair, which JSON can spell out."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


def _from_hub(name: str, source: TextSource, report: Report) -> Iterator[tuple[Line, Line]]:
    for index, record in enumerate(load_hub(name, source.config, source.split)):
        place = f"{name}[{source.split}]:{index}"
        try:
            x, y = (field_of(record, field) for field in source.fields)
        except KeyError as error:
            raise DataError(
                f"{place}: the dataset has no text field {error}; set `fields` to two of its own"
            ) from error
        except TypeError as error:
            report.bad(Fault.MALFORMED, place, str(error))
            continue
        yield Line(x, place), Line(y, place)
