"""Text in capitals: read it in sentence case, and write its translation in capitals.

A vocabulary of ordinary text splits capitals into single letters, which a model reads badly. Knows no model and no
tokenizer.
"""

from __future__ import annotations


def in_capitals(text: str) -> bool:
    """Return whether a text has at least two letters and all of them are capitals; ``ß`` counts as either."""
    return sum(map(str.isupper, text)) > 1 and not any(letter.islower() and letter != "ß" for letter in text)


def sentence_case(text: str) -> str:
    """Return a text in lower case, except for its first letter."""
    first = next((index for index, letter in enumerate(text) if letter.isalpha()), 0)
    return text[: first + 1] + text[first + 1 :].lower()
