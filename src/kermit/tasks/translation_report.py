"""How translation scores are shown: the note of a signature, a table, and a plot of rounds by length."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean

from kermit.data.parallel import Pair
from kermit.tasks.translation import Translation, TranslationScores
from kermit.tasks.translator import Translator
from kermit.training.settings import Settings


def note_of(translator: Translator, decoding: Settings, split: str, pairs: Sequence[Pair]) -> str:
    """What decided a score beside sacrebleu: version, family, decoding, precision, split and a checksum of its text."""
    text = "\n".join(f"{pair.x}\t{pair.y}" for pair in pairs)
    settings = ",".join(f"{key}={value}" for key, value in decoding.model_dump(mode="json").items())
    parts = {
        "family": translator.family.name,
        "decoding": settings,
        "precision": str(translator.model.dtype).removeprefix("torch."),
        "split": split,
        "data": hashlib.sha256(text.encode()).hexdigest()[:12],
        "version": _version(),
    }
    return "kermit|" + "|".join(f"{key}:{value}" for key, value in parts.items())


def _version() -> str:
    try:
        return version("kermit-insertion")
    except PackageNotFoundError:
        return "unknown"


def table(results: Sequence[TranslationScores]) -> str:
    """The scores in columns, with their signatures below."""
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


def plot_rounds(by_direction: Mapping[str, Sequence[Translation]], path: Path) -> None:
    """Mean rounds by number of tokens, beside log2(n + 1), as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    longest = 1
    for direction, translations in by_direction.items():
        rounds: dict[int, list[int]] = defaultdict(list)
        for translation in translations:
            rounds[translation.tokens].append(translation.rounds)
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
