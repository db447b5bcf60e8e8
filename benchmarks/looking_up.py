"""Measure whether a model looks up answers in the passage: the log-probability of a gap's word with and without it.

The cloze questions are those whose gap is one token that also occurs in the passage. Each is scored unchanged, and
again with every occurrence of that token before the gap removed. The difference is what a model gains by looking the
word up. End-of-slot is excluded.

    python benchmarks/looking_up.py --system kermit --model DIR --qa2d FILE --squad FILE [--count 300]
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch

from kermit import DecodingSettings
from kermit.canvas import CanvasBatch
from kermit.decoding.asking import ask_canvases
from kermit.tasks.cloze.causal_lm_system import CausalLMSystem
from kermit.tasks.cloze.insertion_system import InsertionSystem
from kermit.tasks.cloze.instances import read_cloze
from kermit.tasks.cloze.masked_lm_system import MaskedLMSystem
from kermit.tasks.cloze.models import load_causal_lm, load_insertion_model, load_masked_lm

BATCH = 16


def of_kermit(system, layouts):
    """Return (layouts, vocabulary) log-probabilities of the first token inserted into the gap."""
    canvases = [system.canvas(layout) for layout in layouts]
    found = ask_canvases(system.engine, CanvasBatch.from_canvases(canvases), full=True)
    return torch.as_tensor(found.answer.content)


def of_masked_lm(system, layouts):
    inputs = system.inputs(layouts, 1)
    logits = system._logits(inputs.token_ids, inputs.valid, inputs.segment_ids, inputs.gap)
    return logits[:, 0].float().log_softmax(1)


def of_causal_lm(system, layouts):
    return torch.cat([system.read(layout)[0] for layout in layouts]).log_softmax(1)


SYSTEMS = {
    "kermit": (of_kermit, lambda path: InsertionSystem(*load_insertion_model(path), DecodingSettings(max_tokens=1))),
    "masked-lm": (of_masked_lm, lambda path: MaskedLMSystem(*load_masked_lm(path))),
    "causal-lm": (of_causal_lm, lambda path: CausalLMSystem(*load_causal_lm(path), samples=1)),
}


def questions(system, instances, count):
    """Return layouts with the token of their gap, for gaps of one token that occurs in the passage."""
    found = []
    for instance in instances:
        layout = system.lay_out(instance)
        if layout is None or layout.gap_length != 1 or layout.cut:
            continue
        space = "" if instance.joined else " "
        [token] = system.tokenizer(f"{space}{instance.gap}", add_special_tokens=False)["input_ids"]
        if token in layout.first + layout.before:
            found.append((layout, token))
        if len(found) == count:
            break
    return found


def without(layout, token):
    first, before = (tuple(other for other in part if other != token) for part in (layout.first, layout.before))
    return replace(layout, first=first, before=before)


@torch.inference_mode()
def measure(score, system, layouts, tokens):
    """Return the mean log-probability of the gaps' tokens, and the percentage that are the best token."""
    values, best = [], []
    for start in range(0, len(layouts), BATCH):
        part = slice(start, start + BATCH)
        log_probs = score(system, layouts[part])
        right = torch.tensor(tokens[part], device=log_probs.device)
        values += log_probs.gather(1, right[:, None]).squeeze(1).tolist()
        best += (log_probs.argmax(1) == right).tolist()
    return {"log_prob": round(fmean(values), 2), "best": round(100 * fmean(best), 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", choices=SYSTEMS, required=True)
    parser.add_argument("--model", required=True, help="a folder, or a name on the Hub")
    parser.add_argument("--qa2d", type=Path, required=True)
    parser.add_argument("--squad", type=Path, required=True)
    parser.add_argument("--count", type=int, default=300, help="number of questions; default: 300")
    options = parser.parse_args()
    score, load = SYSTEMS[options.system]
    system = load(options.model)
    asked = questions(system, read_cloze(options.qa2d, options.squad).instances, options.count)
    if not asked:
        parser.error("no question has a gap of one token that occurs in its passage")
    layouts, tokens = [layout for layout, _ in asked], [token for _, token in asked]
    asked_of = {"with": layouts, "without": [without(layout, token) for layout, token in asked]}
    found = {name: measure(score, system, part, tokens) for name, part in asked_of.items()}
    print(json.dumps({"system": options.system, "model": options.model, "questions": len(asked), **found}))


if __name__ == "__main__":
    main()
