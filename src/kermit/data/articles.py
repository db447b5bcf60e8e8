"""Articles of plain text for pretraining, from a file, a folder of files, or a Hugging Face dataset.

In a file, plain or gzipped, each line is a paragraph and a blank line separates articles; every file starts a new
article. In a dataset each record is an article, and each of its lines a paragraph. Text is streamed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import model_validator

from kermit.data.hub import load_hub, read_hub
from kermit.data.plain import Fault, Report, file_checksum, read_lines
from kermit.errors import DataError, Place
from kermit.validated_settings import Settings

# A possible sentence end: the final mark, closing quotes or brackets, and the space (absent in Chinese and Japanese).
_END = re.compile(r"[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[”’」』）]*\s*")  # noqa: RUF001
_OPENED = re.compile(r"[\"'“‘«(\[¿¡]*")  # noqa: RUF001


class ArticleSource(Settings):
    """A source of articles: `text`, a file or a folder of files, or `hub`, a dataset with articles in its `field`.

    The files of a folder are read in the order of their names, skipping hidden files.
    """

    text: Path | None = None
    hub: str | None = None
    config: str | None = None
    split: str = "train"
    field: str = "text"

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.text is None) == (self.hub is None):
            raise ValueError("give either text, a file or folder, or hub, a dataset's name")
        if self.hub is None:
            for name in self.changed("config", "split", "field"):
                raise ValueError(f"{name} applies only to hub; leave it out")
        return self

    @property
    def title(self) -> str:
        """The source's name in messages."""
        return self.hub or str(self.text)

    @property
    def files(self) -> list[Path]:
        """The files to read, in order."""
        if self.text is None:
            return []
        if not self.text.is_dir():
            return [self.text]
        found = sorted(path for path in self.text.rglob("*") if path.is_file() and not path.name.startswith("."))
        if not found:
            raise DataError(f"{self.text}: the folder is empty; add text files, plain or .gz")
        return found

    def under(self, folder: Path) -> Self:
        """Return the source with a relative path resolved against a folder."""
        return self if self.text is None else self.model_copy(update={"text": folder / self.text.expanduser()})

    def checksum(self) -> str:
        """Return a checksum of the content; for a Hub dataset, its fingerprint."""
        parts = [file_checksum(file) for file in self.files]
        if self.hub is not None:
            parts += [load_hub(self.hub, self.config, self.split)._fingerprint, self.field]
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def checksums(self, folder: Path) -> dict[str, str]:
        """Return the checksum of each file by its name in the recipe, or of the dataset."""
        found = self.under(folder)
        if self.text is None or found.text is None:
            return {self.title: self.checksum()}
        return {str(self.text / file.relative_to(found.text)): file_checksum(file) for file in found.files}


@dataclass(frozen=True)
class Paragraph:
    """A paragraph, and whether it is the first of its article."""

    text: str
    opens: bool


def read_paragraphs(source: ArticleSource, report: Report) -> Iterator[Paragraph]:
    """Read every paragraph of a source, in order; the report handles lines that are not UTF-8."""
    if source.hub is not None:
        for place, [article] in read_hub(source.hub, source.config, source.split, [source.field], report):
            lines = [line for line in (article or "").split("\n") if line.strip()]
            yield from _paragraphs(((line, place) for line in lines), report)
        return
    for file in source.files:
        yield from _paragraphs(((line.text, line.place) for line in read_lines(file)), report)


def _paragraphs(lines: Iterable[tuple[str | None, Place]], report: Report) -> Iterator[Paragraph]:
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


def split_sentences(paragraph: str) -> list[str]:
    """Split a paragraph into sentences after final punctuation, unless a lower-case letter follows.

    An abbreviation before a name is mistaken for a sentence end, which is harmless here: sentences are only pieces to
    pack into pairs. Only the space between sentences is lost.
    """
    sentences, start = [], 0
    for match in _END.finditer(paragraph):
        opened = _OPENED.match(paragraph, match.end())
        following = paragraph[opened.end()] if opened and opened.end() < len(paragraph) else ""
        if following and not following.islower():
            sentences.append(paragraph[start : match.end()].rstrip())
            start = match.end()
    return [*sentences, paragraph[start:]] if start < len(paragraph) else sentences
