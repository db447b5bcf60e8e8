"""What can go wrong by a user's hand, each with a message that says where, what is allowed and what to do.

The command line prints these without a traceback and exits with code 2; anything else is a defect of ours.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TypeVar

Member = TypeVar("Member", bound=Enum)

_NUMBERED = re.compile(r"text (\d+) ")


class KermitError(Exception):
    """Base of every error that a user can cause and mend."""


def nearest(word: str, known: Sequence[str]) -> str:
    """What a user who wrote a word that nobody knows may have meant, for the end of a message; empty where nothing."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
    return f" (did you mean {close[0]!r}?)" if close else ""


def about_text(error: KermitError) -> tuple[int, str] | None:
    """Which of several texts an error speaks of, counted from 0, and what it says: its message begins with `text N`."""
    found = _NUMBERED.match(str(error))
    return None if found is None else (int(found[1]), str(error)[found.end() :])


@contextmanager
def placed(places: Sequence[str]) -> Iterator[None]:
    """Let an error that speaks of `text N` of several name its place instead."""
    try:
        yield
    except KermitError as error:
        about = about_text(error)
        if about is None or about[0] >= len(places):
            raise
        number, said = about
        raise type(error)(f"{places[number]}: the text {said}") from error


def in_a_line(error: BaseException) -> str:
    """What a library says is wrong, without its line breaks."""
    told = " ".join(str(error).split())
    return f"{told} is not known" if isinstance(error, KeyError) else told


class UsageError(KermitError, ValueError):
    """A verb, an option, an argument or a value that there is not."""


class CanvasError(KermitError, ValueError):
    """A canvas, a slot or an insertion that cannot be."""


class DataError(KermitError, ValueError):
    """Input text that is broken; the message names the file and the line."""


class RecipeError(KermitError, ValueError):
    """A recipe with a wrong key or value; the message gives the key's path and the nearest known name."""


class ModelError(KermitError, ValueError):
    """A model or checkpoint that cannot do what was asked of it."""


class ServingError(KermitError, ValueError):
    """Settings that a service cannot run with, or a place where it cannot listen."""


class DecodingError(KermitError, ValueError):
    """Decoding settings that contradict each other or the model."""


def member_of(kind: type[Member], value: Member | str, name: str, error: type[KermitError] = UsageError) -> Member:
    """A member of an enum, given as itself or by its value.

    Args:
        kind: the enum.
        value: the member, or its value.
        name: of the argument, for the message.
        error: what is raised for a value that nobody knows.
    """
    try:
        return kind(value)
    except ValueError:
        known = [str(member.value) for member in kind]
        raise error(f"{name} must be one of {', '.join(known)}, not {value!r}{nearest(str(value), known)}") from None
