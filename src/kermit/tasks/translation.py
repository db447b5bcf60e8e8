"""Translation as a task: directions, results, and the scores that are reported (section 4.1 of the paper).

Scores come from sacrebleu on raw, cased text, and carry its signatures. Beside BLEU and chrF stand the length ratio
(insertion models tend to stop early), the mean number of rounds and of tokens, and the mean of log2(tokens + 1), which
is what a perfectly balanced insertion order needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from sacrebleu.metrics import BLEU, CHRF

from kermit.data.parallel import Pair, TextSource, read_pairs
from kermit.data.plain import Report
from kermit.errors import DataError
from kermit.rendering import ReadableTrace


@dataclass(frozen=True)
class Direction:
    """From one language to the other, written `en-de`."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"

    @classmethod
    def parse(cls, text: str) -> Direction:
        """Read `en-de`."""
        source, dash, target = text.strip().partition("-")
        if not dash or not source or not target:
            raise DataError(f"{text!r} is no direction; write it as en-de")
        return cls(source, target)


@dataclass(frozen=True)
class Translation:
    """One translated text.

    Attributes:
        rounds: forward passes that produced it (an autoregressive model needs one a token, and one to stop).
        tokens: generated tokens, the end mark not counted.
        log_prob: natural log-probability of what was generated, as the decoder counts it.
        finish: `finished`, or which limit stopped it.
        trace: the rounds, where they were asked for.
    """

    source: str
    text: str
    rounds: int
    tokens: int
    log_prob: float
    finish: str
    trace: ReadableTrace | None = None

    def to_json(self) -> dict[str, Any]:
        """As `kermit translate --json` prints it; without a trace the key is absent."""
        record: dict[str, Any] = {
            "source": self.source,
            "text": self.text,
            "rounds": self.rounds,
            "tokens": self.tokens,
            "log_prob": self.log_prob,
            "finish": self.finish,
        }
        return record if self.trace is None else record | {"trace": self.trace.to_json()}


@dataclass(frozen=True)
class TranslationScores:
    """How well one direction went, as `kermit evaluate translation --json` prints it."""

    direction: str
    bleu: float
    chrf: float
    length_ratio: float
    mean_rounds: float
    mean_tokens: float
    mean_log2: float
    sentences_per_second: float
    signature: str

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def score_translations(
    translations: Sequence[Translation],
    references: Sequence[str],
    direction: Direction,
    *,
    seconds: float,
    note: str = "",
) -> TranslationScores:
    """Score translations against one reference each.

    Args:
        translations: the translated texts.
        references: what each should be.
        direction: which way it went.
        seconds: how long translating took.
        note: what else decided the result (model, decoding, data), put after sacrebleu's signatures.
    """
    if len(translations) != len(references) or not translations:
        raise DataError(f"{len(translations)} translations cannot be scored against {len(references)} references")
    bleu, chrf = BLEU(), CHRF()
    texts = [translation.text for translation in translations]
    bleu_score = bleu.corpus_score(texts, [list(references)])
    chrf_score = chrf.corpus_score(texts, [list(references)])
    signature = f"BLEU|{bleu.get_signature()} chrF|{chrf.get_signature()}"
    return TranslationScores(
        direction=str(direction),
        bleu=round(bleu_score.score, 2),
        chrf=round(chrf_score.score, 2),
        length_ratio=round(bleu_score.sys_len / max(bleu_score.ref_len, 1), 4),
        mean_rounds=round(fmean(translation.rounds for translation in translations), 3),
        mean_tokens=round(fmean(translation.tokens for translation in translations), 3),
        mean_log2=round(fmean(math.log2(translation.tokens + 1) for translation in translations), 3),
        sentences_per_second=round(len(translations) / max(seconds, 1e-9), 2),
        signature=f"{signature} {note}".strip(),
    )


def find_side(folder: Path, split: str, language: str) -> Path:
    """`SPLIT.LANGUAGE` in a folder, plain or gzipped."""
    for name in (f"{split}.{language}", f"{split}.{language}.gz"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(
        f"{folder} holds neither {split}.{language} nor {split}.{language}.gz; --data names the folder, --split the"
        " files"
    )


def read_split(folder: Path, split: str, languages: tuple[str, str]) -> list[Pair]:
    """The pairs of `SPLIT.x` and `SPLIT.y`, all whole or an error."""
    x, y = (find_side(folder, split, language) for language in languages)
    pairs = list(read_pairs(TextSource(x=x, y=y), Report(how_to_skip=None)))
    if not pairs:
        raise DataError(f"{x}: the file holds no text to score")
    return pairs
