"""Copy a trained model into the package, in half precision, with its scores in a model card.

    python benchmarks/bundle_model.py --run RUN --data DIR

The weights, config and tokenizer of the run are copied to src/kermit/models/english_german. The termination penalty
with the best BLEU on 500 validation texts, averaged over both directions and corpora, becomes the model's default. The
copy is then scored on the test sets through the public API, and the card's table is rewritten.
"""

import argparse
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from half_precision import configure, copy_in_half
from pages import put

from kermit.pipeline import Kermit
from kermit.tasks.translation import evaluate_translation, read_split, trained_directions
from kermit.tasks.translation_report import note_of

TARGET = Path(__file__).parents[1] / "src" / "kermit" / "models" / "english_german"
TESTS = {"Multi30k": ("multi30k", "test_2016_flickr"), "Tatoeba": ("tatoeba", "test")}
VALIDATION = {"Multi30k": ("multi30k", "val"), "Tatoeba": ("tatoeba", "val")}
PENALTIES = (0.0, 0.5, 1.0, 1.5, 2.0)
LIMIT = 25_000_000


def scores(data, splits, penalty=None, texts=None):
    facade = Kermit.from_pretrained(TARGET)
    found = []
    for name, (folder, split) in splits.items():
        pairs = read_split(data / folder, split, facade.languages)[:texts]
        settings = facade.decoding({"termination_penalty": penalty})
        for direction in trained_directions(facade):
            note = note_of(facade, settings, split, pairs)
            found.append(
                {"test": name, **asdict(evaluate_translation(facade, pairs, direction, settings, note=note)[0])}
            )
    return found


def best_penalty(data):
    tried = {
        penalty: fmean(row["bleu"] for row in scores(data, VALIDATION, penalty, texts=500)) for penalty in PENALTIES
    }
    print("mean BLEU on the validation text by termination penalty:", tried)
    return max(tried, key=tried.get)


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
    copy_in_half(arguments.run, TARGET, LIMIT)
    configure(TARGET, termination_penalty=best_penalty(arguments.data))
    put(TARGET / "README.md", scores=table(scores(arguments.data, TESTS)))


if __name__ == "__main__":
    main()
