"""Compare what models learn in the same CPU time: validation BLEU of recipes after some minutes on one core.

Each recipe is trained on one thread for the same CPU minutes, not counting evaluation and data loading. The learning
rate follows a cosine over these minutes, and the averaged weights are evaluated after every quarter. *Targets* are the
tokens to predict: one per unfinished slot for insertion models, one per token for autoregressive ones.

    python benchmarks/learning_speed.py train recipes/learning_speed/cached_context.yaml --data DIR --minutes 25 \
        --output runs/cached_context
    python benchmarks/learning_speed.py draw runs/full_attention runs/cached_context --picture learning_speed.svg

`train` writes the model and a `curve.json`; two recipes can be trained at once, on one core each. The recipes read a
teacher's translations of Multi30k and of 60,000 captions per direction, written by `kermit distill`, from
`$KERMIT_RUNS/multi30k/distilled/en_de` and `de_en`.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch

from kermit.data.batching import BatchPlanner, batch_generator
from kermit.families.base import ITEMS
from kermit.modeling import as_tensors, specials_of
from kermit.training.averaging import MovingAverage
from kermit.training.cpu import FastDropout, SingleAttention
from kermit.training.optimizers import build_optimizer
from kermit.training.recipe import load_recipe
from kermit.training.run import prepare_tokenizer
from kermit.training.warm_start import prepare_model

WARMUP_STEPS = 300
FINAL_RATE = 0.02
POINTS = 4


def targets_of(batch, end_of_slot_id):
    """Return the number of targets of a batch: labels, or unfinished slots."""
    if "labels" in batch:
        return int((batch["labels"] >= 0).sum())
    return len(batch["target_slots"][batch["target_tokens"] != end_of_slot_id].unique())


def batches(text, collator, recipe):
    planner = BatchPlanner(text, tuple(source.weight for source in recipe.data.train), recipe.batch.tokens, recipe.seed)
    epoch = 0
    while True:
        for batch in planner.epoch(epoch):
            yield as_tensors(collator(text.fetch(batch.rows), batch_generator(recipe.seed, batch)))
        epoch += 1


def train(options):
    torch.set_num_threads(1)
    loaded = load_recipe(options.recipe, data=options.data, overrides=options.set or [])
    recipe, family = loaded.recipe, loaded.family
    tokenizer = prepare_tokenizer(loaded)
    text = loaded.task.training_text(loaded, tokenizer)
    model = prepare_model(loaded, tokenizer).train()
    end = specials_of(tokenizer).end_of_slot_id
    optimizer = build_optimizer(model, recipe.optimizer, recipe.runtime.precision)
    rates = [group["lr"] for group in optimizer.param_groups]
    average = MovingAverage(model, recipe.averaging.ema)
    evaluate = loaded.task.evaluator(loaded, tokenizer)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{Path(options.recipe).stem}: {parameters:,} parameters, {len(text):,} texts", flush=True)
    start, targets, texts, losses, points = time.process_time(), 0, 0, [], []
    for step, batch in enumerate(batches(text, family.collator(recipe, tokenizer), recipe), 1):
        spent = (time.process_time() - start) / (60 * options.minutes)
        rate = min(step / WARMUP_STEPS, FINAL_RATE + (1 - FINAL_RATE) * 0.5 * (1 + math.cos(math.pi * spent)))
        for group, peak in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = peak * rate
        targets, texts = targets + targets_of(batch, end), texts + len(batch[ITEMS])
        items = batch.pop(ITEMS).sum()
        with FastDropout([recipe.seed, step]), SingleAttention(), torch.autocast("cpu", torch.bfloat16):
            loss = family.loss(model, batch, recipe) / items
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.optimizer.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        average.update(step)
        losses.append(loss.item())
        elapsed = time.process_time() - start
        if step % 200 == 0:
            mean = sum(losses[-200:]) / len(losses[-200:])
            print(
                f"step {step}, {elapsed / 60:.1f} min, loss {mean:.3f}, {targets / elapsed:.0f} targets/s", flush=True
            )
        if elapsed >= 60 * options.minutes * (len(points) + 1) / POINTS:
            before = time.process_time()
            model.eval()
            with average.applied(), torch.autocast("cpu", torch.bfloat16):
                found = evaluate(model)
            model.train()
            points.append({"minutes": round(elapsed / 60, 2), "steps": step, "texts": texts, **found})
            print(json.dumps(points[-1]), flush=True)
            start += time.process_time() - before
            if len(points) == POINTS:
                break
    output = Path(options.output)
    with average.applied():
        model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    curve = {
        "recipe": str(options.recipe),
        "set": options.set or [],
        "seed": recipe.seed,
        "minutes": options.minutes,
        "parameters": parameters,
        "targets_per_second": round(targets / elapsed),
        "points": points,
    }
    (output / "curve.json").write_text(json.dumps(curve, indent=2) + "\n")


def draw(options):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.6))
    for folder in options.runs:
        curve = json.loads((Path(folder) / "curve.json").read_text())
        minutes = [0.0, *(point["minutes"] for point in curve["points"])]
        bleu = [0.0, *(point["bleu"] for point in curve["points"])]
        label = f"{Path(folder).name.replace('_', ' ')}, {curve['targets_per_second']:,} targets/s"
        axes.plot(minutes, bleu, marker="o", label=label)
    axes.set_xlabel("CPU minutes of one core")
    axes.set_ylabel("BLEU on validation text")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(options.picture, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description="Compare what models learn in the same CPU time.")
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("train", help="train one recipe for some CPU minutes of one core")
    training.add_argument("recipe", type=Path)
    training.add_argument("--data", type=Path, required=True, help="folder that the recipe's paths are relative to")
    training.add_argument("--minutes", type=float, default=25.0)
    training.add_argument("--set", action="append", help="change a key of the recipe: a.b=value")
    training.add_argument("--output", type=Path, required=True)
    training.set_defaults(run=train)
    drawing = commands.add_parser("draw", help="draw the curves of trained recipes")
    drawing.add_argument("runs", type=Path, nargs="+")
    drawing.add_argument("--picture", type=Path, required=True)
    drawing.set_defaults(run=draw)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
