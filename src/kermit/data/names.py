"""Names of people and places in a parallel corpus, and their replacement by others on both sides of a pair.

A name is found by what the corpus shows: a capitalised word inside sentences that is the same in both languages. The
lists of `kermit.data.lexicon` are names in any corpus.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from numpy.random import Generator

from kermit.data import lexicon
from kermit.data.alignment import INSIDE, LETTER, WORD
from kermit.data.lexicon import choice

TextPair = tuple[str, str]
"""Texts of X and Y."""

_NAME = re.compile(rf"(?<![\w'\u2019.-])({LETTER}{{3,}})(['\u2019]s)?(?![\w'\u2019-])")
_NEIGHBOURS = re.compile(rf"({LETTER}+) (?=({LETTER}{{3,}}))")


@dataclass(frozen=True)
class Names:
    """Names by group (men, women, surnames, places, others), and the group of each."""

    groups: Mapping[str, Sequence[str]]
    group_of: Mapping[str, str]

    def replaced(self, pair: TextPair, generator: Generator) -> TextPair:
        """Replace names that occur equally often on both sides by others of their group; a genitive -s or 's stays."""
        found = [[self._name(match) for match in _NAME.finditer(text)] for text in pair]
        counts = [Counter(name for name, _ in names) for names in found]
        new: dict[str, str] = {}
        for name, count in counts[0].items():
            if name not in self.group_of or counts[1][name] != count:
                continue
            genitive = any(ending for names in found for other, ending in names if other == name)
            drawn = choice(self.groups[self._group_for(name, generator)], generator)
            if drawn not in (*counts[0], *counts[1], *new.values()) and not (genitive and drawn[-1] in "sxzß"):
                new[name] = drawn

        def replace(match: re.Match[str]) -> str:
            name, ending = self._name(match)
            return new[name] + ending if name in new else match[0]

        x, y = (_NAME.sub(replace, text) for text in pair)
        return x, y

    def _group_for(self, name: str, generator: Generator) -> str:
        """The group to replace a name from; a first name may become any name of a person."""
        group = self.group_of[name]
        return "others" if group in ("men", "women") and generator.random() < 0.2 else group

    def _name(self, match: re.Match[str]) -> tuple[str, str]:
        """The word without its genitive, and that."""
        word, ending = match[1], match[2] or ""
        if not ending and word not in self.group_of and word[-1] == "s" and word[:-1] in self.group_of:
            return word[:-1], "s"
        return word, ending


def find_names(pairs: Sequence[TextPair], least: int = 3) -> Names:
    """Find the names of a corpus: capitalised words inside sentences, identical on both sides of several pairs.

    Words that are also common in lower case or after an article are left out. The lists of `kermit.data.lexicon` are
    added.
    """
    shared: Counter[str] = Counter()
    for x, y in pairs:
        alike = set(INSIDE.findall(x)) & set(INSIDE.findall(y))
        shared.update(word for word in alike if len(word) > 2 and word[0].isupper() and word[1:].islower())
    known = {name: group for group, names in lexicon.GROUPS.items() for name in names}
    names = {
        word for word, count in shared.items() if count >= least and word not in lexicon.NOT_NAMES and word.isalpha()
    }
    lowered = {word.lower() for word in names}
    common: Counter[str] = Counter()
    seen, after_article, after_in = Counter[str](), Counter[str](), Counter[str]()
    for text in chain.from_iterable(pairs):
        common.update(word for word in WORD.findall(text) if word in lowered)
        for before, word in _NEIGHBOURS.findall(text):
            if word in names:
                seen[word] += 1
                after_article[word] += before.lower() in lexicon.ARTICLES
                after_in[word] += before in ("in", "nach")
    for name in sorted(names - set(known)):
        if common[name.lower()] <= shared[name] / 10 and after_article[name] <= seen[name] / 5:
            known[name] = "places" if after_in[name] > seen[name] / 10 else "others"
    groups = {group: [name for name, its in known.items() if its == group] for group in [*lexicon.GROUPS, "others"]}
    groups["others"] = groups["others"] + groups["surnames"]
    return Names(groups, known)
