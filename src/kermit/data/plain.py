"""Lines of text from files, plain or gzipped, each with its place for errors.

Files are read as bytes and split only at newlines (a text may hold any other Unicode line separator); a byte-order mark
at the start and a carriage return at the end of a line are removed. An invalid line is an error with its place, or is
counted in a `Report`; nothing is dropped silently.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import IO, cast

from kermit.errors import DataError, Place, member_of

logger = logging.getLogger(__name__)

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BROKEN_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)
"""Errors of a gzip stream that is truncated or damaged."""


class OnBad(StrEnum):
    """How to handle an invalid text."""

    ERROR = "error"
    SKIP = "skip"


class Fault(StrEnum):
    """Why a text is invalid."""

    INVALID_UTF8 = "invalid UTF-8"
    EMPTY = "empty text"
    TOO_LONG = "text longer than the limit"
    MALFORMED = "malformed record"


@dataclass(frozen=True)
class Line:
    """One line: its text, or None if the bytes are not UTF-8, and its place."""

    text: str | None
    place: Place


@dataclass
class Report:
    """Counts of texts that were read and skipped, by fault, with the first few places of each.

    `how_to_skip` is the advice in errors for skipping invalid texts; None if they cannot be skipped.
    """

    on_bad: OnBad = OnBad.ERROR
    how_to_skip: str | None = "set `data.on_bad: skip`"
    read: int = 0
    skipped: Counter[Fault] = field(default_factory=Counter)
    places: dict[Fault, list[Place]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.on_bad = member_of(OnBad, self.on_bad, "on_bad", DataError)

    def bad(self, fault: Fault, place: Place, detail: str = "") -> None:
        """Raise for an invalid text, or count it, depending on `on_bad`."""
        if self.on_bad is OnBad.ERROR:
            note = f" ({detail})" if detail else ""
            otherwise = f", or {self.how_to_skip} to count and skip" if self.how_to_skip else ""
            raise DataError(f"{fault.value}{note}; fix the line{otherwise}", place=place)
        self.skipped[fault] += 1
        places = self.places.setdefault(fault, [])
        if len(places) < 3:
            places.append(place)

    def summary(self) -> str:
        """Format one line for the log: texts read and skipped, with reasons and places."""
        if not self.skipped:
            return f"read {self.read:,} texts, skipped none"
        reasons = "; ".join(
            f"{count:,} {fault.value} (first at {', '.join(map(str, self.places[fault]))})"
            for fault, count in self.skipped.items()
        )
        return f"read {self.read:,} texts, skipped {sum(self.skipped.values()):,}: {reasons}"


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, through gzip if its name ends in `.gz`."""
    if path.is_dir():
        raise DataError(f"{path}: this is a folder; name a file")
    if not path.is_file():
        raise DataError(f"{path}: the file does not exist; a recipe's paths are relative to --data or KERMIT_DATA")
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def read_lines(path: Path) -> Iterator[Line]:
    """Read every line of a file, including blank ones."""
    with open_bytes(path) as stream:
        yield from lines_of(stream, str(path))


def lines_of(stream: IO[bytes], name: str) -> Iterator[Line]:
    """Read every line of a stream, including blank ones; the name is used for their places."""
    number = 0
    try:
        for number, raw in enumerate(stream, start=1):
            if number == 1:
                raw = raw.removeprefix(_BYTE_ORDER_MARK)
            place = Place(name, number)
            try:
                yield Line(raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8"), place)
            except UnicodeDecodeError:
                yield Line(None, place)
    except BROKEN_GZIP as error:
        raise DataError(f"invalid gzip stream: {error}; get the file again", place=Place(name, number + 1)) from error


def read_texts(path: Path, report: Report) -> Iterator[tuple[str, Place]]:
    """Read the valid texts of a file, one per line, each with its place; report the others."""
    for line in read_lines(path):
        if line.text is None:
            report.bad(Fault.INVALID_UTF8, line.place)
        elif not line.text.strip():
            report.bad(Fault.EMPTY, line.place)
        else:
            report.read += 1
            yield line.text, line.place


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a file's decompressed content, so that compressing the file does not change it.

    It is cached per process until the file changes.
    """
    now = path.stat() if path.is_file() else None
    return _checksum(path, None if now is None else (now.st_ino, now.st_size, now.st_mtime_ns))


@lru_cache
def _checksum(path: Path, state: tuple[int, ...] | None) -> str:
    digest = hashlib.sha256()
    with open_bytes(path) as stream:
        try:
            while block := stream.read(1 << 20):
                digest.update(block)
        except BROKEN_GZIP as error:
            raise DataError(f"{path}: invalid gzip stream: {error}; get the file again") from error
    return digest.hexdigest()
