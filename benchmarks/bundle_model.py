"""Copy a trained model into the package: half precision, int8 files, and a card with what it can do.

    python benchmarks/bundle_model.py --run RUN --data DIR --strategy left_to_right
    python benchmarks/abilities.py --model src/kermit/models/english_german --data DIR --output results.json ...
    python benchmarks/bundle_model.py --card results.json

The first command copies weights, config and tokenizer of the run to src/kermit/models/english_german and exports them.
The strategy becomes the model's default, and so does the termination penalty with the best BLEU of parallel decoding on
300 texts of each validation set, averaged over both directions. The last one writes the measurements into the card.
"""

import argparse
import json
import shutil
from pathlib import Path
from statistics import fmean

from half_precision import configure, copy_in_half
from pages import put

from kermit.decoding import Strategy
from kermit.engines.exported_files import FilePrecision
from kermit.engines.exporting import export_model
from kermit.pipeline import Kermit
from kermit.tasks.translation import evaluate_translation, read_split, trained_directions

TARGET = Path(__file__).parents[1] / "src" / "kermit" / "models" / "english_german"
VALIDATION = (("multi30k", "val"), ("tatoeba", "val"))
PENALTIES = (0.0, 0.5, 1.0, 1.5, 2.0)
TEXTS = 300
LIMIT = 45_000_000
NAMES = {
    "multi30k": "Multi30k",
    "tatoeba": "Tatoeba",
    "left_to_right": "left to right",
    "left_to_right, 4 beams": "left to right, 4 beams",
    "en": "English",
    "de": "German",
}


def best_penalty(data):
    """Return the termination penalty with the best mean BLEU of parallel decoding on the validation text."""
    facade, tried = Kermit.from_pretrained(TARGET), {}
    texts = [read_split(data / folder, split, facade.languages)[:TEXTS] for folder, split in VALIDATION]
    for penalty in PENALTIES:
        settings = facade.decoding({"strategy": Strategy.PARALLEL, "termination_penalty": penalty})
        tried[penalty] = fmean(
            evaluate_translation(facade, pairs, way, settings)[0].bleu
            for pairs in texts
            for way in trained_directions(facade)
        )
    print("mean BLEU on the validation text by termination penalty:", tried)
    return max(tried, key=tried.get)


def bundle(run, data, strategy):
    """Copy a trained model into the package."""
    shutil.rmtree(TARGET / "onnx", ignore_errors=True)
    copy_in_half(run, TARGET, LIMIT)
    configure(TARGET, strategy=strategy)
    export_model(TARGET, precisions=(FilePrecision.INT8,))
    configure(TARGET, termination_penalty=best_penalty(data))
    size = sum(path.stat().st_size for path in TARGET.rglob("*") if path.is_file())
    assert size <= LIMIT, f"{TARGET} is {size:,} bytes, over {LIMIT:,}"


def table(heads, rows):
    """Format a Markdown table; strings of `NAMES` are written out."""
    cells = [heads, ["---"] * len(heads), *([NAMES.get(cell, str(cell)) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def percent(share):
    return f"{100 * share:.0f}%"


def card(rows):
    """Format the measurements of `abilities.py` for the card, by mark."""
    parts = {}
    for row in rows:
        if "skipped" not in row:
            parts.setdefault(row["part"], []).append(row)
    robust = {}
    for row in parts["robustness"]:
        robust.setdefault((row["data"], row["direction"]), []).append(f"{row['bleu']:.1f}")
    changes = list(dict.fromkeys(row["change"] for row in parts["robustness"]))
    return {
        "translation": table(
            ["test set", "direction", "strategy", "BLEU", "chrF", "length ratio", "rounds", "log2(n+1)"],
            map(translation_cells, parts["translation"]),
        ),
        "robustness": table(["test set", "direction", *changes], ([*key, *found] for key, found in robust.items())),
        "numbers": table(
            ["direction", "texts", "with the same numbers", "as digits"],
            (
                [row["direction"], row["texts"], percent(row["kept"]), percent(row["kept_as_digits"])]
                for row in parts["numbers"]
            ),
        ),
        "infilling": table(
            ["language", "other side", "search", "the word itself", "median perplexity, ratio to the original"],
            map(infilling_cells, parts["infilling"]),
        ),
        "sampling": table(
            ["texts", "language", "words", "median perplexity", "with words of the other language", "duplicates"],
            (sampling_cells(row) for row in parts["sampling"] if "words" in row),
        ),
        "agreement": "\n".join(
            f"- {row['direction']}: {row['teacher_chrf']:.1f}" for row in parts["sampling"] if "teacher_chrf" in row
        ),
    }


def translation_cells(row):
    names = [row["data"], row["direction"], row["strategy"]]
    scores = [f"{row['bleu']:.1f}", f"{row['chrf']:.1f}", f"{row['length_ratio']:.2f}"]
    return [*names, *scores, f"{row['mean_rounds']:.1f}", f"{row['mean_log2']:.1f}"]


def infilling_cells(row):
    given = "not given" if row["given"] == "nothing" else "given"
    ratio = f"{row['ratio_median']:.2f}" if "ratio_median" in row else ""
    return [row["language"], given, row["search"], percent(row["exact"]), ratio]


def sampling_cells(row):
    name = {"both": "sampled pairs", "en": "sampled", "de": "sampled"}.get(row["drawn"], "Tatoeba test")
    foreign, copies = percent(row["foreign_words"]), percent(row["duplicates"])
    return [name, row["language"], f"{row['words']:.1f}", row.get("perplexity_median", ""), foreign, copies]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="the training's output folder")
    parser.add_argument("--data", type=Path, help="the folder that holds multi30k/ and tatoeba/")
    parser.add_argument("--strategy", choices=list(Strategy), default=Strategy.LEFT_TO_RIGHT, help="the default one")
    parser.add_argument("--card", type=Path, help="write the measurements of abilities.py into the card")
    arguments = parser.parse_args()
    if arguments.card is not None:
        put(TARGET / "README.md", **card(json.loads(arguments.card.read_text(encoding="utf-8"))["rows"]))
        return
    if arguments.run is None or arguments.data is None:
        parser.error("give --run and --data, or --card")
    bundle(arguments.run, arguments.data, arguments.strategy)


if __name__ == "__main__":
    main()
