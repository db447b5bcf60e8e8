"""Split long texts into sentences and the gaps between them, to translate each sentence and keep the layout.

Line breaks always separate sentences; within a line, the language's rules of `sentencex` apply (abbreviations,
quotations, dates). This module knows no model and no tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sentencex

_LINE_BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
_NO_LANGUAGE = "en"


@dataclass(frozen=True)
class SplitText:
    """Sentences without their outer white space, and the white space between them.

    Args:
        sentences: none of them blank.
        gaps: the white space before, between and after the sentences: one more than the number of sentences.
    """

    sentences: tuple[str, ...]
    gaps: tuple[str, ...]

    def join(self, sentences: Sequence[str]) -> str:
        """Join as many other sentences in the same layout."""
        return self.gaps[0] + "".join(sentence + gap for sentence, gap in zip(sentences, self.gaps[1:], strict=True))


def split_text(text: str, language: str) -> SplitText:
    """Split a text into sentences by the rules of a language (ISO 639 code; English if unknown).

    `join` of the same sentences restores the text.
    """
    sentences: list[str] = []
    gaps = [""]
    for part in _parts(text, language):
        bare = part.strip()
        if not bare:
            gaps[-1] += part
            continue
        start = part.index(bare)
        gaps[-1] += part[:start]
        sentences.append(bare)
        gaps.append(part[start + len(bare) :])
    return SplitText(tuple(sentences), tuple(gaps))


def _parts(text: str, language: str) -> Iterator[str]:
    """Yield parts of one sentence each, and the line breaks between lines."""
    code = language if re.fullmatch(r"[a-z]{2,3}", language) else _NO_LANGUAGE
    start = 0
    for found in _LINE_BREAKS.finditer(text):
        yield from _sentences(text[start : found.start()], code)
        yield found[0]
        start = found.end()
    yield from _sentences(text[start:], code)


def _sentences(line: str, code: str) -> list[str]:
    parts: list[str] = sentencex.segment(code, line)
    return parts if "".join(parts) == line else [line]
