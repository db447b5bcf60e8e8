"""Put a trained model into the package, in half precision, with its scores in a model card.

    python benchmarks/bundle_model.py --run RUN --data DIR

The weights, config and tokenizer of the run go to src/kermit/models/english_german; both directions are then scored on
the test sets of Multi30k and Tatoeba from the copy, as a user would, and the card's table is written anew.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from kermit.tasks.translation import read_split
from kermit.tasks.translation_report import note_of
from kermit.tasks.translator import Translator, model_folder

TARGET = Path(__file__).parents[1] / "src" / "kermit" / "models" / "english_german"
TESTS = {"Multi30k": ("multi30k", "test_2016_flickr"), "Tatoeba": ("tatoeba", "test")}
MARKS = ("<!-- scores: begin -->", "<!-- scores: end -->")
LIMIT = 25_000_000


def copy(run):
    source = model_folder(run)
    TARGET.mkdir(parents=True, exist_ok=True)
    weights = {name: weight.to(torch.float16) for name, weight in load_file(source / "model.safetensors").items()}
    save_file(weights, TARGET / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text(encoding="utf-8")) | {"dtype": "float16"}
    (TARGET / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / name, TARGET / name)
    size = sum(path.stat().st_size for path in TARGET.iterdir())
    assert size <= LIMIT, f"{TARGET} is {size:,} bytes, over {LIMIT:,}"


def scores(data):
    translator = Translator.load(TARGET)
    found = []
    for name, (folder, split) in TESTS.items():
        pairs = read_split(data / folder, split, translator.languages)
        settings = translator.decoding()
        for direction in translator.directions():
            note = note_of(translator, settings, split, pairs)
            found.append({"test": name, **translator.evaluate(pairs, direction, settings, note=note)[0].to_json()})
    return found


def table(found):
    lines = ["| test set | direction | BLEU | chrF | length ratio | rounds | log2(n+1) |", "|---" * 7 + "|"]
    for row in found:
        numbers = [f"{row[key]:.1f}" for key in ("bleu", "chrf")] + [f"{row['length_ratio']:.2f}"]
        numbers += [f"{row[key]:.1f}" for key in ("mean_rounds", "mean_log2")]
        lines.append(f"| {row['test']} | {row['direction']} | " + " | ".join(numbers) + " |")
    return "\n".join([*lines, "", "Signatures:", "", *(f"- `{row['signature']}`" for row in found)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="the training's output folder")
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds multi30k/ and tatoeba/")
    arguments = parser.parse_args()
    copy(arguments.run)
    card = TARGET / "README.md"
    before, rest = card.read_text(encoding="utf-8").split(MARKS[0])
    written = f"{before}{MARKS[0]}\n{table(scores(arguments.data))}\n{MARKS[1]}{rest.split(MARKS[1])[1]}"
    card.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
