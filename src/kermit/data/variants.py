"""Variants of text pairs that make a translation model robust: casing, slips, numbers, names, joins, words, copies.

A kind either varies one side (the target stays clean) or both sides alike. Every kind has its own generator, seeded by
(seed, kind), so that no kind depends on the rate of another. The rules know
English and German; word alignments (`dictionary`) and most kinds hold for other languages of separated words too.
Nothing here reads or writes files: see `kermit.data.augmentation`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from kermit.data import lexicon
from kermit.data.alignment import INSIDE, LETTER, WORD, dictionary
from kermit.data.lexicon import choice
from kermit.data.names import TextPair, find_names
from kermit.errors import UsageError, nearest

Alter = Callable[[TextPair, Generator], TextPair | None]
"""Makes a variant of a pair; None, or the pair itself, if there is none."""

DEFAULTS: Mapping[str, float] = {
    "lower": 0.05,
    "capitals": 0.02,
    "unpunctuated": 0.05,
    "typos": 0.1,
    "numbers": 0.03,
    "names": 0.1,
    "joined": 0.05,
    "words": 3000,
    "copies": 1000,
}
"""Every kind with its rate: a share of the input pairs; for words and copies, a number."""
ONE_SIDED = ("lower", "capitals", "typos")
COUNTED = ("words", "copies")
MAX_JOINED = 40
"""Words that each side of joined pairs stays under."""

_SLIPPABLE = re.compile(rf"(?<![\w\u0300-\u036f'\u2019-]){LETTER}{{4,}}(?![\w\u0300-\u036f])")
_NUMBER = re.compile(r"(?<!\w)[0-9]{1,18}(?!\w)")  # no digits of 10th or B2
_MINUTE = re.compile(r"(?<=\d[:.])\d\d(?= Uhr| [ap]\.?m)|(?<=\d:)\d\d")
_HOUR = re.compile(r"\d+(?=[:.]\d\d\b|:| Uhr| o'clock| [ap]\.?m\b)")
_DAY = re.compile(rf"\d+(?=\. {LETTER})|(?<=[a-z] )\d+(?=, \d{{4}})")
_FINAL = re.compile(r"(?<![.!?…\s])\s*(?!\.\.)[.!?]+\Z")


def checked(settings: Mapping[str, Any]) -> dict[str, float]:
    """Complete rates by the defaults."""
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
    """Make the variants of one kind.

    Args:
        pairs: texts of X and Y, each in one line.
        kind: one of `DEFAULTS`.
        rate: its share of the pairs, or their number, as `checked` takes it.
        seed: of all draws.

    Returns:
        Variants by name of the file they belong to: `source_x` and `source_y`, or `both`.
    """
    if kind in ONE_SIDED:
        return {f"source_{'xy'[side]}": _one_sided(pairs, kind, side, rate, seed) for side in (0, 1)}
    generator = _generator(seed, kind)
    if kind == "words":
        return {"both": words(pairs, int(rate), generator)}
    if kind == "copies":
        return {"both": [(text, text) for text in copies(int(rate), generator)]}
    alter: Alter = unpunctuated
    if kind == "numbers":
        alter = numbers
    elif kind == "names":
        alter = find_names(pairs).replaced
    elif kind == "joined":
        alter = Joining(pairs).joined
    return {"both": _drawn(pairs, rate, generator, alter)}


def _generator(seed: int, name: str) -> Generator:
    return np.random.default_rng([seed, *name.encode()])


def _drawn(pairs: Sequence[TextPair], rate: float, generator: Generator, alter: Alter) -> list[TextPair]:
    """Vary pairs in random order until the share is reached or no pair is left."""
    wanted, found = round(rate * len(pairs)), []
    for index in generator.permutation(len(pairs)).tolist() if wanted else []:
        if (pair := alter(pairs[index], generator)) is not None and pair != pairs[index]:
            found.append(pair)
            if len(found) == wanted:
                break
    return found


def _one_sided(pairs: Sequence[TextPair], kind: str, side: int, rate: float, seed: int) -> list[TextPair]:
    known = {word for pair in pairs for word in WORD.findall(pair[side].lower())} if kind == "typos" and rate else {}

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
    """Make a slip in one or two words of four letters or more; none makes a word that is known."""
    places = list(_SLIPPABLE.finditer(text))
    chosen = generator.permutation(len(places))[: 1 + (generator.random() < 0.3)]
    for place in (places[index] for index in sorted(chosen, reverse=True)):  # from the end: earlier places stay valid
        word = slip(place[0], generator)
        if word.lower() not in known:
            text = text[: place.start()] + word + text[place.end() :]
    return text


def slip(word: str, generator: Generator) -> str:
    """Swap two letters of a word, or drop, double or mistype one; the first letter stays."""
    at = int(generator.integers(1, len(word)))
    start, letter, end = word[:at], word[at], word[at + 1 :]
    match generator.integers(4):
        case 0:
            return start + end[:1] + letter + end[1:]
        case 1:
            return start + end
        case 2:
            return start + letter + word[at:]
        case _:
            key = choice(_BESIDE.get(letter.lower(), letter), generator)
            return start + (key.upper() if letter.isupper() else key) + end


def _beside() -> dict[str, str]:
    """The neighbours of every key; the rows of a keyboard are shifted by half a key."""
    places = {key: (row, 2 * at + row) for row, keys in enumerate(lexicon.KEYS) for at, key in enumerate(keys)}
    near = {(0, 2), (1, 1)}
    return lexicon.MISSED | {
        key: "".join(other for other, (r, c) in places.items() if (abs(r - row), abs(c - column)) in near)
        for key, (row, column) in places.items()
    }


_BESIDE = _beside()


def numbers(pair: TextPair, generator: Generator) -> TextPair | None:
    """Replace digit strings that occur equally often on both sides, alike on both.

    Clock times, days and years stay plausible; 0, 1 (whose noun is singular) and zeros after a separator stay.
    """
    counts = [Counter(_NUMBER.findall(text)) for text in pair]
    shared = [digits for digits, count in counts[0].items() if counts[1][digits] == count and int(digits) > 1]
    new: dict[str, str] = {}
    for digits in shared:
        limit = _limit(digits, " ".join(pair))
        for _ in range(200):
            drawn = _digits(digits, generator)
            if int(drawn) <= limit and drawn not in counts[0] and drawn not in counts[1] | Counter(new.values()):
                new[digits] = drawn
                break
    x, y = (_NUMBER.sub(lambda match: new.get(match[0], match[0]), text) for text in pair)
    return x, y


def _digits(digits: str, generator: Generator) -> str:
    """Draw a number of the same shape."""
    size = len(digits)
    if size == 4 and 1500 <= int(digits) < 2100 and generator.random() < 0.8:
        return str(generator.integers(1500, 2100))
    first = 0 if digits[0] == "0" else int(generator.integers(2 if size == 1 else 1, 10))
    return f"{first}{''.join(map(str, generator.integers(0, 10, size - 1)))}"


def _limit(digits: str, text: str) -> float:
    """The largest number that may be in the place of another in a text: of a minute, an hour or a day."""
    afternoon = re.search(r"\d [ap]\.?m\b|o'clock", text) is not None
    for pattern, limit in ((_MINUTE, 59), (_HOUR, 12 if afternoon else 23), (_DAY, 31)):
        if int(digits) <= limit and digits in pattern.findall(text):
            return limit
    return float("inf")


@dataclass(frozen=True)
class Joining:
    """Joins a pair with others of a corpus."""

    pairs: Sequence[TextPair]

    def joined(self, pair: TextPair, generator: Generator) -> TextPair | None:
        """Join a pair with one or, at times, two random ones; each must end its sentences and be another text."""
        more = generator.integers(len(self.pairs), size=1 + (generator.random() < 0.2))
        parts = [pair, *(self.pairs[index] for index in more)]
        sides = [[part[side] for part in parts] for side in (0, 1)]
        whole = all(
            len(set(texts)) == len(texts) and all(text.endswith((".", "!", "?")) for text in texts) for texts in sides
        )
        x, y = (" ".join(texts) for texts in sides)
        return (x, y) if whole and max(len(x.split()), len(y.split())) < MAX_JOINED else None


def words(pairs: Sequence[TextPair], count: int, generator: Generator) -> list[TextPair]:
    """Write the most frequent entries of the corpus' dictionary as pairs, every fourth with capitals too."""
    if not count or not pairs:
        return []
    cased = [_cased(texts) for texts in zip(*pairs, strict=True)]
    entries = [(x, y) for x, y in dictionary(pairs, generator) if x in cased[0] and y in cased[1]][:count]
    found: list[TextPair] = []
    for x, y in entries:
        plain = cased[0][x], cased[1][y]
        found.append(plain)
        capital = plain[0][0].upper() + plain[0][1:], plain[1][0].upper() + plain[1][1:]
        if capital != plain and generator.random() < 0.25:
            found.append(capital)
    return found


def _cased(texts: Iterable[str]) -> dict[str, str]:
    """The usual form of each lower-cased word inside sentences."""
    counts = Counter(word for text in texts for word in INSIDE.findall(text))
    return {word.lower(): word for word, _ in reversed(counts.most_common())}


def copies(count: int, generator: Generator) -> list[str]:
    """Draw distinct texts that translate to themselves: addresses, file names, code, identifiers."""
    found: dict[str, None] = {}
    while len(found) < count:
        template = choice(lexicon.TEMPLATES, generator)
        found[re.sub(r"<([a-z])>", lambda place: _part(place[1], generator), template)] = None
    return list(found)


def _part(letter: str, generator: Generator) -> str:
    """Draw what a `<letter>` of a template stands for."""
    match letter:
        case "n":
            return str(generator.integers(2, 255))
        case "d":
            return str(generator.integers(1, 10))
        case "i":
            return "".join(choice("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", generator) for _ in range(5))
        case "x":
            return "".join(choice("0123456789abcdef", generator) for _ in range(6))
        case _:
            return choice({"w": lexicon.TERMS, "t": lexicon.DOMAINS, "e": lexicon.SUFFIXES}[letter], generator)
