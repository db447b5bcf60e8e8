"""Blank out words of sentences from a text file, and fill them in with a pretrained model.

    python examples/infill_wikipedia.py --model checkpoints/english --input wikipedia/valid.txt.gz --seed 0

The file has one paragraph per line, plain or gzipped. In each chosen sentence one to three consecutive words are
blanked out. The model's insertion is shown in brackets, and the original words below it. The model decides how many
tokens to insert.
"""

import argparse
import random
import sys
from pathlib import Path

from kermit import Constraints, DecodingSettings, Kermit
from kermit.data.articles import ArticleSource, read_paragraphs, split_sentences
from kermit.data.plain import OnBad, Report
from kermit.errors import KermitError

BLANK = "____"
SHORTEST, LONGEST, MOST_BLANKED = 6, 30, 3


def choose_sentences(path, count, chance):
    """Choose sentences of medium length uniformly at random, in one pass over the file."""
    chosen, seen = [], 0
    for paragraph in read_paragraphs(ArticleSource(text=path), Report(OnBad.SKIP)):
        for sentence in split_sentences(paragraph.text):
            if not SHORTEST <= len(sentence.split()) <= LONGEST or BLANK in sentence:
                continue
            seen += 1
            if len(chosen) < count:
                chosen.append(sentence)
            elif (place := chance.randrange(seen)) < count:
                chosen[place] = sentence
    return chosen


def blank(sentence, chance):
    """Return the sentence with a run of words blanked out, and the words before, in and after the run."""
    words = sentence.split()
    length = chance.randint(1, MOST_BLANKED)
    start = chance.randrange(1, len(words) - length)
    before, hidden, after = words[:start], words[start : start + length], words[start + length :]
    return " ".join([*before, BLANK, *after]), before, hidden, after


def filling(text, before, after):
    """Return the text between the given words of a filled text."""
    head, tail = " ".join(before), " ".join(after)
    return text[len(head) : len(text) - len(tail)].strip()


def main():
    parser = argparse.ArgumentParser(description="Blank out words of sentences and fill them in with a model.")
    parser.add_argument("--model", type=Path, required=True, help="folder of a pretrained KERMIT model")
    parser.add_argument("--input", type=Path, required=True, help="text file, plain or .gz")
    parser.add_argument("--count", type=int, default=20, help="number of sentences")
    parser.add_argument("--seed", type=int, default=0, help="seed for the choice of sentences and words")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    blanked = [blank(sentence, chance) for sentence in choose_sentences(options.input, options.count, chance)]
    model = Kermit.from_pretrained(options.model)
    settings = DecodingSettings(constraints=Constraints(min_tokens_per_blank=1, max_tokens_per_blank=8))
    results = model.infill([text for text, *_ in blanked], settings=settings)
    exact = 0
    for (_, before, hidden, after), result in zip(blanked, results, strict=True):
        found = filling(result.x, before, after)
        exact += found.lower() == " ".join(hidden).lower()
        print(f"{' '.join(before)} [{found}] {' '.join(after)}\n    was: {' '.join(hidden)}")
    print(f"{exact} of {len(blanked)} as they were")


if __name__ == "__main__":
    try:
        main()
    except KermitError as error:
        sys.exit(f"error: {error}")
