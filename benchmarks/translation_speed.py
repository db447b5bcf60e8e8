"""Time and BLEU per translation: KERMIT on each engine, transformers' Marian and CTranslate2, all in one run.

    python benchmarks/translation_speed.py --kermit DIR --transformer DIR --data DIR [--direction en-de] [--texts 200]

KERMIT needs both exported files (`kermit export DIR`). Every system translates the same texts with 1 and 2 threads,
one at a time and in batches of 64; times include tokenizing. The systems alternate, each after a warm-up of its own,
and times are medians of the repeats. The ratios are speeds relative to greedy search by transformers and by CTranslate2
in int8.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import sacrebleu
import torch

from kermit import DecodingSettings, Kermit, Ranking, Strategy
from kermit.data.plain import read_lines
from kermit.families.transformer import BeamSearch
from kermit.results import Generation
from kermit.tasks.ctranslate2_teacher import converted

BATCHES = (1, 64)
WARM_UP = 16
"""Number of texts translated before every timing, for the system before has filled the caches with its own weights."""
STRATEGIES = {
    "parallel": DecodingSettings(Strategy.PARALLEL),
    "parallel, best of 8": DecodingSettings(Strategy.PARALLEL, candidates=8, ranking=Ranking.LEFT_TO_RIGHT),
    "left to right": DecodingSettings(Strategy.LEFT_TO_RIGHT),
}
PEERS = {"transformers": ("transformers", "greedy"), "ctranslate2": ("CTranslate2 int8", "greedy")}


@dataclass(frozen=True)
class System:
    """A system that translates texts to generations."""

    name: str
    decoding: str
    translate: Callable[[Sequence[str]], list[Generation]]


def kermit_systems(folder: Path, to: str, threads: int) -> Iterator[System]:
    for engine, precision in (("onnx", "int8"), ("onnx", "float32"), ("torch", None)):
        model = Kermit.from_pretrained(folder, engine=engine, precision=precision, threads=threads)
        name = f"KERMIT {engine} {precision}" if precision else "KERMIT torch"
        for decoding, settings in STRATEGIES.items():
            if decoding == "parallel" or model.info.inserts_left_to_right:
                yield System(
                    name,
                    decoding,
                    lambda texts, m=model, s=settings: m.translate(texts, to, settings=s, split_sentences=False),
                )


def transformer_systems(folder: Path, to: str, threads: int) -> Iterator[System]:
    transformer = Kermit.from_pretrained(folder)
    models = {"transformers": transformer}
    for precision in ("int8", "float32"):
        models[f"CTranslate2 {precision}"] = converted(transformer, precision, threads_per_batch=threads)
    for (name, model), beams in itertools.product(models.items(), (1, 5)):
        search = BeamSearch(beams=beams, batch_tokens=1e6)
        decoding = "greedy" if beams == 1 else f"{beams} beams"
        yield System(
            name, decoding, lambda texts, m=model, s=search: m.translate(texts, to, settings=s, split_sentences=False)
        )


def timed(system: System, texts: Sequence[str], batch: int) -> tuple[float, list[Generation]]:
    """Return the milliseconds per text, and the translations."""
    start = time.perf_counter()
    groups = (texts[first : first + batch] for first in range(0, len(texts), batch))
    found = [one for group in groups for one in system.translate(group)]
    return (time.perf_counter() - start) * 1000 / len(texts), found


def measure(systems: list[System], texts: Sequence[str], references: Sequence[str], repeats: int, to_y: bool):
    for batch in BATCHES:
        taken: dict[System, list[float]] = {system: [] for system in systems}
        found: dict[System, list[Generation]] = {}
        for _, system in itertools.product(range(repeats), systems):
            timed(system, texts[: max(WARM_UP, batch)], batch)
            milliseconds, found[system] = timed(system, texts, batch)
            taken[system].append(milliseconds)
        median = {system: statistics.median(times) for system, times in taken.items()}
        by_name = {(system.name, system.decoding): time for system, time in median.items()}
        for system in systems:
            hypotheses = [(one.y if to_y else one.x) or "" for one in found[system]]
            yield {
                "system": system.name,
                "decoding": system.decoding,
                "batch": batch,
                "milliseconds": round(median[system], 2),
                "spread": round(max(taken[system]) - min(taken[system]), 2),
                **{f"times_{peer}": round(by_name[name] / median[system], 2) for peer, name in PEERS.items()},
                "bleu": round(sacrebleu.corpus_bleu(hypotheses, [list(references)]).score, 1),
                "rounds": round(statistics.fmean(one.rounds for one in found[system]), 2),
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
        torch.set_num_threads(threads)
        systems = [
            *kermit_systems(options.kermit, target, threads),
            *transformer_systems(options.transformer, target, threads),
        ]
        to_y = target == Kermit.from_pretrained(options.kermit).languages[1]
        for row in measure(systems, texts, references, options.repeats, to_y):
            rows.append({"threads": threads} | row)
            print(json.dumps(rows[-1]), flush=True)
    print(table(rows))
    if options.output:
        options.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
