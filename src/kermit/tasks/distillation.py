"""Distillation: a teacher's own translations as training data (sequence-level knowledge distillation).

The text is taken in blocks. Each block's translations are written aside and renamed when whole, so that an interrupted
run goes on where it was; a manifest says by which teacher, with which decoding and from which text they were made, and
another one is refused. At the end the blocks become two line-aligned files, source and teacher's translation, without
texts whose translation did not end and, if asked for, pairs that are visibly wrong.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from kermit.data.plain import Fault, OnBad, Report, file_checksum, read_texts
from kermit.errors import DataError, KermitError, Place
from kermit.files import partial, write_whole
from kermit.folders import model_folder, weight_files
from kermit.tasks.ctranslate2_teacher import CTranslate2Teacher
from kermit.tasks.distillation_filters import Languages, Reason, wrong_pair
from kermit.tasks.translation import Direction, Translation
from kermit.tasks.translator import Translator
from kermit.training.settings import Settings

logger = logging.getLogger(__name__)

_UNSAID = {"precision": "float32", "backend": "transformers", "filter": False}  # what manifests did not always say
_NOTED = ("backend_version",)  # what may change before a run goes on


@dataclass(frozen=True)
class Distilled:
    """The two line-aligned files, and how many texts are in them and were left out.

    `filtered` counts the pairs that are visibly wrong, by reason; it is empty where no filter was asked for.
    """

    source: Path
    target: Path
    texts: int
    unfinished: int
    filtered: dict[str, int] = field(default_factory=dict)


def distill(
    translator: Translator | CTranslate2Teacher,
    teacher: Path,
    text: Path,
    direction: Direction,
    decoding: Settings,
    output: Path,
    *,
    limit: int | None = None,
    on_bad: OnBad = OnBad.ERROR,
    filter_pairs: bool = False,
    block_size: int = 1000,
    progress: Callable[[int], None] | None = None,
) -> Distilled:
    """Translate a file with a teacher and write `NAME.SOURCE` and `NAME.TARGET` into a folder.

    Args:
        translator: the teacher, loaded; or converted, to be run by CTranslate2.
        teacher: the folder that it was loaded from.
        text: the source side, a text a line, plain or gzipped; NAME is its name up to the language.
        direction: which way to translate.
        decoding: how, by the teacher's family's settings.
        output: where the files go; blocks already there from the same run are not made again.
        limit: translate the first so many texts alone; None for all.
        on_bad: what to do with lines that are empty, no UTF-8 or longer than the teacher can read.
        filter_pairs: leave out pairs that are visibly wrong (see `distillation_filters`).
        block_size: texts translated between two savings.
        progress: told how many more texts are done.

    Raises:
        DataError: the file holds no text, the folder holds blocks or files made otherwise, or no pair is left.
    """
    name = text.name.removesuffix(".gz").removesuffix(f".{direction.source}")
    files = [output / f"{name}.{language}" for language in (direction.source, direction.target)]
    blocks = output / f".{name}.{direction}.blocks"
    weights = weight_files(model_folder(teacher))
    manifest: dict[str, Any] = {
        "teacher": hashlib.sha256(b"".join(file.read_bytes() for file in weights)).hexdigest(),
        "text": file_checksum(text),
        "direction": str(direction),
        "decoding": decoding.model_dump(mode="json"),
        **_engine(translator),
        "limit": limit,
        "block_size": block_size,
        "filter": filter_pairs,
    }
    place = output / f"{name}.{direction}.json"
    made = _made_before(text, files, blocks, place, manifest)
    if "texts" in made and all(file.is_file() for file in files):
        logger.info("%s: translated before, nothing left to do", text)
        return Distilled(files[0], files[1], made["texts"], made["unfinished"], made.get("filtered", {}))
    blocks.mkdir(parents=True, exist_ok=True)
    if not made:
        write_whole(place, json.dumps(manifest, indent=2) + "\n")
    report = Report(on_bad, how_to_skip="add --skip-bad")
    for index, block in enumerate(_blocks(text, report, block_size, limit)):
        path = blocks / f"{index:06}.jsonl"
        if not path.is_file():
            results = _translated(translator, block, direction, decoding, report, progress)
            lines = [json.dumps([r.source, _one_line(r.text), r.finish], ensure_ascii=False) + "\n" for r in results]
            write_whole(path, "".join(lines))
        elif progress is not None:
            progress(len(block))
    logger.info("%s: %s", text, report.summary())
    if not report.read:
        raise DataError(f"{text}: the file holds no text to translate")
    scratch = [partial(file) for file in files]
    kept, unfinished, filtered = _join(blocks, scratch, filter_pairs)
    if not kept:
        for path in scratch:
            path.unlink()
        shutil.rmtree(blocks)
        raise DataError(f"{text}: {_nothing_left(unfinished, filtered)}")
    if unfinished:
        logger.warning("%s: %d texts left out, as the teacher's translation did not end", text, unfinished)
    if filter_pairs:
        logger.info("%s: %d pairs left out by the filter (%s)", text, sum(filtered.values()), told(filtered))
        manifest["filtered"] = filtered
    manifest |= {"texts": kept, "unfinished": unfinished}
    write_whole(place, json.dumps(manifest, indent=2) + "\n")  # first: files are ours where it has their counts
    for path, file in zip(scratch, files, strict=True):
        path.rename(file)
    shutil.rmtree(blocks)
    return Distilled(files[0], files[1], kept, unfinished, filtered)


def told(filtered: dict[str, int]) -> str:
    """Counts by reason, as `length 3, copy 1`."""
    return ", ".join(f"{reason} {count:,}" for reason, count in filtered.items())


def _nothing_left(unfinished: int, filtered: dict[str, int]) -> str:
    if any(filtered.values()):
        return (
            f"no pair is left: {unfinished:,} of the teacher's translations did not end, and the filter left out the"
            f" others ({told(filtered)}), so nothing was written; look at them without the filter"
        )
    return (
        f"none of the teacher's {unfinished:,} translations ended, so nothing was written; raise max_tokens, or choose"
        " another teacher"
    )


def _engine(translator: Translator | CTranslate2Teacher) -> dict[str, str]:
    """What runs the teacher, for the manifest."""
    if isinstance(translator, CTranslate2Teacher):
        found = (translator.backend, translator.version, translator.precision)
    else:
        found = ("transformers", version("transformers"), str(translator.model.dtype).removeprefix("torch."))
    return dict(zip(("backend", "backend_version", "precision"), found, strict=True))


def _made_before(text: Path, files: list[Path], blocks: Path, place: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """What is noted of the translations that are there, if any; raise where something else is in their place."""
    for file in files:
        if file.exists() and file.samefile(text):
            raise DataError(f"{file} is the text to translate, and would be replaced; choose another output folder")
    present = [file for file in files if file.exists()]
    if not present and not any(blocks.glob("*.jsonl")):
        return {}
    made = _read_manifest(place) if place.is_file() else {}
    compared = {key: value for key, value in manifest.items() if key not in _NOTED}
    differing = [key for key, value in compared.items() if made.get(key, _UNSAID.get(key)) != value]
    if made and differing:
        raise DataError(
            f"{place.parent} holds translations made with another {', '.join(differing)} (see {place.name});"
            " choose another output folder, or remove them"
        )
    if present and "texts" not in made:
        raise DataError(f"{present[0]} was not made by this command, and is not replaced; choose another output folder")
    if not made:
        raise DataError(f"{blocks} holds translations of which no {place.name} tells; remove that folder")
    return made


def _read_manifest(place: Path) -> dict[str, Any]:
    try:
        made = json.loads(place.read_text(encoding="utf-8"))
    except ValueError:
        made = None
    if not isinstance(made, dict):
        raise DataError(f"{place}: this does not tell how translations were made; choose another output folder")
    return made


def _translated(
    translator: Translator | CTranslate2Teacher,
    block: list[tuple[str, Place]],
    direction: Direction,
    decoding: Settings,
    report: Report,
    progress: Callable[[int], None] | None,
) -> list[Translation]:
    """Translate texts, given with their places; those that are too long for the model go to the report."""
    while True:
        try:
            return translator.translate([text for text, _ in block], direction, decoding, progress=progress)
        except KermitError as error:
            if (number := error.text) is None:
                raise
            report.bad(Fault.TOO_LONG, block[number][1], error.message)
            report.read -= 1
            if progress is not None:
                progress(1)
            block = block[:number] + block[number + 1 :]


def _blocks(text: Path, report: Report, size: int, limit: int | None) -> Iterator[list[tuple[str, Place]]]:
    texts = islice(read_texts(text, report), limit)
    while block := list(islice(texts, size)):
        yield block


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _join(blocks: Path, files: list[Path], filter_pairs: bool) -> tuple[int, int, dict[str, int]]:
    """Write the pairs that are kept; return how many, how many did not end, and how many were filtered by reason."""
    kept = unfinished = 0
    filtered: Counter[Reason] = Counter()
    languages = Languages.count(pair for pair in _pairs(blocks) if pair is not None) if filter_pairs else None
    with files[0].open("w", encoding="utf-8") as sources, files[1].open("w", encoding="utf-8") as targets:
        for pair in _pairs(blocks):
            if pair is None:
                unfinished += 1
            elif languages is not None and (reason := wrong_pair(*pair, languages)) is not None:
                filtered[reason] += 1
            else:
                sources.write(f"{pair[0]}\n")
                targets.write(f"{pair[1]}\n")
                kept += 1
    return kept, unfinished, {reason.value: filtered[reason] for reason in Reason} if filter_pairs else {}


def _pairs(blocks: Path) -> Iterator[tuple[str, str] | None]:
    """Texts with their translations, block by block; None for one that did not end."""
    for block in sorted(blocks.glob("*.jsonl")):
        for line in block.read_text(encoding="utf-8").split("\n"):
            if line:
                source, target, finish = json.loads(line)
                yield (source, target) if finish == "finished" and target.strip() else None
