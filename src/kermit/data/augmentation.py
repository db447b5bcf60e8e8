"""Augmentation: variants of text pairs (`kermit.data.variants`), written to line-aligned files for recipes.

`augment.json` records rates, seed and checksums of the text: repeating a call does nothing, and other settings are
refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kermit.data.parallel import TextSource, read_pairs
from kermit.data.plain import OnBad, Report, file_checksum
from kermit.data.variants import TextPair, variants
from kermit.errors import DataError
from kermit.provenance import Manifest, partial

logger = logging.getLogger(__name__)

NAMES = ("source_x", "source_y", "both")
"""File names without the language: pairs for translating from X, from Y, and in both directions."""


@dataclass(frozen=True)
class Augmented:
    """Number of pairs read, and number of lines per kind and file, as `lines[kind][name]`."""

    pairs: int
    lines: Mapping[str, Mapping[str, int]]


def augment(
    sources: Sequence[tuple[Path, Path]],
    output: Path,
    rates: Mapping[str, float],
    seed: int,
    *,
    on_bad: OnBad = OnBad.ERROR,
    progress: Callable[[int], None] | None = None,
) -> Augmented:
    """Write variants of line-aligned pairs to a folder.

    Args:
        sources: files of X and Y, plain or gzipped; their names end in the language.
        output: the folder for `source_x`, `source_y` and `both`, each with the languages as suffixes, and for
            `augment.json`.
        rates: the rate of every kind, as returned by `variants.checked`.
    """
    languages = _languages(sources)
    settings = {
        "rates": dict(rates),
        "seed": seed,
        "inputs": [[file_checksum(x), file_checksum(y)] for x, y in sources],
        "languages": languages,
    }
    manifest = Manifest(output / "augment.json", settings, results=("pairs", "files", "lines"))
    files = {name: [output / f"{name}.{language}" for language in languages] for name in NAMES}
    made = _made_before(manifest, files)
    if made is not None:
        logger.info("%s: already written, nothing to do", output)
        return made
    report = Report(on_bad, how_to_skip="add --skip-bad")
    pairs = [(pair.x, pair.y) for x, y in sources for pair in read_pairs(TextSource(x=x, y=y), report)]
    logger.info(report.summary())
    if not pairs:
        raise DataError(f"{sources[0][0]}: the file is empty; give one with text")
    found: dict[str, list[TextPair]] = {name: [] for name in NAMES}
    lines: dict[str, dict[str, int]] = {}
    for kind, rate in rates.items():
        if rate:
            by_name = variants(pairs, kind, rate, seed)
            lines[kind] = {name: len(new) for name, new in by_name.items()}
            for name, new in by_name.items():
                found[name] += new
        if progress is not None:
            progress(1)
    if not any(found.values()):
        raise DataError("no pair has a variant, so nothing was written; raise the rates")
    output.mkdir(parents=True, exist_ok=True)
    written = [(file, found[name], side) for name in NAMES if found[name] for side, file in enumerate(files[name])]
    for file, new, side in written:
        with partial(file).open("w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(f"{pair[side]}\n" for pair in new)
    counts = {name: len(new) for name, new in found.items() if new}
    manifest.write(pairs=len(pairs), files=counts, lines=lines)  # first, so that the files are recognised as ours
    for file, *_ in written:
        partial(file).rename(file)
    return Augmented(len(pairs), lines)


def _languages(sources: Sequence[tuple[Path, Path]]) -> list[str]:
    """Determine the languages of X and Y from the suffixes of all files."""
    found: list[str] = []
    for side in (0, 1):
        suffixes = {Path(pair[side].name.removesuffix(".gz")).suffix[1:]: pair[side] for pair in sources}
        if "" in suffixes:
            raise DataError(
                f"{suffixes['']}: the name does not end in a language; name it like train.en or train.en.gz"
            )
        if len(suffixes) > 1:
            raise DataError(
                f"--{'xy'[side]}: files of several languages ({', '.join(suffixes)}); give files of one language"
            )
        found += suffixes
    if found[0] == found[1]:
        raise DataError(f"{sources[0][1]}: both sides are named .{found[0]}; name them by their languages")
    return found


def _made_before(manifest: Manifest, files: Mapping[str, Sequence[Path]]) -> Augmented | None:
    """Return the result of an earlier call with the same settings, if any; raise if other files are in its place."""
    made = manifest.made("variants")
    ours = {file: name in made.get("files", ()) for name, sides in files.items() for file in sides}
    for file in (file for file, is_ours in ours.items() if file.exists() and not is_ours):
        raise DataError(f"{file} was not written by this command and is not overwritten; choose another output folder")
    if not made or not all(file.exists() for file, is_ours in ours.items() if is_ours):
        return None
    return Augmented(made["pairs"], made["lines"])
