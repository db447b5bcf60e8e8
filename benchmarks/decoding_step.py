"""Cost of a round of decoding beyond the trunk's forward pass, at batch 1 and 64.

A decode of four rounds is measured end to end, from canvases to results. It is compared with the trunk alone on the
canvases of the same rounds, and with the trunk and the logits of the open slots, which any language model must compute.
X is complete; Y starts empty and doubles every round, as in the tree order. The three alternate, and times are medians.

    python benchmarks/decoding_step.py [--batch 1 64] [--calls 50] [--threads N]
"""

import argparse
import json
import statistics
import time

import torch
from transformers import BertConfig

from kermit import Canvas, CanvasBatch, DecodingSettings, Factorization, KermitConfig, KermitForInsertion, decode
from kermit.decoding.asking import ask_canvases
from kermit.engines.torch_engine import TorchEngine

SOURCE, ROUNDS = 20, 4
FIRST_CONTENT = 5


def build(size, vocab):
    width, layers, heads = {"small": (256, 6, 4), "base": (768, 12, 12)}[size]
    trunk = BertConfig(
        vocab_size=vocab,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=128,
    )
    torch.manual_seed(0)
    return KermitForInsertion(KermitConfig(trunk_config=trunk)).eval()


def measure(model, size, vocab, batch, calls):
    generator = torch.Generator().manual_seed(0)
    sources = torch.randint(FIRST_CONTENT, vocab, (batch, SOURCE), generator=generator).tolist()
    canvases = [Canvas.from_ids(model.specials, x, (), generate=Factorization.Y_GIVEN_X) for x in sources]
    # the penalty keeps a random model from stopping early
    settings = DecodingSettings(max_rounds=ROUNDS, termination_penalty=100.0)
    engine = TorchEngine(model)
    traces = [result.trace.canvases() for result in decode(engine, canvases, settings, trace=True)]
    parts = [CanvasBatch.from_canvases([trace[number] for trace in traces]) for number in range(ROUNDS)]
    tensors = [(torch.as_tensor(part.token_ids), torch.as_tensor(part.segment_ids)) for part in parts]

    def trunk():
        for token_ids, segment_ids in tensors:
            model.kermit(token_ids, None, segment_ids)

    def logits():
        for part in parts:
            ask_canvases(engine, part)

    def rounds():
        decode(engine, canvases, settings, batch_size=batch)

    seconds = {function.__name__: [] for function in (trunk, logits, rounds)}
    with torch.inference_mode():
        for number in range(calls + 3):
            for function in (trunk, logits, rounds):
                start = time.perf_counter()
                function()
                if number >= 3:
                    seconds[function.__name__].append((time.perf_counter() - start) / ROUNDS)
    times = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "trunk": size,
        "vocab": vocab,
        "batch": batch,
        "trunk_ms": round(1000 * times["trunk"], 2),
        "with_logits_ms": round(1000 * times["logits"], 2),
        "round_ms": round(1000 * times["rounds"], 2),
        "round_over_trunk": round(times["rounds"] / times["trunk"], 3),
        "round_over_logits": round(times["rounds"] / times["logits"], 3),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--trunk", nargs="+", default=["small", "base"], choices=["small", "base"])
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for size in options.trunk:
        model = build(size, options.vocab)
        for batch in options.batch:
            print(json.dumps(measure(model, size, options.vocab, batch, options.calls)), flush=True)


if __name__ == "__main__":
    main()
