"""Reports of translation scores: the signature, a table, and a plot of rounds by length."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from kermit.data.parallel import Pair
from kermit.families import family_of_model_type
from kermit.pipeline import Kermit
from kermit.provenance import listed, model_checksum, signature
from kermit.results import Generation
from kermit.searcher import ChosenDecoding
from kermit.tasks.translation import TranslationScores

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
