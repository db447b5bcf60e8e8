"""What a verb works on: texts from the command line, from a file or from stdin, each with its place for errors.

A text is a line; a line with a tab is a pair, as `kermit sample` and `kermit complete` print them. Blank lines are
texts too: line n of the output is for line n of the input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TypeVar

from kermit.errors import DataError, placed

Result = TypeVar("Result")

CHUNK = 512
"""How many texts are worked on before their results are written: nothing much is lost when a long run is stopped."""


@dataclass(frozen=True)
class Given:
    """A text or a pair, and where it was given.

    Args:
        x: the first side, or the text.
        y: the second side; None for a text that is no pair.
        place: ``FILE:LINE`` or ``argument N``.
        seed: of what is drawn from it.
    """

    x: str
    y: str | None
    place: str
    seed: int = 0


def read_texts(texts: Sequence[str] | None, input_: Path | None) -> list[Given]:
    """Texts from arguments, from a file, or from stdin where neither is given and no one types there.

    Raises:
        DataError: arguments and a file, or nothing at all; a file that is not there; a line that is no UTF-8.
    """
    if texts and input_ is not None:
        raise DataError("give texts as arguments or with --input FILE; one of the two")
    if texts:
        return [Given(_checked(text, f"argument {n}"), None, f"argument {n}") for n, text in enumerate(texts, 1)]
    return read_lines(input_)


def read_lines(path: Path | None, option: str = "--input") -> list[Given]:
    """The lines of a file; of stdin where it is - or, unless someone types there, None.

    Args:
        path: the file.
        option: what it was named with, for errors.
    """
    from kermit.data import plain

    if path is None or str(path) == "-":
        if sys.stdin is None or (path is None and sys.stdin.isatty()):  # it is None where it was closed
            raise DataError(f"give texts as arguments, with {option} FILE, or on stdin")
        lines = plain.lines_of(sys.stdin.buffer, "stdin")
    else:
        check_there(option, path)
        pipe = not path.is_file()  # such as <(head texts.txt)
        lines = plain.lines_of(BytesIO(path.read_bytes()), str(path)) if pipe else plain.read_lines(path)
    return [Given(_checked(line.text, line.place), None, line.place) for line in lines]


def check_there(option: str, path: Path) -> None:
    """Whether there is a file to read.

    Raises:
        DataError: there is none, or a folder.
    """
    if path.is_dir():
        raise DataError(f"{option} {path}: this is a folder; name a file")
    if not path.exists():
        raise DataError(f"{option} {path}: there is no such file")


def read_pairs(
    texts: Sequence[str] | None, x: str | None, y: str | None, input_: Path | None, *, alone: bool = True
) -> list[Given]:
    """Texts or pairs: from arguments, from --x and --y, or lines of a file or of stdin.

    Args:
        texts: texts that are no pairs.
        x: the first side of a single pair; without the second, a text.
        y: the second side; without the first, a text.
        input_: the file; - for stdin.
        alone: whether a side or a line without the other is a text; otherwise it is a pair with an empty side.
    """
    if x is not None or y is not None:
        if texts or input_ is not None:
            raise DataError("give a pair with --x and --y, or texts as arguments or with --input FILE; one of them")
        if alone and (x is None or y is None):
            place = "--x" if y is None else "--y"
            return [Given(_checked(x if y is None else y, place), None, place)]
        return [Given(_checked(x or "", "--x"), _checked(y or "", "--y"), "the pair")]
    found = read_texts(texts, input_)
    return found if texts else [_split(given, alone) for given in found]


def check_blanks(given: Sequence[Given]) -> None:
    """Whether there is anything to fill. A text without a blank among others stays as it is.

    Raises:
        DataError: none of them has a blank.
    """
    from kermit.canvas.blanks import BlankedText

    if given and not any(BlankedText.parse(f"{one.x} {one.y or ''}").spaces for one in given):
        raise DataError(f"{given[0].place}: no blank to fill; write a blank as four underscores, ____")


def drawn(given: Sequence[Given], samples: int, seed: int) -> list[Given]:
    """Each of them as often as draws are wanted, with the seeds from `seed` on; once where nothing is drawn."""
    return [replace(one, seed=seed + draw) for one in given for draw in range(max(1, samples))]


def sides(given: Sequence[Given], *, on_y: bool) -> tuple[list[str], list[str] | None]:
    """First and second sides, for the pipeline; None for the second where none of them is a pair.

    Args:
        given: texts and pairs.
        on_y: whether texts that are no pairs are of the second side.
    """
    if not on_y and all(one.y is None for one in given):
        return [one.x for one in given], None
    pairs = [("", one.x) if one.y is None and on_y else (one.x, one.y or "") for one in given]
    return [x for x, _ in pairs], [y for _, y in pairs]


def asked_apart(given: Sequence[Given], ask: Callable[[Sequence[Given]], Iterable[Result]]) -> list[Result]:
    """What comes of texts and pairs, in their order; each kind is asked about by itself, and errors name the place.

    A model of lone texts sees no second side then, whatever the lines beside them.
    """
    found: dict[int, Result] = {}
    for alone in (True, False):
        numbers = [number for number, one in enumerate(given) if (one.y is None) is alone]
        part = [given[number] for number in numbers]
        if part:
            with placed([one.place for one in part]):
                found.update(zip(numbers, ask(part), strict=True))
    return [found[number] for number in range(len(given))]


def chunks(given: Sequence[Given]) -> Iterator[Sequence[Given]]:
    """The texts, so many at a time."""
    for start in range(0, len(given), CHUNK):
        yield given[start : start + CHUNK]


def _split(given: Given, alone: bool) -> Given:
    x, tab, y = given.x.partition("\t")
    if "\t" in y:
        raise DataError(f"{given.place}: more than one tab; write a text, or a pair with one tab between")
    return replace(given, x=x, y=y if tab or not alone else None)


def _checked(text: str | None, place: str) -> str:
    """The text, if it is whole: an argument that is no UTF-8 reaches Python as surrogates."""
    if text is None or any("\ud800" <= symbol <= "\udfff" for symbol in text):
        raise DataError(f"{place}: invalid UTF-8")
    return text
