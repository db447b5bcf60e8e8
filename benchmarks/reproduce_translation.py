"""Train, distil and score every row of the translation table, and write it into docs/results.md.

The models that were steps on the way, and the details of all rows, go into docs/experiments.md.

Finished steps are skipped and interrupted ones resumed, so the command can be stopped and repeated at any time. The
termination penalty of insertion models is chosen on the validation text: the lowest whose BLEU is within 0.1 of the
best, because a higher one costs rounds.

    python benchmarks/reproduce_translation.py --data DIR --runs DIR [--only NAME ...] [--precision NAME] [--greedy]
        [--anew] [--keep NAME ...] [--table]

`--only` trains and scores only the named recipes; `--greedy` scores no candidates and leaves their columns empty.
`--precision bfloat16` is faster on CPUs that support it. Models in checkpoints/multi30k are not trained again unless
`--anew` is given; `--keep` copies trained ones there, in half precision. `--table` writes the table from
docs/results/translation.json.
"""

import argparse
import json
import math
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
RESULTS = ROOT / "docs" / "results" / "translation.json"
PAGE = ROOT / "docs" / "results.md"
DETAILS_PAGE = ROOT / "docs" / "experiments.md"
KEPT = ROOT / "checkpoints" / "multi30k"
KEPT_BYTES = 12_000_000
TEST, VALIDATION = "test_2016_flickr", "val"
VALIDATION_TEXTS = 500
PENALTIES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
AS_GOOD = 0.1  # BLEU
CANDIDATES = 24
DIRECTIONS = ("en-de", "de-en")
RANKINGS = "again", "both_ways"
MEASURED = "penalty", "test", "test_at_0"
COLUMNS = ("model", "direction", "BLEU", f"best of {CANDIDATES}", "chrF", "length ratio", "rounds", "params", "paper")
DETAILS = ("model", "direction", "BLEU", "behind", "at penalty 0", f"best of {CANDIDATES} (behind)")
DETAILS += ("both ways (behind)", "length ratio (at 0)", "log2(n+1) + 1.5", "cost")


@dataclass(frozen=True)
class Row:
    """A system: the recipe of each direction, and the paper's BLEU on WMT 2014 if it is a row of its Table 2."""

    name: str
    recipes: tuple[str | None, str | None]
    paper: tuple[float | None, float | None] = (None, None)


ROWS = [
    Row("Transformer", ("transformer_en_de", "transformer_de_en"), (27.8, 31.2)),
    Row("Insertion Transformer", ("insertion_transformer_en_de", None), (27.4, None)),
    Row("KERMIT, unidirectional, not distilled", ("unidirectional_en_de_undistilled", None)),
    Row("KERMIT, unidirectional, pairs alone", ("unidirectional_en_de_pairs", None)),
    Row(
        "KERMIT, unidirectional, pairs and captions",
        ("unidirectional_en_de_captions", "unidirectional_de_en_captions"),
    ),
    Row("KERMIT, unidirectional", ("unidirectional_en_de", "unidirectional_de_en"), (27.8, 30.7)),
    Row("KERMIT, bidirectional, pairs and captions", ("bidirectional_captions",) * 2),
    Row("KERMIT, bidirectional", ("bidirectional",) * 2, (27.2, 27.6)),
    Row("KERMIT, joint", ("joint",) * 2, (25.6, 27.4)),
    Row("KERMIT, joint with marginal refining", ("joint_marginal",) * 2, (25.8, 28.6)),
    Row("... then unidirectional finetuning", ("finetune_en_de", "finetune_de_en"), (28.7, 31.4)),
    Row("... then bidirectional finetuning", ("finetune_bidirectional",) * 2, (28.1, 28.6)),
]
DISTILLED = {"multi30k/train": ["--set", "beams=5"], "multi30k_mono/captions": ["--set", "beams=1", "--limit", 40_000]}
TEACHERS = {"transformer_en_de": ("en", "de"), "transformer_de_en": ("de", "en")}
START = "captions_and_sentences"
START_COST = f"{START}: 37,000 steps, 479 min"


def recipes():
    """List every recipe, in the order of their dependencies."""
    return list(dict.fromkeys(name for row in ROWS for name in row.recipes if name))


def begun_from(name):
    """Return the recipe whose model a training starts from, or None."""
    recipe = yaml.safe_load((ROOT / f"recipes/multi30k/{name}.yaml").read_text(encoding="utf-8"))
    if "init_from" in recipe:
        return Path(recipe["init_from"]).name
    return begun_from(Path(recipe["extends"]).stem) if "extends" in recipe else None


def cost(name, results):
    """Format the steps and minutes of a training, and of the trainings it starts from."""
    summary = results[name]["summary"]
    own = f"{summary['steps']:,} steps, {summary['minutes']:.0f} min"
    before = begun_from(name)
    if before == START:
        return f"{START_COST}; then {own}"
    return f"{cost(before, results)}; then {own}" if before in results else own


def kermit(*arguments):
    subprocess.run([sys.executable, "-m", "kermit", *map(str, arguments)], check=True)


def train(name, data, runs, precision="float32", anew=False):
    run = runs / name
    if anew and (run / "summary.json").is_file() and not (run / "recipe.yaml").is_file():
        shutil.rmtree(run)  # a copy of the stored one
    if not anew and not run.exists() and (KEPT / name / "summary.json").is_file():
        shutil.copytree(KEPT / name, run)
    if begun_from(name) == START and not (runs / START).exists():
        shutil.copytree(KEPT / START, runs / START)
    if not (run / "summary.json").is_file():
        words = ["--data", data, "--output", run, "--set", f"runtime.precision={precision}", "--resume"]
        kermit("train", ROOT / f"recipes/multi30k/{name}.yaml", *words)
    if name in TEACHERS:
        source, target = TEACHERS[name]
        output = runs / f"distilled/{source}_{target}"
        for text, how in DISTILLED.items():
            if not (output / f"{Path(text).name}.{target}").is_file():
                words = ["--input", data / f"{text}.{source}.gz", "--to", target, "--output", output]
                kermit("distill", "--teacher", run, *words, *how, "--precision", precision)


def keep(name, runs):
    """Copy a trained model into the repository, in half precision."""
    scratch = KEPT / f".{name}.partial"
    shutil.rmtree(scratch, ignore_errors=True)
    copy_in_half(runs / name, scratch, most_bytes=KEPT_BYTES)
    shutil.copy(runs / name / "summary.json", scratch)
    shutil.rmtree(KEPT / name, ignore_errors=True)
    scratch.rename(KEPT / name)


def score(name, data, runs, precision="float32", rankings=RANKINGS):
    """Score on the test set with penalty 0, with the penalty chosen on the validation text, and with candidates.

    Scores in an earlier report of the same weights and precision are not measured again; missing ones are added to it.
    A report without a checksum, as older versions wrote, is assumed to be of the same weights.
    """
    from kermit.data.plain import file_checksum
    from kermit.loading import find_model, weight_files

    report = runs / name / "report.json"
    of = {"weights": [file_checksum(file) for file in weight_files(find_model(runs / name))], "precision": precision}
    found = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else None
    if found is None or any(found.get(key, value) != value for key, value in of.items()):
        summary = json.loads((runs / name / "summary.json").read_text(encoding="utf-8"))
        found = of | {"summary": summary, "directions": {}}
    measured = found["directions"].values()
    wanted = [*MEASURED, *(f"test_{ranking}" for ranking in rankings)]
    if not measured or any(key not in scores for scores in measured for key in wanted):
        measure(found["directions"], runs / name, data, precision, rankings)
        report.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def measure(found, run, data, precision, rankings):
    """Measure the missing scores of a model, direction by direction."""
    import torch

    from kermit.pipeline import Kermit
    from kermit.tasks.translation import evaluate_translation, note_of, read_split, trained_directions

    facade = Kermit.from_pretrained(run, dtype=getattr(torch, precision))
    splits = {split: read_split(data / "multi30k", split, facade.languages) for split in (TEST, VALIDATION)}
    splits[VALIDATION] = splits[VALIDATION][:VALIDATION_TEXTS]
    inserts = facade.model_type != "marian"

    def scores(split, direction, penalty, **choices):
        settings = facade.decoding(({"termination_penalty": penalty} if inserts else {}) | choices)
        note = note_of(facade, settings, split, splits[split])
        return asdict(evaluate_translation(facade, splits[split], direction, settings, note=note)[0])

    for direction in trained_directions(facade):
        own = found.setdefault(str(direction), {})
        if "penalty" not in own:
            tried = {penalty: scores(VALIDATION, direction, penalty) for penalty in (PENALTIES if inserts else (0.0,))}
            best = max(result["bleu"] for result in tried.values())
            chosen = min(penalty for penalty, result in tried.items() if result["bleu"] >= best - AS_GOOD)
            own["validation"] = {str(penalty): result["bleu"] for penalty, result in tried.items()}
            own["penalty"] = chosen if inserts else None
        penalty = own["penalty"] or 0.0
        if "test" not in own:
            own["test"] = scores(TEST, direction, penalty)
        if "test_at_0" not in own:
            own["test_at_0"] = scores(TEST, direction, 0.0) if penalty else own["test"]
        able = {"again": inserts, "both_ways": inserts and len(trained_directions(facade)) == 2}
        for ranking in rankings:
            if f"test_{ranking}" not in own:
                ranked = {"candidates": CANDIDATES, "ranking": ranking}
                own[f"test_{ranking}"] = scores(TEST, direction, penalty, **ranked) if able[ranking] else None


def scored(results, rows=ROWS):
    """Yield every row and direction that has been scored, with the paper's BLEU, the recipe and its scores."""
    for row in rows:
        for direction, recipe, paper in zip(DIRECTIONS, row.recipes, row.paper, strict=True):
            if recipe in results:
                yield row, direction, paper, recipe, results[recipe]["directions"][direction]


def markdown(columns, rows):
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def table(results):
    """Format the systems of the paper's table."""
    return markdown(
        COLUMNS,
        [
            [
                row.name,
                direction,
                f"{found['test']['bleu']:.1f}",
                _ranked(found, "again"),
                f"{found['test']['chrf']:.1f}",
                f"{found['test']['length_ratio']:.2f}",
                f"{found['test']['mean_rounds']:.2f}",
                f"{results[recipe]['summary']['parameters'] / 1e6:.1f}M",
                f"{paper}",
            ]
            for row, direction, paper, recipe, found in scored(results)
            if paper is not None
        ],
    )


def details(results):
    """Format all models with the penalty, the distance to the Transformer, the bound on rounds and the cost."""
    rows = []
    for row, direction, _, recipe, found in scored(results):
        test, at_0 = found["test"], found["test_at_0"]
        inserts = found["penalty"] is not None
        rows.append(
            [
                row.name,
                direction,
                f"{test['bleu']:.1f}" + (f" (penalty {found['penalty']:g})" if inserts else ""),
                _behind(test, direction, results),
                f"{at_0['bleu']:.1f}" if inserts else "",
                *(_ranked_behind(found, ranking, direction, results) for ranking in RANKINGS),
                f"{test['length_ratio']:.2f}" + (f" ({at_0['length_ratio']:.2f})" if inserts else ""),
                f"{math.log2(test['mean_tokens'] + 1) + 1.5:.2f}",
                cost(recipe, results),
            ]
        )
    return markdown(DETAILS, rows)


def _behind(test, direction, results):
    """Format the difference to the Transformer's score in that direction; empty for the Transformer itself."""
    teacher = results.get(f"transformer_{direction.replace('-', '_')}")
    distance = teacher["directions"][direction]["test"]["bleu"] - test["bleu"] if teacher else 0.0
    return f"{distance:.1f}" if distance else ""


def _ranking_scores(found, ranking):
    """Return the scores of the best candidates, of an earlier version if need be; None if they were not measured."""
    earlier = found.get("test_of_candidates") if ranking == "again" else None
    return found.get(f"test_{ranking}") or earlier


def _ranked(found, ranking):
    """Format the BLEU of the best candidates; a star marks fewer candidates or another ranking."""
    if (shown := _ranking_scores(found, ranking)) is None:
        return ""
    star = "" if f"candidates={CANDIDATES},ranking={ranking},length_reward=" in shown["signature"] else "*"
    return f"{shown['bleu']:.1f}{star}"


def _ranked_behind(found, ranking, direction, results):
    shown = _ranking_scores(found, ranking)
    return "" if shown is None else f"{_ranked(found, ranking)} ({_behind(shown, direction, results)})"


def kept_results():
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("KERMIT_DATA"), help="default: KERMIT_DATA")
    parser.add_argument("--runs", type=Path, default=os.environ.get("KERMIT_RUNS", "runs"), help="default: KERMIT_RUNS")
    parser.add_argument("--only", nargs="+", choices=recipes(), metavar="NAME", help="recipes to train and score")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--greedy", action="store_true", help="score no candidates")
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
    results = kept_results()
    for name in arguments.keep:
        keep(name, Path(arguments.runs) / "multi30k")
    if not arguments.table and not arguments.keep:
        if arguments.data is None:
            parser.error("give --data, or set KERMIT_DATA, to the folder that holds multi30k/")
        runs = Path(arguments.runs).absolute()
        os.environ["KERMIT_RUNS"] = str(runs)
        for name in arguments.only or recipes():
            train(name, Path(arguments.data).absolute(), runs / "multi30k", arguments.precision, arguments.anew)
            rankings = () if arguments.greedy else RANKINGS
            found = score(name, Path(arguments.data).absolute(), runs / "multi30k", arguments.precision, rankings)
            results = kept_results() | {name: found}  # another process may have added results
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    put(PAGE, translation_table=table(results))
    put(DETAILS_PAGE, translation_details=details(results))


if __name__ == "__main__":
    main()
