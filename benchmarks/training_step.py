"""Time and memory of a training step of KERMIT, compared with a masked-LM step of the same trunk.

Both steps see the same canvas tokens through the same BERT trunk and the same optimiser. The peer is transformers'
`BertForMaskedLM` with 15% of the tokens as labels. KERMIT's step starts from complete texts and includes drawing the
canvases and their targets. Each runs in its own process, which separates their peak memory; the two alternate, and
times are medians.

    python benchmarks/training_step.py [--vocab 8000 32000] [--steps 20] [--threads N]
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM

from kermit import BalancedTreePrior, CanvasBatch, Factorization, KermitConfig, KermitForInsertion, SlotObjective, Texts
from kermit.modeling import as_tensors

PAIRS, SHORTEST, LONGEST = 96, 8, 24
FIRST_CONTENT = 5


def trunk_config(vocab):
    return BertConfig(
        vocab_size=vocab,
        hidden_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=1024,
        max_position_embeddings=128,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def complete_texts(specials, vocab, generator):
    def side():
        length = int(torch.randint(SHORTEST, LONGEST + 1, (1,), generator=generator))
        return torch.randint(FIRST_CONTENT, vocab, (length,), generator=generator).tolist()

    rows = [(side(), side()) for _ in range(PAIRS)]
    return Texts.of(CanvasBatch.from_segments(specials, rows), [Factorization.JOINT] * PAIRS)


def worker(kind, vocab, threads):
    """Run one step per line of input and print its seconds; at the end, print the peak memory."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    config = KermitConfig(trunk_config=trunk_config(vocab))
    texts = complete_texts(config.specials, vocab, generator)
    objective = SlotObjective(BalancedTreePrior())
    model = KermitForInsertion(config) if kind == "kermit" else BertForMaskedLM(trunk_config(vocab))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # creates the optimiser's state, which is the same for both
    optimizer.zero_grad()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def step(seed):
        draw = np.random.default_rng(seed)
        if kind == "kermit":
            start = time.perf_counter()
            loss = model(**as_tensors(objective.sample(texts, draw).model_inputs())).loss
        else:
            canvases = objective.sample(texts, draw).canvases
            masked = canvases.valid & (draw.random(canvases.valid.shape) < 0.15)
            inputs = {
                "input_ids": canvases.token_ids,
                "attention_mask": canvases.valid.astype(np.int64),
                "token_type_ids": canvases.segment_ids,
                "labels": np.where(masked, canvases.token_ids, -100),
            }
            start = time.perf_counter()
            loss = model(**as_tensors(inputs)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - start

    for line in sys.stdin:
        print(json.dumps(step(int(line))), flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"added_mib": (peak - before) / 1024, "peak_mib": peak / 1024}), flush=True)


def measure(vocab, steps, threads):
    def launch(kind):
        command = [sys.executable, __file__, "--worker", kind, "--vocab", str(vocab), "--threads", str(threads)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    workers = {kind: launch(kind) for kind in ("kermit", "masked_lm")}
    seconds = {kind: [] for kind in workers}
    for number in range(steps + 3):
        for kind, process in workers.items():
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            spent = json.loads(process.stdout.readline())
            if number >= 3:
                seconds[kind].append(spent)
    memory = {}
    for kind, process in workers.items():
        process.stdin.close()
        memory[kind] = json.loads(process.stdout.readline())
        process.wait()
    times = {kind: statistics.median(values) for kind, values in seconds.items()}
    return {
        "vocab": vocab,
        "kermit_seconds": round(times["kermit"], 4),
        "masked_lm_seconds": round(times["masked_lm"], 4),
        "time_ratio": round(times["kermit"] / times["masked_lm"], 3),
        "kermit_added_mib": round(memory["kermit"]["added_mib"], 1),
        "masked_lm_added_mib": round(memory["masked_lm"]["added_mib"], 1),
        "added_memory_ratio": round(memory["kermit"]["added_mib"] / memory["masked_lm"]["added_mib"], 3),
        "peak_memory_ratio": round(memory["kermit"]["peak_mib"] / memory["masked_lm"]["peak_mib"], 3),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, nargs="+", default=[8000, 32000])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--worker", choices=["kermit", "masked_lm"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.vocab[0], options.threads)
        return
    for vocab in options.vocab:
        print(json.dumps(measure(vocab, options.steps, options.threads)), flush=True)


if __name__ == "__main__":
    main()
