"""Time and BLEU per translation: KERMIT on each engine, transformers' Marian and CTranslate2, all in one run.

    python benchmarks/translation_speed.py --kermit DIR --transformer DIR --data DIR [--direction en-de] [--texts 200]

KERMIT needs both exported files (`kermit export DIR`). Every system translates the same texts with 1 and 2 threads,
one at a time and in batches of 64; times include tokenizing. Every model has a process of its own, so that no library's
threads compete with those of another, and only one process works at a time. The systems alternate, each after a warm-up
of its own, and times are medians of the repeats. The ratios are speeds relative to greedy search by transformers and by
CTranslate2 in int8.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import sacrebleu

from kermit import DecodingSettings, Kermit, Ranking, Strategy
from kermit.data.plain import read_lines
from kermit.families.transformer import BeamSearch

BATCHES = (1, 64)
WARM_UP = 16
"""Number of texts translated before every timing, for the system before has filled the caches with its own weights."""
STRATEGIES = {
    "parallel": DecodingSettings(Strategy.PARALLEL),
    "parallel, best of 8": DecodingSettings(Strategy.PARALLEL, candidates=8, ranking=Ranking.LEFT_TO_RIGHT),
    "left to right": DecodingSettings(Strategy.LEFT_TO_RIGHT),
}
SEARCHES = {"greedy": BeamSearch(beams=1, batch_tokens=1e6), "5 beams": BeamSearch(beams=5, batch_tokens=1e6)}
PEERS = {"transformers": ("transformers", "greedy"), "ctranslate2": ("CTranslate2 int8", "greedy")}


@dataclass(frozen=True)
class Timed:
    """The milliseconds per text, the translations, and their mean number of rounds."""

    milliseconds: float
    translations: list[str]
    rounds: float


class Worker:
    """A model in a process of its own."""

    model: Kermit
    """The model of this process."""

    @classmethod
    def start(cls, load: Callable[..., Kermit], threads: int, *arguments: object) -> None:
        """Load the model of this process."""
        import torch

        torch.set_num_threads(threads)
        cls.model = load(threads, *arguments)

    @classmethod
    def translate(cls, texts: Sequence[str], to: str, settings: object, batch: int) -> Timed:
        """Translate texts in batches, after a warm-up."""

        def run(texts: Sequence[str]):
            groups = (texts[first : first + batch] for first in range(0, len(texts), batch))
            return [
                one
                for group in groups
                for one in cls.model.translate(group, to, settings=settings, split_sentences=False)
            ]

        run(texts[: max(WARM_UP, batch)])
        start = time.perf_counter()
        found = run(texts)
        taken = (time.perf_counter() - start) * 1000 / len(texts)
        to_y = to == cls.model.languages[1]
        return Timed(
            taken, [(one.y if to_y else one.x) or "" for one in found], statistics.fmean(one.rounds for one in found)
        )


def load_kermit(threads: int, folder: Path, engine: str, precision: str | None) -> Kermit:
    return Kermit.from_pretrained(folder, engine=engine, precision=precision, threads=threads)


def load_transformer(threads: int, folder: Path, precision: str | None) -> Kermit:
    model = Kermit.from_pretrained(folder)
    if precision is None:
        return model
    from kermit.tasks.ctranslate2_teacher import converted

    return converted(model, precision, threads_per_batch=threads)


@dataclass(frozen=True)
class System:
    """A model in its process, with one way of decoding."""

    name: str
    decoding: str
    process: ProcessPoolExecutor
    settings: object


def systems_of(kermit: Path, transformer: Path, threads: int) -> Iterator[System]:
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for the processes
    models = {
        "KERMIT onnx int8": (load_kermit, threads, kermit, "onnx", "int8"),
        "KERMIT onnx float32": (load_kermit, threads, kermit, "onnx", "float32"),
        "KERMIT torch": (load_kermit, threads, kermit, "torch", None),
        "transformers": (load_transformer, threads, transformer, None),
        "CTranslate2 int8": (load_transformer, threads, transformer, "int8"),
        "CTranslate2 float32": (load_transformer, threads, transformer, "float32"),
    }
    ordered = Kermit.from_pretrained(kermit).info.inserts_left_to_right
    for name, arguments in models.items():
        process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), Worker.start, arguments)
        ways = STRATEGIES if name.startswith("KERMIT") else SEARCHES
        for decoding, settings in ways.items():
            if ordered or decoding in ("parallel", *SEARCHES):
                yield System(name, decoding, process, settings)


def measure(systems: list[System], texts: Sequence[str], references: Sequence[str], repeats: int, to: str):
    for batch in BATCHES:
        taken: dict[System, list[float]] = {system: [] for system in systems}
        found: dict[System, Timed] = {}
        for _, system in itertools.product(range(repeats), systems):
            found[system] = system.process.submit(Worker.translate, texts, to, system.settings, batch).result()
            taken[system].append(found[system].milliseconds)
        median = {system: statistics.median(times) for system, times in taken.items()}
        by_name = {(system.name, system.decoding): time for system, time in median.items()}
        for system in systems:
            yield {
                "system": system.name,
                "decoding": system.decoding,
                "batch": batch,
                "milliseconds": round(median[system], 2),
                "spread": round(max(taken[system]) - min(taken[system]), 2),
                **{f"times_{peer}": round(by_name[name] / median[system], 2) for peer, name in PEERS.items()},
                "bleu": round(sacrebleu.corpus_bleu(found[system].translations, [list(references)]).score, 1),
                "rounds": round(found[system].rounds, 2),
            }


def table(rows: list[dict]) -> str:
    columns = ("system", "decoding", "threads", "batch", "milliseconds", "times_transformers", "times_ctranslate2")
    columns += ("bleu", "rounds")
    lines = [columns, ["---"] * len(columns), *([row[name] for name in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kermit", type=Path, required=True, help="folder of the exported KERMIT model")
    parser.add_argument(
        "--transformer", type=Path, required=True, help="folder of the Transformer trained on the same data"
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with multi30k in it")
    parser.add_argument("--split", default="test_2016_flickr")
    parser.add_argument("--direction", default="en-de")
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--output", type=Path, help="JSON file to write the rows to")
    options = parser.parse_args()
    source, target = options.direction.split("-")
    texts, references = (
        [line.text for line in read_lines(options.data / f"multi30k/{options.split}.{name}.gz")][: options.texts]
        for name in (source, target)
    )
    rows = []
    for threads in options.threads:
        systems = list(systems_of(options.kermit, options.transformer, threads))
        for row in measure(systems, texts, references, options.repeats, target):
            rows.append({"threads": threads} | row)
            print(json.dumps(rows[-1]), flush=True)
        for system in systems:
            system.process.shutdown()
    print(table(rows))
    if options.output:
        options.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
