"""Articles of plain text from a file, a folder of files, or a Hugging Face dataset: what pretraining reads.

In a file, plain or gzipped, a line is a paragraph and a blank line separates articles; every file starts a new one. In
a dataset a record is an article, and each of its lines a paragraph. Text is streamed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kermit.data.hub import field_of, load_hub
from kermit.data.plain import Fault, Report, file_checksum, read_lines
from kermit.errors import DataError, Place

# The end of a sentence, perhaps: its mark, what closes after it, and the space (which Chinese and Japanese lack).
_END = re.compile(r"[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[”’」』）]*\s*")  # noqa: RUF001
_OPENED = re.compile(r"[\"'“‘«(\[¿¡]*")  # noqa: RUF001


@dataclass(frozen=True)
class ArticleSource:
    """Where articles are: exactly one of `path`, a file or a folder of files, or `hub`.

    Attributes:
        path: a file, or a folder whose files are read in the order of their names, except hidden ones.
        hub: a Hugging Face dataset's name, with `config` and `split`; `field` holds an article's text.
    """

    path: Path | None = None
    hub: str | None = None
    config: str | None = None
    split: str = "train"
    field: str = "text"

    @property
    def name(self) -> str:
        """For messages."""
        return self.hub or str(self.path)

    @property
    def files(self) -> list[Path]:
        """The files read, in order."""
        if self.path is None:
            return []
        if not self.path.is_dir():
            return [self.path]
        found = sorted(path for path in self.path.rglob("*") if path.is_file() and not path.name.startswith("."))
        if not found:
            raise DataError(f"{self.path}: the folder holds no file; put text files there, plain or .gz")
        return found


@dataclass(frozen=True)
class Paragraph:
    """A paragraph, and whether it is the first of its article."""

    text: str
    opens: bool


def read_paragraphs(source: ArticleSource, report: Report) -> Iterator[Paragraph]:
    """Read every paragraph of a source, in order; the report decides about lines that are not UTF-8."""
    if source.hub is not None:
        for place, article in _hub_articles(source.hub, source, report):
            yield from _paragraphs(((line, place) for line in article), report)
        return
    for file in source.files:
        yield from _paragraphs(((line.text, line.place) for line in read_lines(file)), report)


def _paragraphs(lines: Iterator[tuple[str | None, Place]], report: Report) -> Iterator[Paragraph]:
    opens = True
    for text, place in lines:
        if text is None:
            report.bad(Fault.INVALID_UTF8, place)
        elif not text.strip():
            opens = True
        else:
            report.read += 1
            yield Paragraph(text.strip(), opens)
            opens = False


def _hub_articles(name: str, source: ArticleSource, report: Report) -> Iterator[tuple[Place, list[str]]]:
    for index, record in enumerate(load_hub(name, source.config, source.split)):
        place = Place(f"{name}[{source.split}]", index)
        try:
            text = field_of(record, source.field)
        except KeyError as error:
            raise DataError(
                f"the dataset has no text field {error}; set `field` to one of its own", place=place
            ) from error
        except TypeError as error:
            report.bad(Fault.MALFORMED, place, str(error))
            continue
        yield place, [line for line in text.split("\n") if line.strip()]


def articles_checksum(source: ArticleSource) -> str:
    """Return a hash of the content; for a Hub dataset its fingerprint."""
    parts = [file_checksum(file) for file in source.files]
    if source.hub is not None:
        parts += [load_hub(source.hub, source.config, source.split)._fingerprint, source.field]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def split_sentences(paragraph: str) -> list[str]:
    """Split a paragraph into sentences: at a full stop and the like, unless a lower-case letter follows.

    An abbreviation before a name is mistaken for an end, which is harmless here: sentences are only the pieces that
    pairs are made of. Only the space between sentences is lost.
    """
    sentences, start = [], 0
    for match in _END.finditer(paragraph):
        opened = _OPENED.match(paragraph, match.end())
        following = paragraph[opened.end()] if opened and opened.end() < len(paragraph) else ""
        if following and not following.islower():
            sentences.append(paragraph[start : match.end()].rstrip())
            start = match.end()
    return [*sentences, paragraph[start:]] if start < len(paragraph) else sentences
