"""Write results to stdout, or to a file that gets its name once it is complete."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

import typer

from kermit.errors import DataError, Place
from kermit.provenance import partial

if TYPE_CHECKING:
    from kermit.rendering import Layout, ReadableTrace


class Results:
    """Writes lines of results immediately to a file, or stdout if it is None; a context manager.

    A file is written as ``NAME.part`` and renamed at the end, so an interrupted run keeps its results but leaves no
    file that looks complete. A missing folder is an error at the start. Files named ``.gz`` are compressed.
    """

    def __init__(self, output: Path | None = None) -> None:
        self.output = output
        self._stream: IO[str] | None = None

    def __enter__(self) -> Results:
        if self.output is not None:
            self._target = self.output.resolve()  # a link stays one
            in_place = self._target.exists() and not self._target.is_file()  # such as /dev/null
            self._path = self._target if in_place else partial(self._target)
            packed = self._target.suffix == ".gz"
            try:
                self._stream = (gzip.open if packed else Path.open)(self._path, "wt", encoding="utf-8")
            except OSError as error:
                raise DataError(f"--output {self.output}: {error.strerror}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._stream is None:
            return
        self._stream.close()
        if self._path == self._target:
            return
        if kind is None:
            self._path.replace(self._target)
        elif self._path.stat().st_size == 0:
            self._path.unlink()

    def line(self, text: str) -> None:
        """Write one line; line breaks in the text become spaces."""
        self.write(text.replace("\n", " ").replace("\r", " ") + "\n")

    def texts(self, texts: Sequence[str]) -> None:
        """Write a text on one line, or two separated by a tab; `kermit.cli.inputs` reads this format."""
        self.line("\t".join(text.replace("\t", " ") for text in texts) if len(texts) > 1 else texts[0])

    def json(self, record: dict[str, Any]) -> None:
        """Write a JSON object on one line; numbers that are not finite become null."""
        strange = {key: None for key, value in record.items() if isinstance(value, float) and not isfinite(value)}
        self.write(json.dumps(record | strange, ensure_ascii=False, allow_nan=False) + "\n")

    def write(self, text: str) -> None:
        """Write text unchanged; a progress bar on the same terminal makes room."""
        from tqdm import tqdm

        if self._stream is not None:
            self._stream.write(text)
            self._stream.flush()
            return
        with tqdm.external_write_mode(file=sys.stdout):
            typer.echo(text, nl=False, color=True)  # leaves the text unchanged

    def trace(self, trace: ReadableTrace, layout: Layout | None = None) -> None:
        """Write a decode, by rounds unless another layout is given; in colour if the terminal supports it."""
        from rich.console import Console

        from kermit.rendering import Layout

        console = Console(file=self._stream or sys.stdout, highlight=False, soft_wrap=True)
        colour = console.color_system is not None and not console.no_color
        with console.capture() as capture:
            for line in trace.terminal_lines(colour=colour, layout=layout or Layout.ROUNDS):
                console.print(line)
        self.write(capture.get())


def warn_if_cut(place: Place, finish: str) -> None:
    """Warn on stderr if a limit ended a text."""
    if finish != "finished":
        from tqdm import tqdm

        with tqdm.external_write_mode(file=sys.stderr):
            typer.echo(f"{place}: stopped by {finish}; the text may be incomplete", err=True)


def check_file(option: str, path: Path | None, *, in_new_folder: bool = False) -> None:
    """Raise early if a file cannot be written; `in_new_folder` allows a missing folder."""
    if path is not None and not path.parent.is_dir() and not in_new_folder:
        raise DataError(f"{option} {path}: the folder {path.parent} does not exist")
    if path is not None and path.is_dir():
        raise DataError(f"{option} {path} is a folder; give a file")


def check_folder(option: str, path: Path) -> None:
    """Raise if a path exists and is not a folder."""
    if path.exists() and not path.is_dir():
        raise DataError(f"{option} {path} is a file; give a folder")
