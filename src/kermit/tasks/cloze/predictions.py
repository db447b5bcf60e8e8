"""Predictions as they are made, one JSON object per line, so that an interrupted evaluation can resume.

``NAME.settings.json`` records model, settings and data of the predictions in ``NAME``; with others the file is refused.
A truncated last line is made again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kermit.errors import DataError, Place
from kermit.provenance import Manifest


@dataclass(frozen=True)
class Prediction:
    """The answer to an instance, and its scores.

    Args:
        id: the instance's.
        answer: what the system answered.
        answers: the correct answers.
        exact_match: 0 or 1.
        f1: from 0 to 1.
        tokens: number of tokens of the answer.
        gap_tokens: number of tokens of the gap.
        forward_passes: consecutive calls of the model.
        sequences: sequences through the model.
        score: the log-probability by which it was chosen; None if the instance does not fit.
        cut: whether the passage was cut.
        too_long: whether the instance does not fit even without its passage.
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
    """The predictions so far, in memory and, with a path, in a file that is appended to.

    Args:
        path: the file, or None.
        settings: what decides the predictions, as plain data.

    Raises:
        DataError: the file holds predictions made with other settings, or something else.
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.predictions: dict[str, Prediction] = {}
        if path is None:
            return
        if path.suffix == ".gz":
            raise DataError(
                f"{path}: predictions are appended, so the file cannot be compressed; leave .gz out of the name"
            )
        self._check(Manifest(path.with_name(f"{path.name}.settings.json"), settings))
        if path.is_file():
            self._resume(path)

    def add(self, predictions: Iterable[Prediction]) -> None:
        """Add predictions."""
        new = {prediction.id: prediction for prediction in predictions}
        self.predictions |= new
        if self.path is not None:
            lines = (json.dumps(asdict(prediction), ensure_ascii=False) + "\n" for prediction in new.values())
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write("".join(lines))

    def _check(self, manifest: Manifest) -> None:
        assert self.path is not None
        begun = self.path.is_file() and self.path.stat().st_size > 0
        if not begun:
            manifest.write()
        elif not manifest.path.is_file():
            raise DataError(f"{self.path} exists without its {manifest.path.name}; choose another --output")
        else:
            manifest.made("predictions")

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
