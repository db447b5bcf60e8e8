"""Distillation: a teacher's translations as training data (sequence-level knowledge distillation).

The text is translated in blocks, so that an interrupted run can resume; a manifest records teacher, decoding and text,
and a run with other settings is refused. At the end the blocks are joined into two line-aligned files, source and
translation, without unfinished translations and, with a filter, without pairs that are clearly wrong.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from kermit.data.plain import Fault, OnBad, Report, file_checksum, read_texts
from kermit.engines.onnx_engine import OnnxEngine
from kermit.errors import DataError, KermitError, Place
from kermit.loading import find_model
from kermit.pipeline import Kermit
from kermit.provenance import Manifest, model_checksum, partial, write_whole
from kermit.searcher import ChosenDecoding
from kermit.tasks.ctranslate2_teacher import CTranslate2Searcher
from kermit.tasks.distillation_filters import PairFilter, Reason
from kermit.tasks.translation import Direction, target_text

logger = logging.getLogger(__name__)

_NOTED = ("backend_version", "texts", "unfinished", "filtered")


@dataclass(frozen=True)
class Distilled:
    """The two line-aligned files, with the number of texts in them and the numbers left out.

    `filtered` counts the pairs that are clearly wrong, by reason; it is empty without a filter.
    """

    source: Path
    target: Path
    texts: int
    unfinished: int
    filtered: dict[str, int] = field(default_factory=dict)


def distill(
    facade: Kermit,
    teacher: str | Path,
    text: Path,
    direction: Direction,
    decoding: ChosenDecoding,
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
        text: the source side, one text per line, plain or gzipped; NAME is its file name without the language.
        output: the output folder; blocks of the same run in it are not translated again.
        on_bad: what to do with lines that are empty, not UTF-8, or too long for the teacher.
        filter_pairs: leave out pairs that are clearly wrong (see `distillation_filters`).
    """
    name = text.name.removesuffix(".gz").removesuffix(f".{direction.source}")
    files = [output / f"{name}.{language}" for language in (direction.source, direction.target)]
    blocks = output / f".{name}.{direction}.blocks"
    backend, backend_version = _backend(facade)
    noted = {"backend_version": backend_version}
    settings: dict[str, Any] = {
        "teacher": model_checksum(find_model(teacher)),
        "text": file_checksum(text),
        "direction": str(direction),
        "decoding": decoding.record(),
        "backend": backend,
        "precision": facade.precision,
        "limit": limit,
        "block_size": block_size,
        "filter": filter_pairs,
    }
    manifest = Manifest(output / f"{name}.{direction}.json", settings, results=_NOTED)
    made = _made_before(text, files, blocks, manifest)
    if "texts" in made and all(file.is_file() for file in files):
        logger.info("%s: already translated, nothing to do", text)
        return Distilled(files[0], files[1], made["texts"], made["unfinished"], made.get("filtered", {}))
    blocks.mkdir(parents=True, exist_ok=True)
    if not made:
        manifest.write(**noted)
    report = Report(on_bad, how_to_skip="add --skip-bad")
    progress = progress or (lambda _: None)
    texts, number = islice(read_texts(text, report), limit), 0
    while block := list(islice(texts, block_size)):
        path = blocks / f"{number:06}.jsonl"
        if path.is_file():
            progress(len(block))
        else:
            write_whole(path, _translated(block, facade, direction, decoding, report, progress))
        number += 1
    logger.info("%s: %s", text, report.summary())
    if not report.read:
        raise DataError(f"{text}: the file holds no text to translate")
    return _finish(text, files, blocks, manifest, noted, filter_pairs)


def _translated(
    block: list[tuple[str, Place]],
    facade: Kermit,
    direction: Direction,
    decoding: ChosenDecoding,
    report: Report,
    progress: Callable[[int], None],
) -> str:
    """Translate texts, given with their places, into the lines of a block; report texts too long for the model."""
    while True:
        texts = [text for text, _ in block]
        settings, seeds = decoding.settings(), decoding.seeds(len(texts))
        try:
            results = facade.translate(
                texts, direction.target, settings=settings, seeds=seeds, split_sentences=False, on_progress=progress
            )
            break
        except KermitError as error:
            if (number := error.text) is None:
                raise
            report.bad(Fault.TOO_LONG, block[number][1], error.message)
            report.read -= 1
            progress(1)
            block = block[:number] + block[number + 1 :]
    lines = []
    for text, result in zip(texts, results, strict=True):
        translation = " ".join(target_text(facade, direction, result).splitlines())
        lines.append(json.dumps([text, translation, result.finish], ensure_ascii=False) + "\n")
    return "".join(lines)


def _backend(facade: Kermit) -> tuple[str, str]:
    """Return the library that runs a teacher, and its version."""
    if isinstance(facade.searcher, CTranslate2Searcher):
        return "ctranslate2", facade.searcher.version
    if facade.searcher is None and isinstance(facade.engine, OnnxEngine):
        return "onnx", version("onnxruntime")
    return "transformers", version("transformers")


def _made_before(text: Path, files: list[Path], blocks: Path, manifest: Manifest) -> dict[str, Any]:
    """Return the manifest's record of earlier translations, if any; raise if other files are in their place."""
    for file in files:
        if file.exists() and file.samefile(text):
            raise DataError(f"{file} is the text to translate and would be overwritten; choose another output folder")
    present = [file for file in files if file.exists()]
    if not present and not any(blocks.glob("*.jsonl")):
        return {}
    made = manifest.made("translations")
    if present and "texts" not in made:
        raise DataError(
            f"{present[0]} was not written by this command and is not overwritten; choose another output folder"
        )
    if not made:
        raise DataError(f"{blocks} holds translations without their {manifest.path.name}; remove that folder")
    return made


def _finish(
    text: Path, files: list[Path], blocks: Path, manifest: Manifest, noted: dict[str, Any], filter_pairs: bool
) -> Distilled:
    """Write the pairs to keep and the counts, and remove the blocks."""
    kept = unfinished = 0
    judge = PairFilter.of(pair for pair in _pairs(blocks) if pair is not None) if filter_pairs else None
    filtered = {reason.value: 0 for reason in Reason} if filter_pairs else {}
    scratch = [partial(file) for file in files]
    with scratch[0].open("w", encoding="utf-8") as sources, scratch[1].open("w", encoding="utf-8") as targets:
        for pair in _pairs(blocks):
            if pair is None:
                unfinished += 1
            elif judge is not None and (reason := judge.reason(*pair)) is not None:
                filtered[reason.value] += 1
            else:
                sources.write(f"{pair[0]}\n")
                targets.write(f"{pair[1]}\n")
                kept += 1
    if not kept:
        for path in scratch:
            path.unlink()
        shutil.rmtree(blocks)
        reasons = counted({"unfinished": unfinished, **filtered})
        raise DataError(f"{text}: no pair is left ({reasons}), so nothing was written; choose another teacher")
    if unfinished:
        logger.warning("%s: %d texts left out because their translation did not finish", text, unfinished)
    counts: dict[str, Any] = {"texts": kept, "unfinished": unfinished}
    if filter_pairs:
        logger.info("%s: %d pairs left out by the filter (%s)", text, sum(filtered.values()), counted(filtered))
        counts["filtered"] = filtered
    manifest.write(**noted, **counts)  # first, so that the files are recognised as written by this command
    for path, file in zip(scratch, files, strict=True):
        path.rename(file)
    shutil.rmtree(blocks)
    return Distilled(files[0], files[1], kept, unfinished, filtered)


def _pairs(blocks: Path) -> Iterator[tuple[str, str] | None]:
    """Yield texts with their translations, block by block; None for an unfinished one."""
    for block in sorted(blocks.glob("*.jsonl")):
        for line in block.read_text(encoding="utf-8").split("\n"):
            if line:
                source, target, finish = json.loads(line)
                yield (source, target) if finish == "finished" and target.strip() else None


def counted(filtered: dict[str, int]) -> str:
    """Format counts by reason, such as `length 3, copy 1`."""
    return ", ".join(f"{reason} {count:,}" for reason, count in filtered.items())
