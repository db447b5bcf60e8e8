"""Variants of text pairs that make a translation model robust: casing, slips, numbers, names, labels, joins and more.

A kind varies either one side (the target stays clean) or both sides in the same way. Every kind has its own generator,
seeded by (seed, kind), so that no kind depends on the rate of another. Names and numbers are replaced if they are
written the same on both sides, and number words of English and German if they mean the same. This module reads and
writes no files: see `kermit.data.augmentation`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from kermit.errors import UsageError, nearest

TextPair = tuple[str, str]
"""The texts of X and Y."""
Alter = Callable[[TextPair, Generator], TextPair | None]
"""Returns a variant of a pair; None, or the pair itself, if there is none."""

DEFAULTS: Mapping[str, float] = {
    "lower": 0.05,
    "capitals": 0.02,
    "unpunctuated": 0.05,
    "typos": 0.1,
    "numbers": 0.03,
    "names": 0.1,
    "labels": 0.03,
    "joined": 0.05,
    "words": 3000,
    "copies": 1000,
}
"""The default rate of every kind: a share of the input pairs; for words and copies, a number of pairs."""
ONE_SIDED = ("lower", "capitals", "typos")
COUNTED = ("words", "copies")
MAX_JOINED = 40
"""Each side of joined pairs has fewer words than this."""

_LETTER = r"[^\W\d_]"
_WORD = re.compile(rf"{_LETTER}+(?:['\u2019-]{_LETTER}+)*")
_INSIDE = re.compile(rf"(?<=[\w,;] ){_WORD.pattern}")  # a word that does not start a sentence
_NAME = re.compile(r"(?<![\w'\u2019.-])[A-ZÄÖÜ][a-zäöüß]{2,}(?![\w'\u2019-])")
_SLIPPABLE = re.compile(rf"(?<![\w\u0300-\u036f'\u2019-]){_LETTER}{{4,}}(?![\w\u0300-\u036f])")
_NUMBER = re.compile(r"(?<!\w)[1-9][0-9]{0,17}(?!\w)")  # not the digits of 10th or B2
_SPELLED: Mapping[str, int] = {
    word: number
    for spelled in (
        "three four five six seven eight nine ten eleven twelve",
        "drei vier fünf sechs sieben acht neun zehn elf zwölf",
    )
    for number, word in enumerate(spelled.split(), 3)
} | {
    word: 10 * number
    for spelled in ("twenty thirty forty fifty sixty", "zwanzig dreißig vierzig fünfzig sechzig")
    for number, word in enumerate(spelled.split(), 2)
}
"""The values of number words. One and two are left out: they decide about the forms of other words."""
_DOUBLED = 0.4
"""Share of the drawn numbers in which a digit is doubled."""
_INVENTED = 0.5
"""Share of the drawn names that are made up of two known ones."""
_LABELS = (
    '"{a} {n}"',
    '"{n} {a}"',
    '"{a} {b} {n}"',
    '"{n} {a} {b}"',
    '"{a} {b}"',
    '"{n}"',
    "({n})",
    "({m}, {n})",
    "({a} {n})",
    "({n} {a})",
    "{a} {n}",
    "{n}",
)
_FINAL = re.compile(r"(?<![.!?…\s])\s*(?!\.\.)[.!?]+\Z")
_COPIED = (
    "https://www.{0}.com/{1}/{2}-{n}",
    "{0}.{1}@{2}.org",
    "{0}_{1}_{n}.pdf",
    "/home/{0}/{1}/{2}.txt",
    "def {0}_{1}({2}, {0}={n}):",
    "{0}[{n}] = {1}.{2}()",
    "SELECT {0} FROM {1} WHERE {2} = {n};",
    "git checkout {0}/{1}-{n}",
    "+49 30 {n}{n}",
    "192.168.1.{n}",
)


def checked(settings: Mapping[str, Any]) -> dict[str, float]:
    """Validate rates, and complete them with the defaults."""
    for kind, rate in settings.items():
        if kind not in DEFAULTS:
            raise UsageError(f"{kind}: unknown kind{nearest(kind, list(DEFAULTS))}; known: {', '.join(DEFAULTS)}")
        number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if kind in COUNTED and not (number and isinstance(rate, int) and rate >= 0):
            raise UsageError(f"{kind}={rate}: must be a whole number, 0 or more")
        if kind not in COUNTED and not (number and 0 <= rate <= 1):
            raise UsageError(f"{kind}={rate}: must be a share of the pairs, from 0 to 1")
    return {kind: settings.get(kind, rate) for kind, rate in DEFAULTS.items()}


def variants(pairs: Sequence[TextPair], kind: str, rate: float, seed: int) -> dict[str, list[TextPair]]:
    """Make the variants of one kind, by the name of their file: `source_x` and `source_y`, or `both`.

    `rate` is the share of pairs to vary, or the number of pairs to write, as for `checked`.
    """
    if kind in ONE_SIDED:
        return {f"source_{'xy'[side]}": _one_sided(pairs, kind, side, rate, seed) for side in (0, 1)}
    generator = _generator(seed, kind)
    match kind:
        case "words":
            return {"both": words(pairs, int(rate), generator)}
        case "copies":
            return {"both": [(text, text) for text in copies(pairs, int(rate), generator)]}
        case "names":
            names = find_names(pairs)
            return {"both": _drawn(pairs, rate, generator, lambda pair, draws: renamed(pair, names, draws))}
        case "labels":
            names = find_names(pairs)
            return {"both": _drawn(pairs, rate, generator, lambda pair, draws: labelled(pair, names, draws))}
        case "joined":
            return {"both": _drawn(pairs, rate, generator, lambda pair, draws: joined(pair, pairs, draws))}
        case _:
            return {"both": _drawn(pairs, rate, generator, numbers if kind == "numbers" else unpunctuated)}


def _generator(seed: int, name: str) -> Generator:
    return np.random.default_rng([seed, *name.encode()])


def _drawn(pairs: Sequence[TextPair], rate: float, generator: Generator, alter: Alter) -> list[TextPair]:
    """Vary pairs in random order until their share reaches the rate or no pair is left."""
    wanted, found = round(rate * len(pairs)), []
    for index in generator.permutation(len(pairs)).tolist() if wanted else []:
        if (pair := alter(pairs[index], generator)) is not None and pair != pairs[index]:
            found.append(pair)
            if len(found) == wanted:
                break
    return found


def _one_sided(pairs: Sequence[TextPair], kind: str, side: int, rate: float, seed: int) -> list[TextPair]:
    known = {word for pair in pairs for word in _WORD.findall(pair[side].lower())} if kind == "typos" and rate else {}

    def alter(pair: TextPair, generator: Generator) -> TextPair:
        match kind:
            case "lower":
                text = pair[side].lower()
            case "capitals":
                text = pair[side].upper()
            case _:
                text = mistyped(pair[side], generator, known)
        return (text, pair[1]) if side == 0 else (pair[0], text)

    return _drawn(pairs, rate, _generator(seed, f"{kind}.{'xy'[side]}"), alter)


def unpunctuated(pair: TextPair, generator: Generator) -> TextPair | None:
    """Remove the final . ! ? where both sides have one; dots of abbreviations and ellipses stay."""
    bare = tuple(_FINAL.sub("", text) for text in pair)
    if any(new == old or not new.strip() or "." in new.split()[-1] for new, old in zip(bare, pair, strict=True)):
        return None
    return bare[0], bare[1]


def mistyped(text: str, generator: Generator, known: Container[str] = ()) -> str:
    """Make a slip in one or two words of four letters or more, but never one that gives a known word."""
    places = list(_SLIPPABLE.finditer(text))
    chosen = generator.permutation(len(places))[: 1 + (generator.random() < 0.3)]
    for place in (
        places[index] for index in sorted(chosen, reverse=True)
    ):  # from the end, so that earlier places stay valid
        word = slip(place[0], generator)
        if word.lower() not in known:
            text = text[: place.start()] + word + text[place.end() :]
    return text


def slip(word: str, generator: Generator) -> str:
    """Swap two letters of a word, or drop or double one, but never the first."""
    at = int(generator.integers(1, len(word)))
    start, letter, end = word[:at], word[at], word[at + 1 :]
    return (start + end[:1] + letter + end[1:], start + end, start + letter + word[at:])[generator.integers(3)]


def numbers(pair: TextPair, generator: Generator) -> TextPair:
    """Replace numbers above 2 that occur equally often on both sides, in the same way on both.

    A number up to 60 becomes a smaller one, so that hours, minutes and days stay plausible; a year becomes another
    year. A number word that has its counterpart on the other side becomes digits.
    """
    new: dict[str, str] = {}
    for digits in _alike(_NUMBER, pair):
        number, size = int(digits), len(digits)
        low, high = (2, number) if number <= 60 else (10 ** (size - 1), 10**size)
        low, high = (1500, 2100) if 1500 <= number < 2100 else (low, high)
        drawn = _drawn_number(low, high, generator) if low < high else digits
        if not re.search(rf"(?<!\d){drawn}(?!\d)", " ".join((*pair, *new.values()))):
            new[digits] = drawn
    return _replaced(_WORD, _replaced(_NUMBER, pair, new), _digits_for_words(pair, generator))


def _drawn_number(low: int, high: int, generator: Generator) -> str:
    """Draw a number from low up to high, often with a doubled digit, which is the hardest to copy."""
    drawn = str(generator.integers(low, high))
    if len(drawn) > 1 and generator.random() < _DOUBLED:
        at = int(generator.integers(1, len(drawn)))
        doubled = drawn[:at] + drawn[at - 1] + drawn[at + 1 :]
        return doubled if low <= int(doubled) < high else drawn
    return drawn


def _digits_for_words(pair: TextPair, generator: Generator) -> dict[str, str]:
    """Draw digits for the number words that occur once on each side with the same value."""
    by_value: dict[int, list[list[str]]] = defaultdict(lambda: [[], []])
    for side, text in enumerate(pair):
        for word in _WORD.findall(text):
            if word.lower() in _SPELLED:
                by_value[_SPELLED[word.lower()]][side].append(word)
    new: dict[str, str] = {}
    for sides in by_value.values():
        if all(len(words) == 1 for words in sides):
            size = int(generator.integers(1, 5))
            drawn = _drawn_number(max(3, 10 ** (size - 1)), 10**size, generator)
            new |= dict.fromkeys((sides[0][0], sides[1][0]), drawn)
    return new


def find_names(pairs: Sequence[TextPair], least: int = 3) -> list[str]:
    """Find names: capitalised words inside sentences that are written the same on both sides of several pairs."""
    shared: Counter[str] = Counter()
    for x, y in pairs:
        alike = set(_INSIDE.findall(x)) & set(_INSIDE.findall(y))
        shared.update(word for word in alike if _NAME.fullmatch(word))
    return sorted(word for word, count in shared.items() if count >= least)


def renamed(pair: TextPair, names: Sequence[str], generator: Generator) -> TextPair:
    """Replace known names that occur equally often on both sides by known or made-up names, the same on both."""
    new: dict[str, str] = {}
    for name in _alike(_NAME, pair):
        if name in names:
            drawn = _drawn_name(names, generator)
            if drawn not in " ".join((*pair, *new.values())):
                new[name] = drawn
    return _replaced(_NAME, pair, new)


def _drawn_name(names: Sequence[str], generator: Generator) -> str:
    """Draw a known name, or join the start of one and the end of another, so that unknown names are copied too."""
    first, second = (names[int(index)] for index in generator.integers(len(names), size=2))
    if generator.random() >= _INVENTED:
        return first
    return first[: int(generator.integers(2, len(first)))] + second[int(generator.integers(1, len(second) - 1)) :]


def labelled(pair: TextPair, names: Sequence[str], generator: Generator) -> TextPair | None:
    """Insert a label of names and numbers on both sides: after a name that occurs once on each, or at the end."""
    if not names:
        return None
    sizes = generator.integers(1, 5, size=2).tolist()
    n, m = (_drawn_number(10 ** (size - 1), 10**size, generator) for size in sizes)
    label = _LABELS[generator.integers(len(_LABELS))].format(
        a=_drawn_name(names, generator), b=_drawn_name(names, generator), n=n, m=m
    )
    shared = [name for name in _alike(_NAME, pair) if name in names and _NAME.findall(pair[0]).count(name) == 1]
    if shared:
        name = shared[int(generator.integers(len(shared)))]
        return _replaced(_NAME, pair, {name: f"{name} {label}"})
    x, y = (f"{bare} {label}{text[len(bare) :]}" for text in pair for bare in [_FINAL.sub("", text)])
    return x, y


def _alike(pattern: re.Pattern[str], pair: TextPair) -> list[str]:
    """Return the matches of a pattern that occur equally often on both sides."""
    x, y = (Counter(pattern.findall(text)) for text in pair)
    return [found for found, count in x.items() if y[found] == count]


def _replaced(pattern: re.Pattern[str], pair: TextPair, new: Mapping[str, str]) -> TextPair:
    x, y = (pattern.sub(lambda match: new.get(match[0], match[0]), text) for text in pair)
    return x, y


def joined(pair: TextPair, pairs: Sequence[TextPair], generator: Generator) -> TextPair | None:
    """Join a pair with one or sometimes two random pairs; all must be different texts that end in a full sentence."""
    more = generator.integers(len(pairs), size=1 + (generator.random() < 0.2))
    sides = list(zip(pair, *(pairs[index] for index in more), strict=True))
    whole = all(
        len(set(texts)) == len(texts) and all(text.endswith((".", "!", "?")) for text in texts) for texts in sides
    )
    x, y = (" ".join(texts) for texts in sides)
    return (x, y) if whole and max(len(x.split()), len(y.split())) < MAX_JOINED else None


def words(pairs: Sequence[TextPair], count: int, generator: Generator) -> list[TextPair]:
    """Return the most frequent words with their translations as pairs, a quarter of them also capitalised."""
    if not count or not pairs:
        return []
    cased = [_cased(texts) for texts in zip(*pairs, strict=True)]
    entries = [(x, y) for x, y in dictionary(pairs) if x in cased[0] and y in cased[1]][:count]
    found: list[TextPair] = []
    for x, y in entries:
        plain = cased[0][x], cased[1][y]
        found.append(plain)
        capital = plain[0][0].upper() + plain[0][1:], plain[1][0].upper() + plain[1][1:]
        if capital != plain and generator.random() < 0.25:
            found.append(capital)
    return found


def dictionary(
    pairs: Sequence[TextPair], *, least: int = 5, overlap: float = 0.5, margin: float = 0.8
) -> list[TextPair]:
    """Find words that translate each other, lower-cased, the most frequent first.

    Two words translate each other if they occur in the same pairs: their Dice coefficient is at least `overlap`, and
    `margin` times it exceeds that of either with any other word, which excludes parts of compounds.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    counters = [CountVectorizer(binary=True, token_pattern=_WORD.pattern) for _ in range(2)]
    x, y = (counter.fit_transform(texts) for counter, texts in zip(counters, zip(*pairs, strict=True), strict=True))
    both = (x.T @ y).tocoo()
    sizes = [np.asarray(side.sum(0)).ravel() for side in (x, y)]
    dice = 2 * both.data / (sizes[0][both.row] + sizes[1][both.col])
    near = np.flatnonzero((both.data >= least) & (dice >= overlap * margin))
    rivals: dict[tuple[int, int], list[float]] = defaultdict(list)
    for index in near[np.argsort(-dice[near])].tolist():
        for side, word in enumerate((both.row[index], both.col[index])):
            rivals[side, word].append(dice[index])

    def clear(index: int) -> bool:
        lists = rivals[0, both.row[index]], rivals[1, both.col[index]]
        return dice[index] >= overlap and all([*best, 0][1] < margin * dice[index] for best in lists)

    found = [index for index in near.tolist() if clear(index)]
    found.sort(key=lambda index: -both.data[index])
    names = [counter.get_feature_names_out() for counter in counters]
    return [(str(names[0][both.row[index]]), str(names[1][both.col[index]])) for index in found]


def _cased(texts: Iterable[str]) -> dict[str, str]:
    """Return the most frequent casing of each lower-cased word inside sentences."""
    counts = Counter(word for text in texts for word in _INSIDE.findall(text))
    return {word.lower(): word for word, _ in reversed(counts.most_common())}


def copies(pairs: Sequence[TextPair], count: int, generator: Generator) -> list[str]:
    """Draw distinct texts that translate to themselves: addresses, file names and code, built from corpus words."""
    known = sorted({word for pair in pairs for text in pair for word in re.findall(r"\b[a-z]{3,}\b", text)})
    found: dict[str, None] = {}
    while known and len(found) < count:
        parts = [known[index] for index in generator.integers(len(known), size=3)]
        template = _COPIED[generator.integers(len(_COPIED))]
        found[template.format(*parts, n=generator.integers(2, 1000))] = None
    return list(found)
