"""Predictions as they are made, a JSON object a line, so that an interrupted evaluation goes on where it was.

Beside ``NAME`` stands ``NAME.settings.json``, which says by which model, with which settings and from which data
they were made. With others the file is refused. A last line that was cut off is made anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kermit.errors import DataError, Place
from kermit.files import write_whole

_UNSET = "not set"


@dataclass(frozen=True)
class Prediction:
    """An instance's answer and what it counts for.

    Args:
        id: the instance's.
        answer: what the system answered.
        answers: what would have been right.
        exact_match: 0 or 1.
        f1: from 0 to 1.
        tokens: how many tokens the answer has.
        gap_tokens: how many the gap held.
        forward_passes: calls of the model, one after the other.
        sequences: sequences that went through the model.
        score: the log-probability by which it was chosen; None where there was no room for an answer.
        cut: whether the passage was cut.
        too_long: whether question and sentence alone did not fit, so that there is no answer.
        seconds: its share of its batch's time.
    """

    id: str
    answer: str
    answers: tuple[str, ...]
    exact_match: int
    f1: float
    tokens: int
    gap_tokens: int
    forward_passes: int
    sequences: int
    score: float | None
    cut: bool
    too_long: bool
    seconds: float


class PredictionLog:
    """The predictions so far, in memory and, where a path is given, in a file that is appended to.

    Args:
        path: the file, or None.
        settings: what decides the predictions, as plain data.

    Raises:
        DataError: the file holds predictions made otherwise, or is no such file.
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.predictions: dict[str, Prediction] = {}
        if path is None:
            return
        if path.suffix == ".gz":
            raise DataError(f"{path}: predictions are appended to, so they are not packed; leave .gz out of the name")
        self._check(path.with_name(f"{path.name}.settings.json"), json.loads(json.dumps(settings)))
        if path.is_file():
            self._resume(path)

    def add(self, predictions: Iterable[Prediction]) -> None:
        """Take predictions down."""
        new = {prediction.id: prediction for prediction in predictions}
        self.predictions |= new
        if self.path is not None:
            lines = (json.dumps(asdict(prediction), ensure_ascii=False) + "\n" for prediction in new.values())
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write("".join(lines))

    def _check(self, place: Path, settings: dict[str, Any]) -> None:
        assert self.path is not None
        begun = self.path.is_file() and self.path.stat().st_size > 0
        if begun and not place.is_file():
            raise DataError(
                f"{self.path} is there, but not {place.name}, which says how it was made; choose another --output"
            )
        if not begun:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(place, json.dumps(settings, indent=2) + "\n")
            return
        try:
            made = dict(json.loads(place.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise DataError(
                f"{place} does not say how {self.path} was made ({error}); choose another --output"
            ) from error
        if notes := "; ".join(_differences(made, settings)):
            raise DataError(
                f"{self.path} holds predictions made with other settings ({notes}); choose another --output, or remove"
                f" it and {place.name}"
            )

    def _resume(self, path: Path) -> None:
        text = path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                record = json.loads(line)
                prediction = Prediction(**record | {"answers": tuple(record["answers"])})
            except (ValueError, TypeError, KeyError) as error:
                raise DataError(
                    f"this is not a prediction ({error}); choose another --output", place=Place(str(path), number)
                ) from error
            self.predictions[prediction.id] = prediction
        if len(whole) < len(text):
            with path.open("r+b") as stream:
                stream.truncate(len(whole))


def _differences(made: Mapping[str, Any], settings: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """What settings were and are now, by name; a setting among others is told by both names."""
    for key in sorted(settings.keys() | made.keys()):
        was, now = made.get(key, _UNSET), settings.get(key, _UNSET)
        if isinstance(was, dict) and isinstance(now, dict):
            yield from _differences(was, now, f"{within}{key}.")
        elif was != now:
            yield f"{within}{key} was {was}, now {now}"
