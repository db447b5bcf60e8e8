"""Check that float32 ONNX gives the same texts as torch, for every verb and every strategy of a model.

    python benchmarks/engine_agreement.py --data DIR [--model RUN] [--split test] [--texts 500]

DIR holds SPLIT.en and SPLIT.de, plain or .gz. Each line of the output counts the equal texts and shows the first that
differs.
"""

import argparse
import json
import re
import tempfile
from pathlib import Path

from kermit import DecodingSettings, Kermit
from kermit.decoding import DEFAULT_SAMPLING, strategies_of
from kermit.engines.exported_files import FilePrecision
from kermit.engines.exporting import export_model
from kermit.errors import ModelError
from kermit.loading import find_model
from kermit.tasks.translation import read_split

DRAWN = ("complete", "sample")
"""Verbs that sample tokens; the others take the best."""


def blanked(text, number):
    """Replace one word of a text, chosen by `number`, by a blank."""
    words = text.split()
    words[number % len(words)] = "____"
    return " ".join(words)


def every_third(text):
    """Keep every third word of a text, with blanks around them."""
    return " ... ".join(["", *re.findall(r"\w+", text)[::3], ""]).strip()


def jobs(pairs, languages):
    """Return the calls to compare, by name."""
    x, y = [pair.x for pair in pairs], [pair.y for pair in pairs]
    blanks = [blanked(text, number) for number, text in enumerate(x)]
    fragments = [[every_third(text) for text in side] for side in (x, y)]
    return {
        f"translate to {languages[1]}": lambda kermit, **how: kermit.translate(x, languages[1], **how),
        f"translate to {languages[0]}": lambda kermit, **how: kermit.translate(y, languages[0], **how),
        "infill": lambda kermit, **how: kermit.infill(blanks, **how),
        "infill given the other side": lambda kermit, **how: kermit.infill(blanks, y, **how),
        "complete": lambda kermit, **how: kermit.complete(*fragments, **how),
        "sample": lambda kermit, **how: kermit.sample(len(pairs), **how),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with SPLIT.en and SPLIT.de")
    parser.add_argument("--model", help="folder or name of the model; the bundled one by default")
    parser.add_argument("--split", default="test")
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--max-tokens", type=int, default=48, help="maximum number of tokens to insert into a text")
    options = parser.parse_args()
    folder = find_model(options.model)
    with tempfile.TemporaryDirectory() as exported:
        export_model(folder, Path(exported), precisions=[FilePrecision.FLOAT32])
        engines = [Kermit.from_pretrained(folder, engine="torch"), Kermit.from_pretrained(exported, engine="onnx")]
    pairs = read_split(options.data, options.split, engines[0].languages)[: options.texts]
    for name, verb in jobs(pairs, engines[0].languages).items():
        for strategy in strategies_of(engines[0].info):
            sampling = DEFAULT_SAMPLING if name in DRAWN else None
            settings = DecodingSettings(strategy, sampling, max_tokens=options.max_tokens)
            try:
                ours, theirs = ([(r.x, r.y, r.tokens) for r in verb(kermit, settings=settings)] for kermit in engines)
            except ModelError as error:  # the model was not trained for this verb
                print(json.dumps({"verb": name, "strategy": strategy, "skipped": str(error)}), flush=True)
                continue
            different = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
            record = {"verb": name, "strategy": strategy, "texts": len(ours), "equal": len(ours) - len(different)}
            print(json.dumps(record | ({"first": different[0]} if different else {})), flush=True)


if __name__ == "__main__":
    main()
