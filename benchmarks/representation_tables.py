"""The tables of GLUE and cloze questions in docs/results.md: their rows, the paper's numbers, and stored results.

`reproduce_representation.py` writes the results to docs/results/glue.json and cloze.json.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from pages import put, write_whole

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
RESULTS = {name: ROOT / "docs" / "results" / f"{name}.json" for name in ("glue", "cloze")}


@dataclass(frozen=True)
class Model:
    """A row of the tables.

    Attributes:
        name: name of the model in stages.
        title: name of the model in the tables.
        recipe: the recipe that pretrains it; None for a model that is used unchanged.
        system: the cloze system; None for a model that cannot fill gaps.
        generates: whether it can generate text.
        on_glue: whether it is finetuned.
    """

    name: str
    title: str
    recipe: str | None = None
    system: str | None = None
    generates: bool = False
    on_glue: bool = True


MODELS = [
    Model("kermit", "KERMIT", "kermit_minilm", "kermit", generates=True),
    Model("kermit_copying", "KERMIT that copies", "kermit_copying_minilm", "kermit", generates=True, on_glue=False),
    Model("masked_lm", "masked LM", "masked_lm_minilm", "masked-lm"),
    Model("causal_lm", "causal LM", "causal_lm_minilm", "causal-lm", generates=True),
    Model("trunk", "MiniLM, not pretrained further"),
    Model("smollm2", "SmolLM2-135M-Instruct", system="causal-lm", generates=True, on_glue=False),
]
GLUE_TASKS = ("CoLA", "SST-2", "MRPC", "STS-B", "RTE", "WNLI")
WAYS = {"free": "", "nonempty": ", at least one token", "oracle": ", oracle length"}

# scores of GLUE's test server, in the order of the tasks; MRPC and STS-B are the means of the paper's two metrics
PAPER_GLUE = {
    "the paper's KERMIT": ("yes", (60.0, 94.2, 86.45, 86.1, 68.4, 65.1)),
    "the paper's BERT": ("no", (60.5, 94.9, 87.35, 87.05, 70.1, 65.1)),
    "the paper's GPT": ("yes", (45.4, 91.3, 79.0, 81.0, 56.0, 53.4)),
}
# exact match and F1; its masked LM is BERT-large and its causal LM GPT-2 with 345M parameters
PAPER_CLOZE = {
    "kermit:free": (20.9, 30.3),
    "masked_lm:free": (12.3, 18.9),
    "masked_lm:oracle": (16.2, 23.1),
    "causal_lm:free": (10.9, 16.6),
    "causal_lm:oracle": (12.2, 18.2),
}
GLUE_COLUMNS = ("model", "generates", *GLUE_TASKS, "average", "without WNLI", "pretraining")
CLOZE_COLUMNS = (
    "model",
    "exact match",
    "F1",
    "F1 of the first 1,000",
    "instances",
    "empty",
    "forward passes",
    "sequences",
    "answers a second",
)
CLOZE_COLUMNS += ("tokens an answer (a gap)", "paper: exact match, F1")


def glue_table(results):
    """Format the finetuned models, with the paper's models below, as a Markdown table."""
    rows = []
    for model in MODELS:
        if model.name not in results:
            continue
        scores = {task["task"]: task["score"] for task in results[model.name]["finetuning"]["tasks"]}
        cost = results[model.name]["pretraining"]
        cells = [_spread(**scores[task]) if task in scores else "" for task in GLUE_TASKS]
        trained = "" if cost is None else f"{cost['steps']:,} steps, {cost['minutes']:.0f} min"
        rows.append([model.title, "yes" if model.generates else "no", *cells, *_averages(scores), trained])
    for title, (generates, values) in PAPER_GLUE.items() if rows else ():
        scores = {task: {"mean": value, "deviation": None} for task, value in zip(GLUE_TASKS, values, strict=True)}
        rows.append([title, generates, *(f"{value:.1f}" for value in values), *_averages(scores), ""])
    return _markdown(GLUE_COLUMNS, rows)


def _averages(scores):
    """Return the mean over all tasks and the mean without WNLI; empty if a task is missing."""
    if set(scores) != set(GLUE_TASKS):
        return ["", ""]
    cells = []
    for tasks in (GLUE_TASKS, GLUE_TASKS[:-1]):
        spreads = [scores[task]["deviation"] for task in tasks]
        spread = None if None in spreads else math.hypot(*spreads) / len(tasks)  # of a mean of independent scores
        cells.append(_spread(fmean(scores[task]["mean"] for task in tasks), spread))
    return cells


def _spread(mean, deviation):
    return f"{mean:.1f}" if deviation is None else f"{mean:.1f} ± {deviation:.1f}"


def cloze_table(results):
    """Format the evaluated models as a Markdown table."""
    rows = []
    for key, title in ((f"{model.name}:{way}", model.title + tail) for model in MODELS for way, tail in WAYS.items()):
        if key not in results:
            continue
        found, paper = results[key], PAPER_CLOZE.get(key)
        rows.append(
            [
                title,
                f"{found['exact_match']:.1f}",
                f"{found['f1']:.1f}",
                f"{found['f1_of_the_first']:.1f}" if "f1_of_the_first" in found else "",
                f"{found['instances']:,}",
                f"{found['empty']:,}",
                f"{found['mean_forward_passes']:.1f}",
                f"{found['mean_sequences']:.1f}",
                f"{found['answers_per_second']:.2f}",
                f"{found['mean_tokens']:.1f} ({found['mean_gap_tokens']:.1f})",
                "" if paper is None else f"{paper[0]}, {paper[1]}",
            ]
        )
    return _markdown(CLOZE_COLUMNS, rows)


TABLES = {"glue": glue_table, "cloze": cloze_table}


def _markdown(columns, rows):
    lines = ["| " + " | ".join(cells) + " |" for cells in (columns, *rows)]
    return "\n".join([lines[0], "|---" * len(columns) + "|", *lines[1:]])


def read_results(name):
    return json.loads(RESULTS[name].read_text(encoding="utf-8")) if RESULTS[name].is_file() else {}


def keep(name, key, result):
    """Store a result, and update the page."""
    results = read_results(name) | {key: result}  # read again, because another stage may have finished in the meantime
    write_whole(RESULTS[name], json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    write_tables()


def write_tables():
    put(PAGE, **{f"{name}_table": table(read_results(name)) for name, table in TABLES.items()})
