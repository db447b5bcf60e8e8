"""Evaluation of a cloze system: predictions on disk, exact match, F1, the cost of answers, and the signature.

An instance that does not fit the model even without its passage counts as an empty answer, so that all systems are
scored on the same instances. Batches hold instances of similar length, longest first; batching changes no answer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kermit import __version__
from kermit.data.joint_tokenizer import fingerprint
from kermit.data.plain import file_checksum
from kermit.errors import DataError, Place, in_a_line
from kermit.provenance import Manifest, listed, signature
from kermit.tasks.cloze.instances import ClozeInstance, ClozeSet
from kermit.tasks.cloze.squad_metrics import exact_match, f1
from kermit.tasks.cloze.system import ClozeAnswer, ClozeSystem

_NOTHING = ClozeAnswer(text="", tokens=0, forward_passes=0, sequences=0, score=0.0)


@dataclass(frozen=True)
class Prediction:
    """The answer to an instance with its scores (from 0 to 1) and its cost: a line of `--output`.

    `score` is the log-probability that selected the answer, None if the instance is `too_long` for the model; `cut` is
    whether its passage was cut; `seconds` is its share of its batch's time.
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
    """The predictions so far, in memory and, with a path, appended to a file.

    ``NAME.settings.json`` records the settings of the predictions in ``NAME``; with other settings the file is refused.
    A truncated last line is predicted again.
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.predictions: dict[str, Prediction] = {}
        if path is None:
            return
        if path.suffix == ".gz":
            raise DataError(
                f"{path}: predictions are appended, so the file cannot be compressed; choose a name without .gz"
            )
        manifest = Manifest(path.with_name(f"{path.name}.settings.json"), settings)
        if not path.is_file() or not path.stat().st_size:
            manifest.write()
            return
        if not manifest.path.is_file():
            raise DataError(f"{path} exists without its {manifest.path.name}; choose another --output")
        manifest.made("predictions")
        self._resume(path)

    def add(self, predictions: Iterable[Prediction]) -> None:
        """Add predictions, and append them to the file."""
        new = {prediction.id: prediction for prediction in predictions}
        self.predictions |= new
        if self.path is not None:
            lines = (json.dumps(asdict(prediction), ensure_ascii=False) + "\n" for prediction in new.values())
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write("".join(lines))

    def _resume(self, path: Path) -> None:
        text = path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                prediction = TypeAdapter(Prediction).validate_json(line)
            except ValidationError as error:
                why = f"not a prediction ({in_a_line(error)}); choose another --output"
                raise DataError(why, place=Place(str(path), number)) from error
            self.predictions[prediction.id] = prediction
        if len(whole) < len(text):
            with path.open("r+b") as stream:
                stream.truncate(len(whole))


@dataclass(frozen=True)
class ClozeScores:
    """Scores of a system in percent, and means per answer: the output of `kermit evaluate cloze --json`."""

    system: str
    exact_match: float
    f1: float
    instances: int
    skipped: Mapping[str, int]
    cut: int
    too_long: int
    empty: int
    mean_forward_passes: float
    mean_sequences: float
    mean_tokens: float
    mean_gap_tokens: float
    answers_per_second: float
    signature: str

    def __str__(self) -> str:
        skipped = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in self.skipped.items())
        lines = {
            "exact match": f"{self.exact_match:.2f}",
            "F1": f"{self.f1:.2f}",
            "instances": f"{self.instances:,} ({self.cut:,} with the passage cut, {self.too_long:,} too long)",
            "rows skipped": skipped or "none",
            "tokens per answer": f"{self.mean_tokens:.2f} (gaps: {self.mean_gap_tokens:.2f}); {self.empty:,} empty",
            "forward passes": f"{self.mean_forward_passes:.2f} per answer, with {self.mean_sequences:.2f} sequences",
            "answers per second": f"{self.answers_per_second:.2f}",
        }
        width = max(map(len, lines))
        return "\n".join([*(f"{name:{width}}  {value}" for name, value in lines.items()), self.signature])


def predict(
    system: ClozeSystem,
    instances: Sequence[ClozeInstance],
    log: PredictionLog,
    *,
    batch_size: int = 8,
    progress: Callable[[int], None] | None = None,
) -> list[Prediction]:
    """Answer every instance that is not in the log; return one prediction per instance, in order."""
    left = [instance for instance in instances if instance.id not in log.predictions]
    if progress is not None and len(left) < len(instances):
        progress(len(instances) - len(left))
    left.sort(key=len, reverse=True)
    for start in range(0, len(left), batch_size):
        batch = left[start : start + batch_size]
        log.add(_predict_batch(system, batch))
        if progress is not None:
            progress(len(batch))
    return [log.predictions[instance.id] for instance in instances]


def _predict_batch(system: ClozeSystem, batch: Sequence[ClozeInstance]) -> list[Prediction]:
    begin = time.perf_counter()
    layouts = [system.lay_out(instance) for instance in batch]
    laid = [layout for layout in layouts if layout is not None]
    answers = iter(system.answer(laid) if laid else ())
    found = [_NOTHING if layout is None else next(answers) for layout in layouts]
    seconds = (time.perf_counter() - begin) / len(batch)
    return [
        Prediction(
            id=instance.id,
            answer=answer.text,
            answers=instance.answers,
            exact_match=int(exact_match(answer.text, instance.answers)),
            f1=f1(answer.text, instance.answers),
            tokens=answer.tokens,
            gap_tokens=0 if layout is None else layout.gap_length,
            forward_passes=answer.forward_passes,
            sequences=answer.sequences,
            score=None if layout is None else answer.score,
            cut=layout is not None and layout.cut,
            too_long=layout is None,
            seconds=seconds,
        )
        for instance, layout, answer in zip(batch, layouts, found, strict=True)
    ]


def cloze_scores(system: str, predictions: Sequence[Prediction], data: ClozeSet, signature: str) -> ClozeScores:
    """Compute the scores of predictions."""
    answered = [prediction for prediction in predictions if not prediction.too_long] or predictions

    def mean(name: str, among: Sequence[Prediction] = answered, factor: float = 1, digits: int = 3) -> float:
        return round(factor * fmean(getattr(prediction, name) for prediction in among), digits)

    return ClozeScores(
        system=system,
        exact_match=mean("exact_match", predictions, 100, 2),
        f1=mean("f1", predictions, 100, 2),
        instances=len(predictions),
        skipped={reason.value: count for reason, count in data.skipped.items()},
        cut=sum(prediction.cut for prediction in predictions),
        too_long=sum(prediction.too_long for prediction in predictions),
        empty=sum(not prediction.answer for prediction in predictions),
        mean_forward_passes=mean("forward_passes"),
        mean_sequences=mean("sequences"),
        mean_tokens=mean("tokens"),
        mean_gap_tokens=mean("gap_tokens"),
        answers_per_second=round(len(predictions) / max(sum(p.seconds for p in predictions), 1e-9), 3),
        signature=signature,
    )


def provenance_of(system: ClozeSystem, weights: str, qa2d: Path, squad: Path) -> dict[str, Any]:
    """Return everything that determines predictions as plain data: the system, and checksums of model and data."""
    return {
        "system": system.name,
        "weights": weights,
        "precision": str(system.model.dtype).removeprefix("torch."),
        "tokenizer": fingerprint(system.tokenizer),
        "decoding": dict(system.settings),
        "qa2d": file_checksum(qa2d),
        "squad": file_checksum(squad),
        "version": __version__,
    }


def signature_of(model: str, settings: Mapping[str, Any], limit: int | None) -> str:
    """Format the signature of a score: the model's name, the result of `provenance_of`, and the limit."""
    parts = {
        "task": "cloze",
        "system": settings["system"],
        "model": f"{model}@{settings['weights']}",
        "precision": settings["precision"],
        "tokenizer": settings["tokenizer"],
        "decoding": listed(settings["decoding"]),
        "qa2d": settings["qa2d"][:12],
        "squad": settings["squad"][:12],
        "limit": limit,
    }
    return signature(parts, settings["version"])
