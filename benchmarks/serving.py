"""Requests per second of `kermit serve` with and without batching, on loopback in one run.

Two services of the same model run in separate processes, one of them with batches of 1. First every text is sent alone,
which gives the expected answer. Then clients, each with its own connection, send one text at a time for some seconds,
to the two services in turn. Every answer is compared, and the only error allowed is 429. Exits with 1 if an answer
differs or another error occurs.

    python benchmarks/serving.py [--model DIR] [--clients 64] [--seconds 30] [--texts 150] [--max-batch 32]

If there is no model, neither bundled nor given, one with random weights (6 layers, width 256) is created; it always
inserts 15 tokens in 4 rounds.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import BertConfig

from kermit import KermitConfig, KermitForInsertion
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.loading import bundled_model
from kermit.modeling import special_token_settings

WHO = ("A man", "A woman", "Two girls", "A small dog", "A group of people", "A boy in a red shirt")
DOES = ("is walking", "stands", "is sitting", "plays", "is running")
WHERE = ("down the street.", "in front of a house.", "on the beach.", "near the water.", "with a ball in the park.")
TEXTS = [" ".join(parts) for parts in itertools.product(WHO, DOES, WHERE)]
random.Random(0).shuffle(TEXTS)
RANDOM = {"termination_penalty": 100.0, "max_rounds": 4}
TURNS = 2


@dataclass
class Tally:
    """The answers and errors of one service."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    refused: int = 0
    errors: int = 0
    differing: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def make_random_model(folder):
    tokenizer = train_tokenizer(TEXTS, 600)
    trunk = BertConfig(
        vocab_size=8000,
        hidden_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=1024,
        max_position_embeddings=128,
    )
    torch.manual_seed(0)
    config = KermitConfig(trunk_config=trunk, languages={"x": "en", "y": "de"}, **special_token_settings(tokenizer))
    config.never_generated = [*config.never_generated, *range(len(tokenizer), 8000)]
    KermitForInsertion(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@contextlib.contextmanager
def serving(model, max_batch, options):
    """Run `kermit serve` as a process, and yield its address."""
    command = [sys.executable, "-m", "kermit", "serve", "--port", "0", *(["--model", str(model)] if model else [])]
    command += ["--max-batch", str(max_batch), "--queue", str(options.queue), "--deadline", "600"]
    command += ["--threads", str(options.threads)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = next((line for line in process.stderr if " at http://" in line), None)
            if line is None:
                raise SystemExit("the service did not start")
            yield re.search(r"http://\S+", line)[0]
        finally:
            process.terminate()


def ask(connection, text, settings):
    """Return the status of an answer, and the part that must be equal: all except probabilities, which are rounded."""
    body = json.dumps({"texts": [text], "to": "y"} | settings)
    connection.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = json.loads(answer.read())
    if answer.status != 200:
        return answer.status, content
    (result,) = content["results"]
    return answer.status, (result["y"], result["rounds"], result["tokens"], result["finish"])


def client(number, url, settings, expected, end, tally):
    """Send requests one at a time on a connection; http.client keeps the load on the shared cores low."""
    chance, texts = random.Random(number), list(expected)
    with contextlib.closing(connection_to(url)) as connection:
        while (now := time.perf_counter()) < end:
            text = chance.choice(texts)
            status, answer = ask(connection, text, settings)
            with tally.lock:
                if status == 200:
                    tally.latencies.append(time.perf_counter() - now)
                    tally.differing += answer != expected[text]
                elif status == 429:
                    tally.refused += 1
                else:
                    tally.errors += 1
            if status == 429:
                time.sleep(0.05)


def connection_to(url):
    return http.client.HTTPConnection(url.removeprefix("http://"), timeout=600)


def turn(url, clients, seconds, settings, expected, tally):
    begin = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        everyone = [pool.submit(client, n, url, settings, expected, begin + seconds, tally) for n in range(clients)]
    for one in everyone:
        one.result()  # raise its exception, if any
    tally.seconds += time.perf_counter() - begin


def batch_size(url):
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    numbers = dict(re.findall(r"^kermit_batch_size_(sum|count) (\S+)$", text, re.MULTILINE))
    return float(numbers["sum"]) / float(numbers["count"])


def report(tally):
    ordered = sorted(tally.latencies) or [float("nan")]
    return {
        "requests_per_second": round(len(tally.latencies) / tally.seconds, 1),
        "median_ms": round(1000 * statistics.median(ordered), 1),
        "p95_ms": round(1000 * ordered[int(0.95 * (len(ordered) - 1))], 1),
        "answered": len(tally.latencies),
        "refused": tally.refused,
        "errors": tally.errors,
        "differing": tally.differing,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="the bundled one by default")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds per service")
    parser.add_argument("--texts", type=int, default=len(TEXTS), help="number of different texts")
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--queue", type=int, default=256)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model = options.model or bundled_model()
        settings = {} if model else RANDOM
        model = model or make_random_model(Path(scratch) / "random")
        with serving(model, options.max_batch, options) as together, serving(model, 1, options) as alone:
            with contextlib.closing(connection_to(alone)) as connection:
                answers = {text: ask(connection, text, settings) for text in TEXTS[: options.texts]}
            if wrong := [answer for status, answer in answers.values() if status != 200]:
                raise SystemExit(f"a request sent alone failed: {wrong[0]}")
            expected = {text: answer for text, (_, answer) in answers.items()}
            tallies = {together: Tally(), alone: Tally()}
            for _ in range(TURNS):
                for url, tally in tallies.items():
                    share = options.seconds / TURNS
                    turn(url, options.clients, share, settings, expected, tally)
            found = {
                "model": Path(model).name,
                "clients": options.clients,
                "batch_size": round(batch_size(together), 1),
                "together": report(tallies[together]),
                "one_at_a_time": report(tallies[alone]),
            }
    ours, theirs = (found[name]["requests_per_second"] for name in ("together", "one_at_a_time"))
    found["ratio"] = round(ours / theirs, 2)
    print(json.dumps(found, indent=2))
    return any(found[name][fault] for name in ("together", "one_at_a_time") for fault in ("errors", "differing"))


if __name__ == "__main__":
    sys.exit(main())
