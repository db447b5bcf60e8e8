"""Train KERMIT on a toy pair language for a minute or two, then translate in both directions and infill with it.

The pairs count by ones, twos or threes, in digits and in Roman numerals: ``3 5 7`` and ``III V VII``. The model learns
both directions at once, in parallel rounds and from left to right, and translates a text of n words in about log2 n
rounds. With `--full-attention` it is the paper's model, which reads the whole canvas again in every round and learns
from one canvas per text.

    python examples/toy_pairs.py
    python examples/toy_pairs.py --full-attention --steps 3000
    python examples/toy_pairs.py --pairs 200 --longest 31 --steps 6000
"""

import argparse
import math
import random
import time

import numpy as np
import torch
from rich.console import Console

from kermit import (
    BalancedTreePrior,
    DecodingSettings,
    Factorization,
    Kermit,
    KermitConfig,
    KermitForInsertion,
    Strategy,
)
from kermit.canvas import CanvasBatch, Segment
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.engines.torch_engine import model_info
from kermit.modeling import EncoderConfig, special_token_settings
from kermit.modeling.tensors import as_tensors
from kermit.objectives.generations import GenerationObjective
from kermit.objectives.objective import KeptSampling, SlotObjective
from kermit.objectives.training_canvases import Texts
from kermit.rendering import terminal_lines
from kermit.text.tokenizer import encode_texts

LARGEST = 40
KEPT = (KeptSampling.PRIOR, KeptSampling.UNIFORM)


def roman(number):
    parts = ((50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))
    out = ""
    for value, letters in parts:
        out += letters * (number // value)
        number %= value
    return out


def counting(chance, length):
    step = chance.randint(1, max(1, min(3, (LARGEST - 1) // max(1, length - 1))))
    start = chance.randint(1, LARGEST - step * (length - 1))
    numbers = range(start, start + step * length, step)
    return " ".join(map(str, numbers)), " ".join(map(roman, numbers))


def make_tokenizer():
    """Train a tokenizer in which every number is a token, with and without a leading space."""
    lines = [" ".join(map(write, range(1, LARGEST + 1))) for write in (str, roman)]
    return train_tokenizer([*lines, *(word for line in lines for word in line.split())], vocab_size=700)


def make_model(tokenizer, *, cached_context):
    trunk = EncoderConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=192,
    )
    specials = special_token_settings(tokenizer, cached_context=cached_context)
    orders = ["balanced_tree", "left_to_right"] if cached_context else None
    config = KermitConfig(
        trunk_config=trunk, slot_vector="both", cached_context=cached_context, orders=orders, **specials
    )
    return KermitForInsertion(config)


def slot_loss(model, texts, step, generator):
    """Compute the loss of one canvas per text, alternately as in decoding and uniform, so that any blank is learned."""
    objective = SlotObjective(BalancedTreePrior(temperature=0.1), kept=KEPT[step % 2])
    return model(**as_tensors(objective.sample(texts, generator).model_inputs())).loss


def generation_loss(model, texts, step, generator, infilling=0.3):
    """Compute the loss of all rounds of a generation per text, or of the text from left to right."""
    objective = GenerationObjective(BalancedTreePrior(temperature=0.1), infilling=infilling, staggered=0.2)
    left_to_right = generator.random(len(texts.batch)) < 0.3
    drawn, rounds = objective.draw(texts, left_to_right, generator)
    info = model_info(model)
    targets = objective.build(drawn, rounds, left_to_right, blank_id=info.blank_id, blank_room=info.blank_room)
    return model(**as_tensors(targets.model_inputs()), num_items_in_batch=int(drawn.lengths.sum()) + len(rounds)).loss


def train(pairs, tokenizer, steps, report, seed=0, cached_context=True):
    torch.set_num_threads(1)  # a model this small gains nothing from a second core
    torch.manual_seed(seed)
    chance, generator = random.Random(seed), np.random.default_rng(seed)
    model = make_model(tokenizer, cached_context=cached_context)
    loss_of = generation_loss if cached_context else slot_loss
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.01, betas=(0.9, 0.98), fused=True)
    encoded = [[encode_texts(tokenizer, [text])[0] for text in pair] for pair in pairs]
    recent, begin = [], time.monotonic()
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = 4e-3 * min(1.0, step / 100) * (1 - step / (steps + 1))
        rows = [encoded[chance.randrange(len(encoded))] for _ in range(24)]
        ways = [chance.choice((Factorization.Y_GIVEN_X, Factorization.X_GIVEN_Y)) for _ in rows]
        loss = loss_of(model, Texts.of(CanvasBatch.from_segments(model.specials, rows), ways), step, generator)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        recent.append(loss.item())
        if step % 100 == 0:
            report(f"step {step:5} of {steps}  loss {sum(recent) / len(recent):.3f}  {time.monotonic() - begin:4.0f} s")
            recent.clear()
    return Kermit(model, tokenizer)


def evaluate(kermit, pairs, strategy):
    """Return the share of exact translations, and the share within the expected rounds, over both directions."""
    exact = quick = 0
    for source, target in ((0, 1), (1, 0)):
        found = kermit.translate([pair[source] for pair in pairs], "xy"[target], settings=DecodingSettings(strategy))
        for pair, result in zip(pairs, found, strict=True):
            words = len(pair[target].split())
            limit = math.ceil(math.log2(words + 1)) + 1 if strategy is Strategy.PARALLEL else words + 1
            exact += (result.x, result.y)[target] == pair[target]
            quick += result.rounds <= limit
    return exact / (2 * len(pairs)), quick / (2 * len(pairs))


def make_pairs(count, longest, seed=0):
    chance = random.Random(seed)
    return [counting(chance, 1 + number % longest) for number in range(count)]


def main():
    parser = argparse.ArgumentParser(description="Train KERMIT on a toy pair language and use it.")
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--longest", type=int, default=8, help="number of words of the longest text")
    parser.add_argument("--steps", type=int, default=1000, help="number of training steps")
    parser.add_argument("--full-attention", action="store_true", help="the paper's model")
    options = parser.parse_args()
    console = Console()
    tokenizer = make_tokenizer()
    pairs = make_pairs(options.pairs, options.longest)
    console.print(f"Training on {len(pairs)} pairs such as {pairs[2][0]!r} and {pairs[2][1]!r} ...")
    kermit = train(pairs, tokenizer, options.steps, console.print, cached_context=not options.full_attention)
    for strategy in Strategy:
        if strategy is Strategy.LEFT_TO_RIGHT and options.full_attention:
            continue
        exact, quick = evaluate(kermit, pairs, strategy)
        console.print(f"{strategy:13}  exact, both directions {exact:.1%}; within the expected rounds {quick:.1%}")

    def show(title, result, segment):
        console.print(f"\n[bold]{title}[/bold]  ({result.rounds} rounds)")
        for line in terminal_lines(result.trace, segment, lambda i: kermit.text([i]), colour=console.is_terminal):
            console.print(line)

    digits, numerals = pairs[min(options.longest, len(pairs)) - 1]
    (there,) = kermit.translate([digits], "y", trace=True)
    show(f"{digits}  ->  {there.y}", there, Segment.Y)
    (back,) = kermit.translate([numerals], "x", trace=True)
    show(f"{numerals}  ->  {back.x}", back, Segment.X)
    words = numerals.split()
    blanked = " ".join([*words[:2], "____", *words[-2:]])
    (filled,) = kermit.infill([digits], [blanked], trace=True)
    show(f"{digits}  +  {blanked}  ->  {filled.y}", filled, Segment.Y)


if __name__ == "__main__":
    main()
