"""Train, distil and score every row of the translation table, and write it into docs/results.md.

Finished steps are skipped and interrupted ones resumed, so the command can be stopped and repeated at any time.

    python benchmarks/reproduce_translation.py --data DIR --runs DIR [--only NAME ...] [--precision NAME] [--anew]
        [--keep NAME ...] [--table]

`--only` trains and scores only the named recipes, after those they start from; the Transformers, whose translations the
others learn from, must be named first or be finished. `--precision bfloat16` trains faster on CPUs that support it.
Models in checkpoints/multi30k are not trained again unless `--anew` is given; `--keep` copies trained ones there, in
half precision. `--table` writes the table from docs/results/translation.json. Insertion models are scored with ONNX
Runtime, in float32.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from half_precision import copy_in_half
from pages import put

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "recipes" / "multi30k"
RESULTS = ROOT / "docs" / "results" / "translation.json"
PAGE = ROOT / "docs" / "results.md"
KEPT = ROOT / "checkpoints" / "multi30k"
KEPT_BYTES = 12_000_000
TEST = "test_2016_flickr"
DIRECTIONS = ("en-de", "de-en")
WAYS = {
    "parallel": {"strategy": "parallel"},
    "best of 24": {"strategy": "parallel", "candidates": 24, "ranking": "left_to_right"},
    "left to right": {"strategy": "left_to_right"},
    "5 beams": {"strategy": "left_to_right", "beams": 5},
}
SEARCHES = {"left to right": {"beams": 1}, "5 beams": {"beams": 5}}
COLUMNS = ("model", "direction", *WAYS, "rounds", "length ratio", "params", "cost", "paper")


@dataclass(frozen=True)
class Row:
    """A system: the recipe of each direction, and the paper's BLEU on WMT 2014 if it is a row of its Table 2."""

    name: str
    recipes: tuple[str | None, str | None]
    paper: tuple[float | None, float | None] = (None, None)


ROWS = [
    Row("Transformer, human translations", ("transformer_en_de", "transformer_de_en"), (27.8, 31.2)),
    Row("Transformer, distilled", ("transformer_distilled_en_de", "transformer_distilled_de_en")),
    Row("Insertion Transformer", ("insertion_transformer_en_de", None), (27.4, None)),
    Row("KERMIT, unidirectional", ("unidirectional_en_de", "unidirectional_de_en"), (27.8, 30.7)),
    Row("KERMIT, bidirectional", ("bidirectional",) * 2, (27.2, 27.6)),
    Row("KERMIT, joint", ("joint",) * 2, (25.6, 27.4)),
    Row("KERMIT, joint with marginal refining", ("joint_marginal",) * 2, (25.8, 28.6)),
    Row("... then unidirectional finetuning", ("finetune_en_de", "finetune_de_en"), (28.7, 31.4)),
    Row("... then bidirectional finetuning", ("finetune_bidirectional",) * 2, (28.1, 28.6)),
]
TEACHERS = {"transformer_en_de": ("en", "de"), "transformer_de_en": ("de", "en")}
DISTILLED = {"multi30k/train": [], "multi30k_mono/captions": ["--limit", 45_000]}


def recipes():
    """List every recipe, in the order of their dependencies."""
    return list(dict.fromkeys(name for row in ROWS for name in row.recipes if name))


def begun_from(name):
    """Return the recipe whose model a training starts from, or None."""
    recipe = yaml.safe_load((RECIPES / f"{name}.yaml").read_text(encoding="utf-8"))
    if "init_from" in recipe:
        return Path(recipe["init_from"]).name
    return begun_from(Path(recipe["extends"]).stem) if "extends" in recipe else None


def cost(name, results):
    """Format the steps and minutes of a training, and of the trainings it starts from."""
    summary = results[name]["summary"]
    own = f"{summary['steps']:,} steps, {summary['minutes']:.0f} min"
    before = begun_from(name)
    return f"{cost(before, results)}; then {own}" if before in results else own


def kermit(*arguments):
    subprocess.run([sys.executable, "-m", "kermit", *map(str, arguments)], check=True)


def train(name, data, runs, precision="float32", anew=False):
    """Train a model unless it is there, after what it starts from; a teacher also translates the training text."""
    if before := begun_from(name):
        train(before, data, runs, precision, anew)
    run = runs / name
    if anew and (run / "summary.json").is_file() and not (run / "recipe.yaml").is_file():
        shutil.rmtree(run)  # a copy of the stored one
    if not anew and not run.exists() and (KEPT / name / "summary.json").is_file():
        shutil.copytree(KEPT / name, run)
    if not (run / "summary.json").is_file():
        words = ["--data", data, "--output", run, "--set", f"runtime.precision={precision}", "--resume"]
        kermit("train", RECIPES / f"{name}.yaml", *words)
    if name in TEACHERS:
        source, target = TEACHERS[name]
        output = runs / f"distilled/{source}_{target}"
        for text, how in DISTILLED.items():
            if not (output / f"{Path(text).name}.{target}").is_file():
                words = ["--input", data / f"{text}.{source}.gz", "--to", target, "--output", output, *how]
                words += ["--backend", "ctranslate2", "--beams", 4, "--filter", "--skip-bad"]
                kermit("distill", "--teacher", run, *words)


def keep(name, runs):
    """Copy a trained model into the repository, in half precision."""
    scratch = KEPT / f".{name}.partial"
    shutil.rmtree(scratch, ignore_errors=True)
    copy_in_half(runs / name, scratch, most_bytes=KEPT_BYTES)
    shutil.copy(runs / name / "summary.json", scratch)
    shutil.rmtree(KEPT / name, ignore_errors=True)
    scratch.rename(KEPT / name)


def score(name, data, runs):
    """Score a model in every way it can decode; scores of the same weights in an earlier report are not repeated."""
    from kermit.data.plain import file_checksum
    from kermit.loading import find_model, weight_files

    report = runs / name / "report.json"
    weights = [file_checksum(file) for file in weight_files(find_model(runs / name))]
    found = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else {}
    if found.get("weights") != weights:
        summary = json.loads((runs / name / "summary.json").read_text(encoding="utf-8"))
        found = {"weights": weights, "summary": summary, "directions": measure(runs / name, data)}
        report.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def measure(run, data):
    """Score a model on the test set in all its directions, by direction and way of decoding."""
    from kermit.pipeline import Kermit
    from kermit.tasks.translation import evaluate_translation, note_of, read_split, trained_directions

    facade = Kermit.from_pretrained(run)
    inserts = facade.searcher is None
    if inserts:
        kermit("export", run, "--precision", "float32")
        facade = Kermit.from_pretrained(run)
    ways = WAYS if inserts else SEARCHES
    if inserts and not facade.info.inserts_left_to_right:
        ways = {"parallel": WAYS["parallel"], "best of 24": WAYS["best of 24"] | {"ranking": "again"}}
    pairs = read_split(data / "multi30k", TEST, facade.languages)
    found = {}
    for direction in trained_directions(facade):
        for way, choices in ways.items():
            settings = facade.decoding(choices)
            note = note_of(facade, settings, TEST, pairs)
            scores, _ = evaluate_translation(facade, pairs, direction, settings, note=note)
            found.setdefault(str(direction), {})[way] = asdict(scores)
    return found


def table(results):
    """Format the table; models that have not been scored are left out."""
    lines = [COLUMNS, ["---"] * len(COLUMNS)]
    for row in ROWS:
        for direction, recipe, paper in zip(DIRECTIONS, row.recipes, row.paper, strict=True):
            if recipe not in results:
                continue
            found = results[recipe]["directions"][direction]
            shown = found.get("parallel", found.get("left to right"))
            lines.append(
                [
                    row.name,
                    direction,
                    *(f"{found[way]['bleu']:.1f}" if way in found else "" for way in WAYS),
                    f"{shown['mean_rounds']:.2f}",
                    f"{shown['length_ratio']:.2f}",
                    f"{results[recipe]['summary']['parameters'] / 1e6:.1f}M",
                    cost(recipe, results),
                    "" if paper is None else f"{paper}",
                ]
            )
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def kept_results():
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("KERMIT_DATA"), help="default: KERMIT_DATA")
    parser.add_argument("--runs", type=Path, default=os.environ.get("KERMIT_RUNS", "runs"), help="default: KERMIT_RUNS")
    parser.add_argument("--only", nargs="+", choices=recipes(), metavar="NAME", help="recipes to train and score")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32", help="of the training")
    parser.add_argument("--anew", action="store_true", help="train models in checkpoints/multi30k again")
    parser.add_argument(
        "--keep",
        nargs="+",
        choices=recipes(),
        metavar="NAME",
        default=[],
        help="only copy these models to checkpoints/multi30k",
    )
    parser.add_argument("--table", action="store_true", help="only write the table of the stored results")
    arguments = parser.parse_args()
    runs = Path(arguments.runs).absolute()
    for name in arguments.keep:
        keep(name, runs / "multi30k")
    if not arguments.table and not arguments.keep:
        if arguments.data is None:
            parser.error("give --data, or set KERMIT_DATA, to the folder that holds multi30k/")
        data = Path(arguments.data).absolute()
        os.environ["KERMIT_RUNS"] = str(runs)
        for name in arguments.only or recipes():
            train(name, data, runs / "multi30k", arguments.precision, arguments.anew)
            found = score(name, data, runs / "multi30k")
            results = kept_results() | {name: found}  # another process may have added results
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    put(PAGE, translation_table=table(kept_results()))


if __name__ == "__main__":
    main()
