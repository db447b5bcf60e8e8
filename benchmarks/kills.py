"""Kill a training run at random times (INT, TERM, HUP, KILL in turn), resume it, and compare its weights.

    python benchmarks/kills.py --kills 100 --output kills

A tiny recipe is trained once without interruption. Then it is trained repeatedly and killed at random times, until the
number of kills is reached; every finished training must have bit-identical weight files. Children are forked from one
process that has imported torch, so that a kill costs about a second.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path

import torch

from kermit.training.recipe import check_recipe
from kermit.training.run import train

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
WEIGHTS = ("model.safetensors", "best/model.safetensors", "checkpoint-300/average.safetensors")
RECIPE = {
    "seed": 1,
    "data": {
        "languages": {"x": "en", "y": "de"},
        "train": [{"x": "train.en", "y": "train.de"}],
        "validation": {"x": "val.en", "y": "val.de"},
    },
    "tokenizer": {"vocab_size": 400},
    "factorizations": {"y_given_x": 1, "x_given_y": 1},
    "orders": {"balanced_tree": 1, "left_to_right": 1},
    "model": {
        "family": "kermit",
        "slot_vector": "both",
        "cached_context": True,
        "trunk": {"model_type": "kermit_encoder", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
    },
    "objective": {"name": "generation", "infilling": 0.3, "location_weight": 0.0},
    "batch": {"tokens": 200},
    "optimizer": {"name": "muon", "learning_rate": 0.003},
    "schedule": {"max_steps": 300, "warmup_steps": 10},
    "averaging": {"ema": 0.9},
    "decoding": {"max_tokens": 8},
    "evaluation": {"every": 100, "texts": 2},
    "checkpoints": {"every": 10, "keep": 1},
    "runtime": {"log_every": 100},
}


def resume(loaded, folder):
    """Train or resume, and exit with the number of the signal that stopped the training, or 0."""
    torch.set_num_threads(1)
    try:
        sys.exit(train(loaded, folder, resume=True).stopped_by or 0)
    except KeyboardInterrupt:  # before the training has installed its signal handlers
        sys.exit(int(signal.SIGINT))


def start(loaded, folder):
    """Fork a child that trains."""
    child = get_context("fork").Process(target=resume, args=(loaded, folder))
    child.start()
    return child


def wait(child, seconds=None):
    """Return the exit code of a child; None if it is still running after `seconds`."""
    child.join(seconds)
    return child.exitcode


def checksums(folder):
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest()[:16] for name in WEIGHTS}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("kills"))
    options = parser.parse_args()
    data, whole, killed = (options.output / name for name in ("data", "whole", "killed"))
    shutil.rmtree(options.output, ignore_errors=True)
    pairs = Path(__file__).parents[1] / "examples" / "railway_pairs.py"
    subprocess.run([sys.executable, str(pairs), str(data)], check=True, capture_output=True)
    loaded = check_recipe(RECIPE, data=data)
    began = time.monotonic()
    if wait(start(loaded, whole)) != 0:
        raise SystemExit("the training without interruption failed")
    seconds, expected = time.monotonic() - began, checksums(whole)
    draw, signals, kills, same, trainings = random.Random(options.seed), cycle(SIGNALS), Counter(), 0, 0
    while kills.total() < options.kills:
        shutil.rmtree(killed, ignore_errors=True)
        finished = False
        while not finished:
            child = start(loaded, killed)
            code = wait(child, draw.uniform(0, seconds / 6) if kills.total() < options.kills else None)
            if code is None:
                number = next(signals)
                os.kill(child.pid, number)
                code = wait(child)
                kills[number.name] += 1
                if code not in (0, number, -number):
                    raise SystemExit(f"after {number.name} the training exited with {code}")
            elif code != 0:
                raise SystemExit(f"a training that was not killed exited with {code}")
            finished = code == 0
        trainings += 1
        same += checksums(killed) == expected
        print(f"{kills.total()} kills, {trainings} trainings, {same} with the same weights", flush=True)
    record = {"kills": kills, "trainings": trainings, "same_weights": same, "seconds_without_kills": round(seconds, 1)}
    print(json.dumps(record))
    raise SystemExit(0 if same == trainings else 1)


if __name__ == "__main__":
    main()
