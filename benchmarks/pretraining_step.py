"""Tokens per second of KERMIT's pretraining step, compared with the masked language model's on the same trunk and text.

The text is packed rows of 128 tokens, the trunk a BERT of 6 layers with dropout as in training, the optimiser the same.
Tokens are those of the complete text; KERMIT's canvases are shorter because tokens are dropped. The peers are
transformers' `BertForMaskedLM` with its own loss, and this project's masked language model, the same network with a
loss that computes logits only at the masked tokens. Every step starts from rows of token ids and includes drawing the
tokens to drop or mask. The three alternate in one process; times are medians. The target is a ratio of at least 0.9.

    python benchmarks/pretraining_step.py [--width 384] [--vocab 30522] [--rows 16] [--steps 10] [--threads N]
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from kermit.data.joint_tokenizer import train_tokenizer
from kermit.families.base import ITEMS
from kermit.modeling import as_tensors
from kermit.training.cpu import FastDropout
from kermit.training.optimizers import build_optimizer
from kermit.training.recipe import check_recipe

LENGTH, FIRST_CONTENT, WARM_UP = 128, 5, 2
OBJECTIVES = {"kermit": {"kept": "bernoulli", "span_length": 2.0, "empty_slot_rate": 0.1}, "masked_lm": {}}


def make_tokenizer(vocab: int) -> PreTrainedTokenizerFast:
    """Create a tokenizer with that many arbitrary tokens."""
    tokenizer = train_tokenizer(["text"], 300)
    tokenizer.add_tokens([f"token{number}" for number in range(vocab - len(tokenizer))])
    return tokenizer


def load(family: str, options: argparse.Namespace):
    trunk = {
        "model_type": "bert",
        "hidden_size": options.width,
        "num_hidden_layers": 6,
        "num_attention_heads": options.width // 32,
        "intermediate_size": 4 * options.width,
        "max_position_embeddings": 512,
        "attention_probs_dropout_prob": 0.0,
    }
    recipe = {
        "task": "pretraining",
        "data": {"train": [{"text": "none"}], "max_tokens": LENGTH},
        "tokenizer": {"vocab_size": options.vocab},
        "model": {"family": family, "trunk": trunk} | ({"slot_vector": "both"} if family == "kermit" else {}),
        "objective": OBJECTIVES[family],
        "schedule": {"max_steps": 1},
    }
    return check_recipe(recipe, data=Path())


class Contender:
    """A model with its optimiser, batches and loss; `own_loss` selects transformers' loss."""

    def __init__(self, family, options, tokenizer, own_loss=False):
        loaded = load(family, options)
        torch.manual_seed(0)
        self.family, self.recipe, self.own_loss = loaded.family, loaded.recipe, own_loss
        self.model = self.family.build(self.recipe, tokenizer).train()
        self.collator = self.family.collator(self.recipe, tokenizer)
        self.optimizer = build_optimizer(self.model, self.recipe.optimizer)

    def step(self, rows, seed):
        """Run a step, and return its duration in seconds."""
        start = time.perf_counter()
        batch = as_tensors(self.collator(rows, np.random.default_rng(seed)))
        items = batch.pop(ITEMS).sum()
        with FastDropout([seed]):
            if self.own_loss:
                loss = self.model(
                    batch["input_ids"],
                    attention_mask=batch["valid"].long(),
                    token_type_ids=batch["segment_ids"],
                    labels=batch["labels"],
                ).loss
            else:
                loss = self.family.loss(self.model, batch, self.recipe) / items
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - start


def measure(options):
    tokenizer = make_tokenizer(options.vocab)
    generator = torch.Generator().manual_seed(0)
    half = (LENGTH - 3) // 2

    def side(length):
        return torch.randint(FIRST_CONTENT, options.vocab, (length,), generator=generator).tolist()

    rows = [{"x": side(LENGTH - 3 - half), "y": side(half), "source": 0} for _ in range(options.rows)]
    contenders = {
        "kermit": Contender("kermit", options, tokenizer),
        "transformers_masked_lm": Contender("masked_lm", options, tokenizer, own_loss=True),
        "masked_lm": Contender("masked_lm", options, tokenizer),
    }
    seconds = {name: [] for name in contenders}
    for number in range(options.steps + WARM_UP):
        for name, contender in contenders.items():
            spent = contender.step(rows, number)
            if number >= WARM_UP:
                seconds[name].append(spent)
    rates = {name: options.rows * LENGTH / statistics.median(times) for name, times in seconds.items()}
    return {
        "width": options.width,
        "vocab": options.vocab,
        "rows": options.rows,
        **{f"{name}_tokens_per_second": round(rate, 1) for name, rate in rates.items()},
        "ratio": round(rates["kermit"] / rates["transformers_masked_lm"], 3),
        "ratio_to_own_masked_lm": round(rates["kermit"] / rates["masked_lm"], 3),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=384, help="a multiple of 32")
    parser.add_argument("--vocab", type=int, default=30522)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(json.dumps(measure(options)))


if __name__ == "__main__":
    main()
