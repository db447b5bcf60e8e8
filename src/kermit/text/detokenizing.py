"""Convert between strings and canvases: keep given words whole, and put inserted tokens into the text as words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from kermit.canvas import BlankedText
from kermit.canvas.arrays import Booleans, Integers
from kermit.text.tokenizer import AnyTokenizer, decode_ids, digit_tokens, encode_texts, word_continuations


class Detokenizer:
    """Converts between text and a model's tokens."""

    def __init__(self, tokenizer: AnyTokenizer, vocab_size: int) -> None:
        self.tokenizer, self.vocab_size = tokenizer, vocab_size

    @cached_property
    def continues(self) -> Booleans:
        """(vocab,) bool, the tokens that continue the word on their left."""
        found = np.zeros(self.vocab_size, dtype=bool)
        known = word_continuations(self.tokenizer)[: self.vocab_size]
        found[: len(known)] = known
        return found

    @cached_property
    def digit_of(self) -> Integers | None:
        """(vocab,) the digit that a token writes, -1 for other tokens; None if numbers are not split into digits."""
        digits = digit_tokens(self.tokenizer)
        if digits is None:
            return None
        found = np.full(self.vocab_size, -1)
        found[list(digits)] = list(digits.values())
        return found

    def encode(self, text: str) -> list[int]:
        """Return the content tokens of a text."""
        return encode_texts(self.tokenizer, [text])[0]

    def text(self, token_ids: Sequence[int]) -> str:
        """Return the text of content tokens."""
        return decode_ids(self.tokenizer, list(token_ids))

    def piece(self, token_id: int) -> str:
        """Return a token as it reads inside a text, with a leading space if it begins a word.

        Byte-level tokens include that space; WordPiece and Metaspace tokens lose it when decoded alone.
        """
        return self._run([token_id], apart=True)

    def fill(self, text: str, tokens: Sequence[int], inserted: Sequence[bool]) -> str:
        """Put the inserted ones of a finished canvas's content tokens into the blanks of a text."""
        blanked = BlankedText.parse(text)
        runs, seen, pieces = _inserted_runs(tokens, inserted), 0, []
        for fragment in blanked.fragments[:-1]:
            seen += len(self.encode(fragment))
            pieces.append(self._run(runs.pop(seen, []), apart=fragment[-1:].isalnum()))
        return blanked.fill(pieces)

    def _run(self, token_ids: Sequence[int], *, apart: bool) -> str:
        """Return tokens as they read inside a text; `apart` puts a space before an initial word that has none."""
        text = self.text(token_ids)
        if text and self.continues[token_ids[0]]:
            return text.removeprefix("##")
        return f" {text}" if apart and text[:1].isalnum() else text


def _inserted_runs(tokens: Sequence[int], inserted: Sequence[bool]) -> dict[int, list[int]]:
    """Group the inserted tokens by the number of given tokens before them."""
    runs: dict[int, list[int]] = {}
    seen = 0
    for token_id, new in zip(tokens, inserted, strict=True):
        if new:
            runs.setdefault(seen, []).append(token_id)
        else:
            seen += 1
    return runs
