"""Errors that a user can cause and fix. Each says what is wrong, where, and what to do, and carries that as data.

The command line prints them without a traceback and exits with code 2; any other exception is a bug.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

Member = TypeVar("Member", bound=Enum)


@dataclass(frozen=True)
class Place:
    """Where a text was read: a file or another source, and the line number, from 1."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


class KermitError(Exception):
    """Base of all errors that a user can cause and fix.

    Args:
        message: what is wrong and what to do.
        text: the index of the text it concerns, among those of the call.
        place: where that text was read.
        limit: the limit that was exceeded.
    """

    def __init__(
        self, message: str = "", *, text: int | None = None, place: Place | None = None, limit: int | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.text, self.place, self.limit = message, text, place, limit

    def __str__(self) -> str:
        if self.place is not None:
            return f"{self.place}: {self.message}"
        return self.message if self.text is None else f"text {self.text}: {self.message}"


class UsageError(KermitError, ValueError):
    """Unknown command, option or value."""


class CanvasError(KermitError, ValueError):
    """Invalid canvas, slot or insertion."""


class DataError(KermitError, ValueError):
    """Invalid input text or data file."""


class RecipeError(KermitError, ValueError):
    """Invalid key or value of a recipe."""


class ModelError(KermitError, ValueError):
    """Model that cannot be loaded, or cannot do what was requested."""


class ServingError(KermitError, ValueError):
    """Invalid settings of a service, or an address that it cannot listen on."""


class DecodingError(KermitError, ValueError):
    """Decoding settings that contradict each other or the model."""


@contextmanager
def placed(places: Sequence[Place]) -> Iterator[None]:
    """Attach the place of the text to errors that concern one of several texts."""
    try:
        yield
    except KermitError as error:
        number = error.text
        if number is not None and number < len(places):
            error.text, error.place = None, places[number]
        raise


def nearest(word: str, known: Sequence[str]) -> str:
    """Suggest the known word closest to an unknown one, for the end of a message; empty if none is close."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
    return f" (did you mean {close[0]!r}?)" if close else ""


def in_a_line(error: BaseException) -> str:
    """Return a library's error message on one line."""
    message = " ".join(str(error).split())
    return f"unknown key {message}" if isinstance(error, KeyError) else message


def member_of(kind: type[Member], value: Member | str, name: str, error: type[KermitError] = UsageError) -> Member:
    """Look up a member of an enum, given as itself or by its value; `name` is the argument's name in messages."""
    try:
        return kind(value)
    except ValueError:
        known = [str(member.value) for member in kind]
        raise error(f"{name} must be one of {', '.join(known)}, not {value!r}{nearest(str(value), known)}") from None


def check_known(name: str, value: str, known: Sequence[str]) -> None:
    """Raise for an unknown value of a decoding argument."""
    if value not in known:
        raise DecodingError(f"{name} must be {', '.join(known[:-1])} or {known[-1]}, not {value!r}")
