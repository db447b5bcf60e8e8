"""Time per answer to a cloze question, batched and one at a time, for each of the three systems.

Models have random weights: BERT trunks for KERMIT and the masked language model, GPT-2 for the left-to-right one, of
the same depth and width. Passages are random tokens with SQuAD's lengths, about 115 words, few under 50 or over 250,
and are batched by length, as in `kermit evaluate cloze`. Batched and single runs alternate; times are medians. KERMIT
decodes to the length of the gap, so that a random model needs as many rounds as a trained one. A left-to-right model
with random weights scores all its candidates; for realistic times, use trained models and real questions:

    python benchmarks/cloze_batching.py [--instances 96] [--batch-size 32] [--calls 3] [--threads N]
    python benchmarks/cloze_batching.py --kermit DIR --masked-lm DIR --causal-lm DIR --qa2d FILE --squad FILE
        [--precision bfloat16]
"""

import argparse
import json
import random
import statistics
import time
from pathlib import Path

import torch
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

from kermit import DecodingSettings, KermitConfig, KermitForInsertion
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.decoding import Constraints
from kermit.modeling import special_token_settings
from kermit.tasks.cloze.causal_lm_system import CausalLMSystem
from kermit.tasks.cloze.evaluation import PredictionLog, predict
from kermit.tasks.cloze.insertion_system import InsertionSystem
from kermit.tasks.cloze.instances import ClozeInstance, read_cloze
from kermit.tasks.cloze.masked_lm_system import MaskedLMSystem
from kermit.tasks.cloze.models import load_causal_lm, load_insertion_model, load_masked_lm

POSITIONS = 512


def instances(count, words):
    chance = random.Random(0)
    text = [f"w{number}" for number in range(500)]

    def say(length):
        return " ".join(chance.choices(text, k=length))

    lengths = [round(words * chance.lognormvariate(-0.08, 0.4)) for _ in range(count)]
    return [
        ClozeInstance.from_text(f"{say(length)}.", f"{say(10)}?", f"{say(4)} ____ {say(4)}.", [say(3)], id=str(number))
        for number, length in enumerate(lengths)
    ]


def build(tokenizer, width, layers):
    torch.manual_seed(0)
    heads = width // 64
    bert = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=POSITIONS,
        pad_token_id=tokenizer.pad_token_id,
    )
    gpt2 = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=POSITIONS,
        n_embd=width,
        n_layer=layers,
        n_head=width // 64,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
    )
    kermit = KermitForInsertion(KermitConfig(trunk_config=bert, **special_token_settings(tokenizer)))
    return [
        InsertionSystem(kermit, tokenizer, DecodingSettings(max_tokens=32), oracle_length=True),
        MaskedLMSystem(BertForMaskedLM(bert), tokenizer),
        CausalLMSystem(GPT2LMHeadModel(gpt2), tokenizer),
    ]


def trained(options):
    """Load the systems whose models are given, as in `kermit evaluate cloze`; KERMIT inserts at least one token."""
    precision = getattr(torch, options.precision)
    if options.kermit:
        decoding = DecodingSettings(max_tokens=32, constraints=Constraints(min_tokens_per_blank=1))
        yield InsertionSystem(*load_insertion_model(options.kermit, precision), decoding)
    if options.masked_lm:
        yield MaskedLMSystem(*load_masked_lm(options.masked_lm, precision))
    if options.causal_lm:
        yield CausalLMSystem(*load_causal_lm(options.causal_lm, precision))


def measure(system, asked, batch_size, calls):
    sizes = {"batched": batch_size, "single": 1}
    seconds = {name: [] for name in sizes}
    answers = {}
    for number in range(calls + 1):
        for name, size in sizes.items():
            start = time.perf_counter()
            found = predict(system, asked, PredictionLog(None, {}), batch_size=size)
            if number > 0:
                seconds[name].append((time.perf_counter() - start) / len(asked))
            answers[name] = [prediction.answer for prediction in found]
    times = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "system": system.name,
        "batch": batch_size,
        "batched_ms": round(1000 * times["batched"], 2),
        "single_ms": round(1000 * times["single"], 2),
        "single_over_batched": round(times["single"] / times["batched"], 2),
        "same_answers": sum(one == other for one, other in zip(*answers.values(), strict=True)) / len(asked),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--words", type=int, default=115, help="approximate number of words per passage")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    for system in ("--kermit", "--masked-lm", "--causal-lm"):
        parser.add_argument(system, help="a trained model's folder, or its name on the Hub")
    parser.add_argument("--qa2d", type=Path)
    parser.add_argument("--squad", type=Path)
    parser.add_argument(
        "--precision", choices=["float32", "bfloat16"], default="float32", help="precision of trained models"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.kermit or options.masked_lm or options.causal_lm:
        if not (options.qa2d and options.squad):
            parser.error("trained models need real questions; give --qa2d and --squad")
        asked = read_cloze(options.qa2d, options.squad).instances[: options.instances]
        systems = trained(options)
    else:
        asked = instances(options.instances, options.words)
        tokenizer = train_tokenizer([instance.passage for instance in asked] * 3, vocab_size=2000)
        systems = build(tokenizer, options.width, options.layers)
    for system in systems:
        print(json.dumps(measure(system, asked, options.batch_size, options.calls)), flush=True)


if __name__ == "__main__":
    main()
