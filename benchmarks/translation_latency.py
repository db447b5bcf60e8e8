"""Time of a translation, alone and in a batch, compared with an autoregressive Transformer in the same run.

    python benchmarks/translation_latency.py --model RUN --peer RUN --data DIR [--texts 100] [--threads N]

Both translate the same texts greedily, one at a time and all together; medians over repeats, the two taking turns.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from kermit.facades import load_facade
from kermit.tasks.translation import Direction, read_split

REPEATS = 3


def seconds(translator, texts, direction, together):
    is_transformer = translator.model_type == "marian"
    greedy = translator.decoding({"beams": 1} if is_transformer else {}).settings()
    start = time.perf_counter()
    if together:
        found = translator.translate(texts, direction.target, settings=greedy)
    else:
        found = [translator.translate([text], direction.target, settings=greedy)[0] for text in texts]
    return time.perf_counter() - start, statistics.fmean(result.rounds for result in found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder of the model; the bundled one by default")
    parser.add_argument("--peer", type=Path, required=True, help="folder of the Transformer")
    parser.add_argument("--data", type=Path, required=True, help="folder with SPLIT.en and SPLIT.de")
    parser.add_argument("--split", default="test_2016_flickr")
    parser.add_argument("--direction", default="en-de")
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    direction = Direction.parse(arguments.direction)
    translators = {"model": load_facade(arguments.model), "peer": load_facade(arguments.peer)}
    pairs = read_split(arguments.data, arguments.split, translators["model"].languages)[: arguments.texts]
    forward = direction == Direction(*translators["model"].languages)
    texts = [pair.x if forward else pair.y for pair in pairs]
    for together in (False, True):
        taken = {name: [] for name in translators}
        rounds = {}
        for repeat in range(REPEATS + 1):
            for name, translator in translators.items():
                found, rounds[name] = seconds(translator, texts, direction, together)
                if repeat:  # the first warms up
                    taken[name].append(found / len(texts))
        middle = {name: statistics.median(values) for name, values in taken.items()}
        result = {
            "batch": len(texts) if together else 1,
            "model_ms": round(1000 * middle["model"], 2),
            "peer_ms": round(1000 * middle["peer"], 2),
            "ratio": round(middle["model"] / middle["peer"], 3),
            "model_rounds": round(rounds["model"], 2),
            "peer_rounds": round(rounds["peer"], 2),
            "threads": arguments.threads,
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
