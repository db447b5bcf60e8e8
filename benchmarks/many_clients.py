"""Check that `kermit serve` answers many concurrent clients as it answers a single one, on every route.

Every request is first sent alone, which gives the expected answer. Then clients, each with its own connection, send the
requests in random order for some minutes, and every answer is compared: texts, rounds and tokens must be equal,
probabilities and vectors close. The only error allowed is 429. Exits with 1 if an answer differs or another error
occurs.

    python benchmarks/many_clients.py [--model DIR] [--clients 64] [--minutes 5] [--queue 256]
"""

import argparse
import contextlib
import json
import math
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from serving import TEXTS, connection_to, serving

LONG = " ".join(TEXTS[:3]) + "\n\n" + TEXTS[3]
CLOSE = 0.02
"""Tolerance for numbers: because of rounding, probabilities depend slightly on the rest of the batch."""


def requests():
    """Yield requests of every kind."""
    for number, text in enumerate(TEXTS[:24]):
        yield "/v1/translate", {"texts": [text], "to": "de", "trace": number % 2 == 0}
        yield "/v1/translate", {"texts": [text], "to": "de", "temperature": 0.8, "seed": number}
    yield "/v1/translate", {"texts": TEXTS[:4], "to": "de", "strategy": "serial"}
    yield "/v1/translate", {"texts": [LONG], "to": "de", "trace": True}
    yield "/v1/translate", {"texts": [TEXTS[5]], "to": "de", "candidates": 4, "seed": 3}
    for text in TEXTS[:6]:
        words = text.split()
        yield "/v1/infill", {"x": [" ".join([*words[:2], "____", *words[3:]])]}
        yield "/v1/embed", {"x": [text]}
    yield "/v1/complete", {"x": ["... dog ..."], "y": ["... Wasser ..."], "seed": 5}
    yield "/v1/sample", {"count": 2, "seed": 9, "max_tokens": 30}
    yield "/v1/score", {"x": [TEXTS[0]], "orders": 2}
    yield "/translate", {"q": TEXTS[:2], "source": "en", "target": "de"}
    yield "/detect", {"q": TEXTS[0]}


def ask(connection, path, body):
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def same(found, expected):
    """Return whether two answers are equal, except for rounding of numbers."""
    match expected:
        case float():
            return math.isclose(found, expected, rel_tol=CLOSE, abs_tol=CLOSE)
        case dict():
            return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
        case list():
            return len(found) == len(expected) and all(map(same, found, expected))
        case _:
            return found == expected


def with_alternatives(url, asked):
    """Return the requests, and those that continue from and ask about the first decode."""
    with contextlib.closing(connection_to(url)) as connection:
        path, body = asked[0]
        _, answer = ask(connection, path, body)
        trace = answer["results"][0]["trace"]
        canvas = {"start": trace["start"], "open_slots": trace["open_slots"], "rounds": trace["rounds"][:1]}
        slot = trace["rounds"][1][0]["slot"]
        return [*asked, (path, body | {"begun": [trace["rounds"][:1]]}), ("/v1/alternatives", canvas | {"slot": slot})]


def client(number, url, expected, end, tally, lock):
    chance = random.Random(number)
    with contextlib.closing(connection_to(url)) as connection:
        while time.perf_counter() < end:
            path, body, right = chance.choice(expected)
            status, answer = ask(connection, path, body)
            kind = "answered" if status == 200 and same(answer, right) else "differing"
            kind = kind if status == 200 else "refused" if status == 429 else "errors"
            with lock:
                tally[kind] += 1
                if kind in ("differing", "errors") and tally["differing"] + tally["errors"] <= 5:
                    print(f"{path} {body}\n  {answer}\n  {right}", file=sys.stderr)
            if status == 429:
                time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="the bundled one by default")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--queue", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with serving(options.model, 32, options) as url:
        asked = with_alternatives(url, list(requests()))
        with contextlib.closing(connection_to(url)) as connection:
            expected = []
            for path, body in asked:
                status, answer = ask(connection, path, body)
                if status != 200:
                    raise SystemExit(f"alone, {path} {body} failed: {answer}")
                expected.append((path, body, answer))
        tally, lock = dict.fromkeys(("answered", "differing", "refused", "errors"), 0), threading.Lock()
        begin = time.perf_counter()
        end = begin + 60 * options.minutes
        with ThreadPoolExecutor(options.clients) as pool:
            everyone = [pool.submit(client, n, url, expected, end, tally, lock) for n in range(options.clients)]
        for one in everyone:
            one.result()  # raise its exception, if any
        took = time.perf_counter() - begin
    kinds = len({path for path, _ in asked})
    print(
        json.dumps(
            {"clients": options.clients, "seconds": round(took), "requests": len(asked), "routes": kinds} | tally
        )
    )
    return bool(tally["differing"] or tally["errors"])


if __name__ == "__main__":
    sys.exit(main())
