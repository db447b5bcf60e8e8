"""Read the inputs of a verb: texts from the command line, a file or stdin, each with its place for errors.

A line is a text; a line with a tab is a pair, in the format that `kermit sample` and `kermit complete` print. Blank
lines count, so that line n of the output belongs to line n of the input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

from kermit.errors import DataError, Place, placed

_Result = TypeVar("_Result")

CHUNK = 512
"""Number of texts per chunk; results are written after each chunk."""


@dataclass(frozen=True)
class InputText:
    """A text, or a pair if `y` is set, with its place (file and line, or argument) and a seed for sampling."""

    x: str
    y: str | None
    place: Place
    seed: int = 0

    def record(self, *, on_y: bool) -> dict[str, Any]:
        """Return the given sides for JSON; a single text belongs to the second side if `on_y`."""
        return {"xy"[on_y]: self.x} if self.y is None else {"x": self.x, "y": self.y}


def given_texts(texts: Sequence[str] | None, input_: Path | None) -> list[InputText]:
    """Read texts from arguments, a file, or stdin if neither is given and stdin is not a terminal."""
    if texts and input_ is not None:
        raise DataError("give texts as arguments or with --input FILE, not both")
    if texts:
        places = [Place(f"argument {number}") for number in range(1, len(texts) + 1)]
        return [InputText(_checked(text, place), None, place) for text, place in zip(texts, places, strict=True)]
    return given_lines(input_)


def given_lines(path: Path | None, option: str = "--input") -> list[InputText]:
    """Read the lines of the file given with `option`; - is stdin, and None is stdin if it is not a terminal."""
    from kermit.data import plain

    if path is None or str(path) == "-":
        if sys.stdin is None or (path is None and sys.stdin.isatty()):  # None if it was closed
            raise DataError(f"give texts as arguments, with {option} FILE, or on stdin")
        lines = plain.lines_of(sys.stdin.buffer, "stdin")
    else:
        check_there(option, path)
        pipe = not path.is_file()  # such as <(head texts.txt)
        lines = plain.lines_of(BytesIO(path.read_bytes()), str(path)) if pipe else plain.read_lines(path)
    return [InputText(_checked(line.text, line.place), None, line.place) for line in lines]


def check_there(option: str, path: Path) -> None:
    """Raise if the file does not exist."""
    if path.is_dir():
        raise DataError(f"{option} {path} is a folder; give a file")
    if not path.exists():
        raise DataError(f"{option} {path} does not exist")


def given_pairs(
    texts: Sequence[str] | None, x: str | None, y: str | None, input_: Path | None, *, alone: bool = True
) -> list[InputText]:
    """Read texts or pairs from arguments, --x and --y, or lines of a file or stdin.

    One side without the other is a single text if `alone`, and a pair with an empty side otherwise.
    """
    if x is not None or y is not None:
        if texts or input_ is not None:
            raise DataError("give a pair with --x and --y, or texts as arguments or with --input FILE, not both")
        if alone and (x is None or y is None):
            place = Place("--x" if y is None else "--y")
            return [InputText(_checked(x if y is None else y, place), None, place)]
        return [InputText(_checked(x or "", Place("--x")), _checked(y or "", Place("--y")), Place("the pair"))]
    found = given_texts(texts, input_)
    return found if texts else [_split(given, alone) for given in found]


def drawn(given: Sequence[InputText], samples: int, seed: int) -> list[InputText]:
    """Repeat each input once per sample, with consecutive seeds starting at `seed`; once if nothing is sampled."""
    return [replace(one, seed=seed + draw) for one in given for draw in range(max(1, samples))]


def sides(given: Sequence[InputText], *, on_y: bool) -> tuple[list[str] | None, list[str] | None]:
    """Return the first and second sides; single texts belong to the second side if `on_y`."""
    texts = [one.x for one in given]
    if all(one.y is None for one in given):
        return (None, texts) if on_y else (texts, None)
    return texts, [one.y or "" for one in given]


def asked_apart(given: Sequence[InputText], ask: Callable[[Sequence[InputText]], Iterable[_Result]]) -> list[_Result]:
    """Process single texts and pairs separately, and return all results in the order of the inputs.

    This way a model of single texts never sees a second side. Errors name the place of their text.
    """
    found: dict[int, _Result] = {}
    for alone in (True, False):
        numbers = [number for number, one in enumerate(given) if (one.y is None) is alone]
        part = [given[number] for number in numbers]
        if part:
            with placed([one.place for one in part]):
                found.update(zip(numbers, ask(part), strict=True))
    return [found[number] for number in range(len(given))]


def chunks(given: Sequence[InputText]) -> Iterator[Sequence[InputText]]:
    """Split inputs into chunks whose results are written together."""
    for start in range(0, len(given), CHUNK):
        yield given[start : start + CHUNK]


def _split(given: InputText, alone: bool) -> InputText:
    x, tab, y = given.x.partition("\t")
    if "\t" in y:
        raise DataError("more than one tab; write one text, or a pair separated by one tab", place=given.place)
    return replace(given, x=x, y=y if tab or not alone else None)


def _checked(text: str | None, place: Place) -> str:
    """Return a text if it is valid; an argument that is not UTF-8 reaches Python with surrogates."""
    if text is None or any("\ud800" <= symbol <= "\udfff" for symbol in text):
        raise DataError("invalid UTF-8", place=place)
    return text
