"""Scoring a system on cloze questions: exact match, F1, the cost of answers, and the signature.

An instance that does not fit the model, even without its passage, counts as an empty answer, so that all systems are
scored on the same instances. Batches hold instances of similar length, the longest first; batching changes no answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from kermit import __version__
from kermit.data.joint_tokenizer import fingerprint
from kermit.data.plain import file_checksum
from kermit.provenance import listed, signature
from kermit.tasks.cloze.instances import ClozeInstance, ClozeSet
from kermit.tasks.cloze.predictions import Prediction, PredictionLog
from kermit.tasks.cloze.squad_metrics import exact_match, f1
from kermit.tasks.cloze.system import ClozeAnswer, ClozeSystem

_NOTHING = ClozeAnswer(text="", tokens=0, forward_passes=0, sequences=0, score=0.0)


@dataclass(frozen=True)
class ClozeScores:
    """Scores of a system, as `kermit evaluate cloze --json` prints them.

    Args:
        system: its name.
        exact_match: percent of the answers.
        f1: mean F1 in percent.
        instances: number of instances.
        skipped: rows of QA2D that made no instance, by reason.
        cut: instances whose passage was cut.
        too_long: instances without room for an answer.
        empty: number of empty answers.
        mean_forward_passes: calls of the model per answer.
        mean_sequences: sequences through the model per answer.
        mean_tokens: tokens per answer.
        mean_gap_tokens: tokens per gap.
        answers_per_second: over all answers, including those of earlier runs.
        signature: everything that decided the scores.
    """

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

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

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
    batch_size: int = 32,
    progress: Callable[[int], None] | None = None,
) -> list[Prediction]:
    """Answer every instance that has no prediction in the log.

    Args:
        system: the system.
        instances: the questions.
        log: earlier predictions, and where new ones go.
        batch_size: number of instances per batch.
        progress: called with the number of instances just done.

    Returns:
        One prediction per instance, in order.
    """
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
    return ClozeScores(
        system=system,
        exact_match=round(100 * fmean(prediction.exact_match for prediction in predictions), 2),
        f1=round(100 * fmean(prediction.f1 for prediction in predictions), 2),
        instances=len(predictions),
        skipped={reason.value: count for reason, count in data.skipped.items()},
        cut=sum(prediction.cut for prediction in predictions),
        too_long=sum(prediction.too_long for prediction in predictions),
        empty=sum(not prediction.answer for prediction in predictions),
        mean_forward_passes=round(fmean(prediction.forward_passes for prediction in answered), 3),
        mean_sequences=round(fmean(prediction.sequences for prediction in answered), 3),
        mean_tokens=round(fmean(prediction.tokens for prediction in answered), 3),
        mean_gap_tokens=round(fmean(prediction.gap_tokens for prediction in answered), 3),
        answers_per_second=round(len(predictions) / max(sum(p.seconds for p in predictions), 1e-9), 3),
        signature=signature,
    )


def signature_of(model: str, settings: Mapping[str, Any], limit: int | None) -> str:
    """Return everything that decided a score on one line; checksums are shortened.

    Args:
        model: the model's name.
        settings: as `provenance_of` returns them.
        limit: number of instances, or None for all.
    """
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


def provenance_of(system: ClozeSystem, weights: str, qa2d: Path, squad: Path) -> dict[str, Any]:
    """Return all that decides predictions, as plain data: the system, and checksums of model and data."""
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
