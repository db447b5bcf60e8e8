"""Translation: directions, scores and their report (section 4.1 of the paper).

Scores come from sacrebleu on raw, cased text, with its signatures. Besides BLEU and chrF they include the length ratio
(insertion models tend to stop early), the mean numbers of rounds and tokens, and the mean of log2(tokens + 1), the
number of rounds of a perfectly balanced insertion order.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from kermit.canvas import Factorization, Segment
from kermit.data.parallel import Pair, TextSource, read_pairs
from kermit.data.plain import Report
from kermit.errors import DataError, ModelError, placed
from kermit.families import family_of_model_type
from kermit.pipeline import Kermit
from kermit.provenance import listed, model_checksum, signature
from kermit.results import Generation
from kermit.searcher import ChosenDecoding


@dataclass(frozen=True)
class Direction:
    """A direction of translation, written `en-de`."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"

    @classmethod
    def parse(cls, text: str) -> Direction:
        """Parse a direction such as `en-de`."""
        source, dash, target = text.strip().partition("-")
        if not dash or not source or not target:
            raise DataError(f"{text!r} is not a direction; write it as en-de")
        return cls(source, target)


def directions_of(factorizations: Collection[Factorization], languages: tuple[str, str]) -> list[Direction]:
    """List the directions of translation among factorizations."""
    x, y = languages
    ways = {Factorization.Y_GIVEN_X: Direction(x, y), Factorization.X_GIVEN_Y: Direction(y, x)}
    return [way for name, way in ways.items() if {name, Factorization.JOINT} & set(factorizations)]


def trained_directions(facade: Kermit) -> list[Direction]:
    """List the directions that a model was trained for; both if unknown."""
    trained = facade.factorizations or {Factorization.JOINT.value}
    return directions_of([Factorization(name) for name in trained], facade.languages)


def check_direction(facade: Kermit, direction: Direction) -> Direction:
    """Return the direction; raise a ModelError if the model was not trained for it."""
    if direction not in (trained := trained_directions(facade)):
        raise ModelError(f"the model was not trained for {direction}, only for {', '.join(map(str, trained))}")
    return direction


def direction_to(facade: Kermit, target: str) -> Direction:
    """Return the direction into a language, given by its name or as ``x`` or ``y``."""
    x, y = facade.languages
    return check_direction(facade, Direction(x, y) if facade.segment(target) is Segment.Y else Direction(y, x))


def target_text(facade: Kermit, direction: Direction, result: Generation) -> str:
    """Return the text of the target side of a result."""
    return (result.y or "") if facade.segment(direction.target) is Segment.Y else result.x


@dataclass(frozen=True)
class TranslationScores:
    """Scores of one direction: the output of `kermit evaluate translation --json`."""

    direction: str
    bleu: float
    chrf: float
    length_ratio: float
    mean_rounds: float
    mean_tokens: float
    mean_log2: float
    sentences_per_second: float
    signature: str


def score_translations(
    texts: Sequence[str],
    results: Sequence[Generation],
    references: Sequence[str],
    direction: Direction,
    *,
    seconds: float,
    note: str = "",
) -> TranslationScores:
    """Score translations against one reference each; `note` is the signature of model, decoding and text."""
    if len(texts) != len(references) or not texts:
        raise DataError(f"the numbers of translations and references differ: {len(texts)} and {len(references)}")
    bleu, chrf = BLEU(), CHRF()
    bleu_score = bleu.corpus_score(texts, [list(references)])
    chrf_score = chrf.corpus_score(texts, [list(references)])
    metrics = f"BLEU|{bleu.get_signature()} chrF|{chrf.get_signature()}"
    return TranslationScores(
        direction=str(direction),
        bleu=round(bleu_score.score, 2),
        chrf=round(chrf_score.score, 2),
        length_ratio=round(bleu_score.sys_len / max(bleu_score.ref_len, 1), 4),
        mean_rounds=round(fmean(result.rounds for result in results), 3),
        mean_tokens=round(fmean(result.tokens for result in results), 3),
        mean_log2=round(fmean(math.log2(result.tokens + 1) for result in results), 3),
        sentences_per_second=round(len(texts) / max(seconds, 1e-9), 2),
        signature=f"{metrics} {note}".strip(),
    )


def evaluate_translation(
    facade: Kermit,
    pairs: Sequence[Pair],
    direction: Direction,
    decoding: ChosenDecoding,
    *,
    note: str = "",
    progress: Callable[[int], None] | None = None,
) -> tuple[TranslationScores, list[Generation]]:
    """Translate one side of the pairs and score it against the other; errors about a text name its place."""
    check_direction(facade, direction)
    forward = facade.segment(direction.target) is Segment.Y
    sources = [pair.x if forward else pair.y for pair in pairs]
    references = [pair.y if forward else pair.x for pair in pairs]
    start = time.perf_counter()
    with placed([pair.places[0 if forward else 1] for pair in pairs]):
        results = facade.translate(
            sources,
            direction.target,
            settings=decoding.settings(),
            seeds=decoding.seeds(len(sources)),
            split_sentences=False,
            on_progress=progress,
        )
    seconds = time.perf_counter() - start
    texts = [target_text(facade, direction, result) for result in results]
    return score_translations(texts, results, references, direction, seconds=seconds, note=note), results


def find_side(folder: Path, split: str, language: str) -> Path:
    """Find `SPLIT.LANGUAGE` in a folder, plain or gzipped."""
    for name in (f"{split}.{language}", f"{split}.{language}.gz"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(
        f"{folder} holds neither {split}.{language} nor {split}.{language}.gz; set the folder with --data and the"
        " split with --split"
    )


def read_split(folder: Path, split: str, languages: tuple[str, str]) -> list[Pair]:
    """Read the pairs of `SPLIT.x` and `SPLIT.y`; raise for an invalid pair."""
    x, y = (find_side(folder, split, language) for language in languages)
    pairs = list(read_pairs(TextSource(x=x, y=y), Report(how_to_skip=None)))
    if not pairs:
        raise DataError(f"{x}: the file is empty; choose another --split")
    return pairs


_COLUMNS = (
    ("direction", "direction", ""),
    ("BLEU", "bleu", ".2f"),
    ("chrF", "chrf", ".2f"),
    ("length ratio", "length_ratio", ".3f"),
    ("rounds", "mean_rounds", ".2f"),
    ("tokens", "mean_tokens", ".2f"),
    ("log2(n+1)", "mean_log2", ".2f"),
    ("texts/s", "sentences_per_second", ".1f"),
)
"""The columns of the table of scores: the head, the score and its format."""


def note_of(facade: Kermit, decoding: ChosenDecoding, split: str, pairs: Sequence[Pair]) -> str:
    """Return our part of a score's signature: model, decoding, precision, split and a checksum of its text."""
    text = "\n".join(f"{pair.x}\t{pair.y}" for pair in pairs)
    parts = {
        "family": family_of_model_type(facade.model_type).name,
        "model": "unsaved" if facade.folder is None else model_checksum(facade.folder),
        "decoding": listed(decoding.record()),
        "precision": facade.precision,
        "split": split,
        "data": hashlib.sha256(text.encode()).hexdigest()[:12],
    }
    return signature(parts)


def scores_table(results: Sequence[TranslationScores]) -> str:
    """Format scores as a table, with their signatures below."""
    rows = [[head for head, _, _ in _COLUMNS]]
    rows += [[format(getattr(scores, name), form) for _, name, form in _COLUMNS] for scores in results]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([*lines, *(scores.signature for scores in results)])


def plot_rounds(by_direction: Mapping[str, Sequence[Generation]], path: Path) -> None:
    """Plot mean rounds by number of tokens, with log2(n + 1), as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    longest = 1
    for direction, results in by_direction.items():
        rounds: dict[int, list[int]] = defaultdict(list)
        for result in results:
            rounds[result.tokens].append(result.rounds)
        lengths = sorted(rounds)
        longest = max([longest, *lengths])
        axes.plot(lengths, [fmean(rounds[length]) for length in lengths], marker=".", label=direction)
    grid = np.arange(longest + 1)
    axes.plot(grid, np.log2(grid + 1), color="black", linestyle="--", label="log2(n + 1)")
    axes.set_xlabel("tokens generated")
    axes.set_ylabel("rounds")
    axes.legend()
    figure.savefig(path, format="png", dpi=150)
