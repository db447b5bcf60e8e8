"""Reports of translation scores: the signature, a table, and a plot of rounds by length."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from kermit.data.parallel import Pair
from kermit.families import family_of_model_type
from kermit.pipeline import Kermit
from kermit.provenance import listed, model_checksum, signature
from kermit.results import Generation
from kermit.searcher import ChosenDecoding
from kermit.tasks.translation import TranslationScores


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
    heads = ["direction", "BLEU", "chrF", "length ratio", "rounds", "tokens", "log2(n+1)", "texts/s"]
    rows = [
        [
            scores.direction,
            f"{scores.bleu:.2f}",
            f"{scores.chrf:.2f}",
            f"{scores.length_ratio:.3f}",
            f"{scores.mean_rounds:.2f}",
            f"{scores.mean_tokens:.2f}",
            f"{scores.mean_log2:.2f}",
            f"{scores.sentences_per_second:.1f}",
        ]
        for scores in results
    ]
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [heads, *rows]]
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
    import numpy as np

    grid = np.arange(longest + 1)
    axes.plot(grid, np.log2(grid + 1), color="black", linestyle="--", label="log2(n + 1)")
    axes.set_xlabel("tokens generated")
    axes.set_ylabel("rounds")
    axes.legend()
    figure.savefig(path, format="png", dpi=150)
