"""Infill held-out sentences of English Wikipedia: how often the blanked words are recovered, and how the result reads.

The 300 sentences come from the validation text; in a third each, one, two or three adjacent words are blanked.
Sentences and blanks depend only on the text, so every model gets the same ones. Words are compared without case,
because models with an uncased tokenizer insert lower-case words.

    python benchmarks/english_infilling.py --model DIR --data DIR [--language-model FILE.gguf] [--set NAME=VALUE ...]
        [--limit N] [--output results.json]

Prints one row per number of words and one for all, then the first twenty sentences. `--language-model` adds
perplexities (see benchmarks/abilities.py).
"""

import argparse
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml
from abilities import against, language_model, perplexity

from kermit import Kermit
from kermit.canvas.blanks import BLANK
from kermit.data.plain import read_lines
from kermit.text.splitting import split_text

TEXT = "wikipedia/valid.txt.gz"
SEED = 2026
SENTENCES = 300
SHOWN = 20
WORDS = (1, 2, 3)
WORD_LIMITS = range(8, 31)
WORD = re.compile(r"[A-Za-z]+")
PLAIN = re.compile(r"[A-Z][A-Za-z0-9 ,;:'\-]+\.")


@dataclass(frozen=True)
class Blanked:
    """A sentence, the sentence with a blank, and the number of words in the blank."""

    original: str
    template: str
    words: int


def blanked(sentence, words):
    """Blank a run of adjacent words, chosen by a seed from the sentence; return None if there is no such run."""
    found = list(WORD.finditer(sentence))
    runs = [
        (first.start(), last.end())
        for first, last in zip(found[1:], found[words:], strict=False)  # never the first word
        if re.fullmatch(rf"[A-Za-z]+( [A-Za-z]+){{{words - 1}}}", sentence[first.start() : last.end()])
    ]
    if not runs:
        return None
    start, end = random.Random(f"{SEED} {sentence}").choice(runs)
    return Blanked(sentence, sentence[:start] + BLANK + sentence[end:], words)


def chosen(paragraphs, count):
    """Choose sentences of a shuffled text and blank one, two and three words in turn."""
    sentences = {
        sentence
        for paragraph in paragraphs
        for sentence in split_text(paragraph, "en").sentences
        if len(sentence.split()) in WORD_LIMITS and PLAIN.fullmatch(sentence)
    }
    ordered = sorted(sentences)
    random.Random(SEED).shuffle(ordered)
    found = []
    for sentence in ordered:
        one = blanked(sentence, WORDS[len(found) % len(WORDS)])
        if one is not None and len(found) < count:
            found.append(one)
    return found


def row(words, examples, texts, log_probs):
    """Measure the examples with this number of blanked words, or all of them."""
    pairs = [(example, text) for example, text in zip(examples, texts, strict=True) if words in (example.words, "all")]
    right = [text.casefold() == example.original.casefold() for example, text in pairs]
    found = {"words": words, "texts": len(pairs), "exact": round(sum(right) / len(right), 3)}
    if log_probs is not None:
        perplexities = [
            [perplexity(one) for one in log_probs(side)]
            for side in ([text for _, text in pairs], [example.original for example, _ in pairs])
        ]
        found |= against(*perplexities)
    return found


def main():
    parser = argparse.ArgumentParser(description="Infill held-out sentences of English Wikipedia.")
    parser.add_argument("--model", required=True, help="folder of the model, or its name on the Hub")
    parser.add_argument("--data", type=Path, required=True, help="folder with wikipedia/valid.txt.gz in it")
    parser.add_argument("--language-model", type=Path, help="an English language model for perplexities")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="decoding settings")
    parser.add_argument("--limit", type=int, default=SENTENCES, help="use only the first N sentences")
    parser.add_argument("--output", type=Path, help="write the measurements to this file as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    examples = chosen((line.text or "" for line in read_lines(options.data / TEXT)), options.limit)
    settings = {name: yaml.safe_load(value) for name, value in (one.split("=", 1) for one in options.set)}
    kermit = Kermit.from_pretrained(options.model)
    texts = [one.x for one in kermit.infill([example.template for example in examples], settings=settings)]
    log_probs = options.language_model and language_model(options.language_model)
    rows = [row(words, examples, texts, log_probs) for words in (*WORDS, "all")]
    for one in rows:
        print(json.dumps(one))
    shown = [{"template": example.template, "filled": text, "original": example.original}
             for example, text in zip(examples[:SHOWN], texts, strict=False)]  # fmt: skip
    for one in shown:
        print(json.dumps(one, ensure_ascii=False))
    if options.output:
        report = {"model": str(options.model), "settings": settings, "rows": rows, "shown": shown}
        options.output.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
