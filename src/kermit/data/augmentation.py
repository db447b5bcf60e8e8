"""Augmentation: variants of text pairs (`kermit.data.variants`) as line-aligned files that recipes can read.

`augment.json` says with which rates and seed and from which text they were made; another call with the same makes
nothing again, and one with others is refused.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kermit.data.names import TextPair
from kermit.data.parallel import TextSource, read_pairs
from kermit.data.plain import OnBad, Report, file_checksum
from kermit.data.variants import variants
from kermit.errors import DataError
from kermit.files import partial, write_whole

logger = logging.getLogger(__name__)

NAMES = ("source_x", "source_y", "both")
"""The files, up to the language: pairs for translating X, for translating Y, and for all directions."""


@dataclass(frozen=True)
class Augmented:
    """How many pairs were read, and the lines of each kind in each file, as `lines[kind][name]`."""

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
        output: where `source_x`, `source_y` and `both` go, each with the languages as suffixes, and `augment.json`.
        rates: of every kind, as `variants.checked` returns them.
        seed: of all draws.
        on_bad: what to do with lines that are empty or invalid UTF-8.
        progress: called after every kind with 1.

    Raises:
        DataError: files without a language, no pairs, nothing to write, or a folder with files made otherwise.
    """
    languages = _languages(sources)
    place = output / "augment.json"
    manifest: dict[str, Any] = {
        "rates": dict(rates),
        "seed": seed,
        "inputs": [[file_checksum(x), file_checksum(y)] for x, y in sources],
        "languages": languages,
    }
    files = {name: [output / f"{name}.{language}" for language in languages] for name in NAMES}
    made = _made_before(place, manifest, files)
    if made is not None:
        logger.info("%s: made before, nothing left to do", output)
        return made
    report = Report(on_bad, how_to_skip="add --skip-bad")
    pairs = [(pair.x, pair.y) for x, y in sources for pair in read_pairs(TextSource(x=x, y=y), report)]
    logger.info(report.summary())
    if not pairs:
        raise DataError(f"{sources[0][0]}: the file holds no text to vary")
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
        raise DataError("no kind has a variant of these pairs, so nothing was written; raise the rates")
    _write({name: files[name] for name in NAMES if found[name]}, found, place, manifest, len(pairs), lines)
    return Augmented(len(pairs), lines)


def _write(
    files: Mapping[str, Sequence[Path]],
    found: Mapping[str, Sequence[TextPair]],
    place: Path,
    manifest: Mapping[str, Any],
    pairs: int,
    lines: Mapping[str, Mapping[str, int]],
) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    for name, sides in files.items():
        for side, file in enumerate(sides):
            with partial(file).open("w", encoding="utf-8", newline="\n") as stream:
                stream.writelines(f"{pair[side]}\n" for pair in found[name])
    counts = {"pairs": pairs, "files": {name: len(found[name]) for name in files}, "lines": lines}
    write_whole(place, json.dumps({**manifest, **counts}, indent=2) + "\n")  # first: it says that the files are ours
    for file in (file for sides in files.values() for file in sides):
        partial(file).rename(file)


def _languages(sources: Sequence[tuple[Path, Path]]) -> list[str]:
    """The languages of X and Y by the suffixes of all files."""
    found: list[str] = []
    for side in (0, 1):
        suffixes = {Path(pair[side].name.removesuffix(".gz")).suffix[1:]: pair[side] for pair in sources}
        if "" in suffixes:
            raise DataError(
                f"{suffixes['']}: the name does not end in a language; name it like train.en or train.en.gz"
            )
        if len(suffixes) > 1:
            raise DataError(f"--{'xy'[side]}: files of several languages ({', '.join(suffixes)}); give those of one")
        found += suffixes
    if found[0] == found[1]:
        raise DataError(f"{sources[0][1]}: both sides are named .{found[0]}; name them by their languages")
    return found


def _made_before(place: Path, manifest: Mapping[str, Any], files: Mapping[str, Sequence[Path]]) -> Augmented | None:
    """Read what was made with the same settings; raise where anything else is in its place."""
    if not place.exists():
        present = [file for sides in files.values() for file in sides if file.exists()]
        if present:
            raise DataError(
                f"{present[0]} was not made by this command, and is not replaced; choose another output folder"
            )
        return None
    try:
        made = json.loads(place.read_text(encoding="utf-8"))
        augmented, counts = Augmented(made["pairs"], made["lines"]), dict(made["files"])
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{place}: not written by this command; choose another output folder") from None
    differing = [key for key, value in manifest.items() if made.get(key) != value]
    if differing:
        raise DataError(
            f"{place.parent} holds variants made with other {', '.join(differing)} (see {place.name});"
            " choose another output folder, or remove them"
        )
    ours = {file: name in counts for name, sides in files.items() for file in sides}
    for file in (file for file, is_ours in ours.items() if file.exists() and not is_ours):
        raise DataError(f"{file} was not made by this command, and is not replaced; choose another output folder")
    return augmented if all(file.exists() for file, is_ours in ours.items() if is_ours) else None
