"""Rounds and quality: BLEU, rounds and time of every strategy that models were trained for.

Texts are translated in batches of 64 on one thread, greedily; with several candidates the others are sampled, and the
one with the highest exact left-to-right log-probability is kept. Milliseconds are per text, from the same run.

    python benchmarks/strategies.py --model DIR [DIR ...] --data DIR --split val --texts 300 [--candidates 4 8 16]
"""

import argparse
import json
import time
from pathlib import Path

import sacrebleu
import torch

from kermit import DecodingSettings, Kermit, Ranking, Strategy
from kermit.data.plain import read_lines
from kermit.errors import DecodingError


def lines(path, count):
    return [line.text for line in read_lines(path)][:count]


def ways_of(candidates):
    yield "left to right", DecodingSettings(Strategy.LEFT_TO_RIGHT)
    yield "parallel", DecodingSettings(Strategy.PARALLEL)
    for count in candidates:
        yield (
            f"parallel, best of {count}",
            DecodingSettings(Strategy.PARALLEL, candidates=count, ranking=Ranking.LEFT_TO_RIGHT),
        )


def measure(kermit, settings, source, target, to):
    start = time.perf_counter()
    found = kermit.translate(source, to, settings=settings, split_sentences=False)
    milliseconds = (time.perf_counter() - start) * 1000 / len(source)
    texts = [(result.y if to == kermit.languages[1] else result.x) or "" for result in found]
    bleu = sacrebleu.corpus_bleu(texts, [target])
    return {
        "bleu": round(bleu.score, 1),
        "length_ratio": round(bleu.sys_len / bleu.ref_len, 3),
        "rounds": round(sum(result.rounds for result in found) / len(found), 2),
        "milliseconds": round(milliseconds, 1),
    }


def main():
    parser = argparse.ArgumentParser(description="Compare the decoding strategies of models.")
    parser.add_argument("--model", type=Path, nargs="+", required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder with multi30k in it")
    parser.add_argument("--split", default="val")
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--candidates", type=int, nargs="*", default=[4, 8, 16])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for folder in options.model:
        kermit = Kermit.from_pretrained(folder)
        texts = {
            name: lines(options.data / f"multi30k/{options.split}.{name}.gz", options.texts) for name in ("en", "de")
        }
        for name, settings in ways_of(options.candidates):
            for source, target in (("en", "de"), ("de", "en")):
                try:
                    found = measure(kermit, settings, texts[source], texts[target], target)
                except DecodingError:  # the model was not trained for this strategy
                    continue
                row = {"model": folder.name, "strategy": name, "direction": f"{source}-{target}"} | found
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
