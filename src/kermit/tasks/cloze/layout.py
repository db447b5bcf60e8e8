"""Token ids around the gap, for all systems; a passage that is too long is cut to fit the model.

The paper's layout is ``[CLS] passage(1/2) [SEP] passage(2/2) question cloze(left) cloze(right) [SEP]``; a left-to-right
model gets ``passage question cloze(left)`` and then the rest. The question and the sentence are never cut. If a passage
does not fit, whole sentences around the one that shares the most words with the question are kept, regardless of where
the answer is.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from kermit.tasks.cloze.instances import ClozeInstance
from kermit.tasks.cloze.squad_metrics import normalise

_SENTENCE = re.compile(r"\S.*?(?:[.!?][\"'\u201d\u2019)\]]*(?=\s)|\Z)", re.DOTALL)
_SPACE = re.compile(r"\s+")
_ANCHORS = ("a", "(", "0")  # a letter, a bracket and a digit: few texts merge with all three

Encode = Callable[[str], list[int]]


class TextEncoder:
    """Encodes texts that begin a segment, and texts that follow other text.

    SentencePiece tokenizers prefix every text with a space marker, so a full stop after the gap would gain a token that
    the sentence does not have. Other tokenizers encode a text the same way everywhere.
    """

    def __init__(self, beginning: Encode) -> None:
        self.beginning = beginning
        self._marks = self._after_anchor(".") not in (None, beginning("."))

    def following(self, text: str) -> list[int]:
        """Encode a text that follows other text."""
        found = self._after_anchor(text) if self._marks else None
        return self.beginning(text) if found is None else found

    def _after_anchor(self, text: str) -> list[int] | None:
        """Encode a text after an anchor that keeps its own ids; None if it merges with all of them."""
        for anchor in _ANCHORS:
            kept, both = self.beginning(anchor), self.beginning(anchor + text)
            if both[: len(kept)] == kept:
                return both[len(kept) :]
        return None


@dataclass(frozen=True)
class ClozeLayout:
    """An instance as token ids, without special tokens.

    Args:
        first: the passage's first half; empty if the passage is not split.
        before: the rest of the passage, the question and cloze(left).
        joined: whether no white space separates the text on the left and the gap.
        gap_length: number of tokens of the gap, the oracle length.
        passage: the whole passage, for the spelling of answers.
    """

    id: str
    first: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    joined: bool
    gap_length: int
    cut: bool = False
    passage: str = ""

    def __len__(self) -> int:
        return len(self.first) + len(self.before) + len(self.after)


def lay_out_cloze(
    instance: ClozeInstance, encoder: TextEncoder, fits: Callable[[ClozeLayout], bool], *, split: bool
) -> ClozeLayout | None:
    """Encode an instance; cut its passage until `fits`, or return None if it does not fit even without the passage.

    With `split`, half of the passage goes into `first` and half into `before`.
    """
    after = tuple(encoder.following(instance.right))
    gap_length = max(1, len(encoder.following(instance.gap if instance.joined else f" {instance.gap}")))

    def with_passage(passage: str, cut: bool) -> ClozeLayout:
        first, second = halves(passage) if split else ("", passage)
        before = " ".join(text for text in (second, instance.question, instance.left) if text)
        return ClozeLayout(
            id=instance.id,
            first=tuple(encoder.beginning(first)),
            before=tuple(encoder.beginning(before)),
            after=after,
            joined=instance.joined,
            gap_length=gap_length,
            cut=cut,
            passage=instance.passage,
        )

    whole = with_passage(instance.passage, cut=False)
    if fits(whole):
        return whole
    window = passage_window(instance.passage, instance.question, lambda text: fits(with_passage(text, cut=True)))
    return None if window is None else with_passage(window, cut=True)


def halves(text: str) -> tuple[str, str]:
    """Split a text at the white space nearest to its middle."""
    middle = len(text) / 2
    at = min((space.start() for space in _SPACE.finditer(text)), key=lambda at: abs(at - middle), default=len(text))
    return text[:at], text[at:].strip()


def passage_window(passage: str, question: str, fits: Callable[[str], bool]) -> str | None:
    """Return the part of a passage to keep: sentences around the one that shares the most words with the question.

    If that sentence does not fit, return its beginning; if not even the empty text fits, return None.
    """
    if not fits(""):
        return None
    sentences = [match.span() for match in _SENTENCE.finditer(passage)] or [(0, 0)]
    asked = set(normalise(question).split())
    shared = [len(asked & set(normalise(passage[start:end]).split())) for start, end in sentences]
    low = shared.index(max(shared))
    high = low + 1
    start, end = sentences[low]
    if not fits(passage[start:end]):
        return _beginning(passage[start:end], fits)
    grown = True
    while grown:
        grown = False
        if high < len(sentences) and fits(passage[start : sentences[high][1]]):
            end, high, grown = sentences[high][1], high + 1, True
        if low > 0 and fits(passage[sentences[low - 1][0] : end]):
            start, low, grown = sentences[low - 1][0], low - 1, True
    return passage[start:end]


def _beginning(sentence: str, fits: Callable[[str], bool]) -> str:
    """Return as many of a sentence's first words as fit."""
    ends = [0, *(match.start() for match in _SPACE.finditer(sentence)), len(sentence)]
    return sentence[: ends[bisect_left(range(1, len(ends)), True, key=lambda n: not fits(sentence[: ends[n]]))]]
