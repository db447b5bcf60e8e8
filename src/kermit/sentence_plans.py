"""Split texts into rows to decode, and combine the results of the rows into results of texts.

A long text is translated sentence by sentence: each sentence is a row, and the translations keep the layout of the
text. A row in capitals is read in sentence case, and its translation is written in capitals. The Python interface, the
command line and the service share this plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from kermit.canvas import Segment
from kermit.decoding import Finish
from kermit.results import Generation
from kermit.text.casing import in_capitals, sentence_case
from kermit.text.splitting import SplitText, split_text

Recase = Callable[[str], bool]
"""Decides whether a text in capitals is read in sentence case."""

SENTENCE_SEED_STEP = 1_000_003
"""The difference between the seeds of consecutive sentences of a text."""


@dataclass(frozen=True)
class PlannedRow:
    """One text, or one sentence of it, to decode.

    Args:
        text: the text to translate; empty if the plan is not for a translation.
        recased: whether the text was in capitals, so that its translation is written in capitals.
    """

    index: int
    sentence: int
    seed: int
    text: str = ""
    recased: bool = False

    def written(self, result: Generation) -> Generation:
        """Return the result with both sides in capitals if the text was."""
        return replace(result, x=result.x.upper(), y=(result.y or "").upper()) if self.recased else result


@dataclass(frozen=True)
class Plan:
    """The rows of texts, in order.

    Args:
        texts: the texts to translate; None if the plan is not for a translation.
        splits: the sentences of each text to translate; a text that is translated whole is one of them.
    """

    rows: tuple[PlannedRow, ...]
    texts: tuple[str, ...] | None = None
    splits: tuple[SplitText, ...] = ()

    @classmethod
    def of_size(cls, seeds: Sequence[int]) -> Plan:
        """Plan one row per seed."""
        return cls(tuple(PlannedRow(index, 0, seed) for index, seed in enumerate(seeds)))

    @classmethod
    def of(cls, texts: Sequence[str], seeds: Sequence[int], language: str | None, recase: Recase | None) -> Plan:
        """Plan to translate texts; an empty text is one row.

        Args:
            seeds: one per text; the seeds of its sentences follow in steps of `SENTENCE_SEED_STEP`.
            language: the code of the texts' language, for the rules of splitting; None to translate texts whole.
            recase: decides whether a row in capitals is read in sentence case; None if no row is.
        """
        splits = [SplitText((text,), ("", "")) if language is None else split_text(text, language) for text in texts]
        rows = []
        for index, (split, seed) in enumerate(zip(splits, seeds, strict=True)):
            for number, text in enumerate(split.sentences or ("",)):
                recased = recase is not None and in_capitals(text) and recase(text)
                read = sentence_case(text) if recased else text
                rows.append(PlannedRow(index, number, seed + number * SENTENCE_SEED_STEP, read, recased))
        return cls(tuple(rows), tuple(texts), tuple(splits))

    def fold(self, results: Sequence[Generation], target: Segment) -> list[Generation]:
        """Combine the results of the rows into results of the texts; `target` is the side that was translated into."""
        if self.texts is None:
            return list(results)
        written, folded = (row.written(result) for row, result in zip(self.rows, results, strict=True)), []
        for text, split in zip(self.texts, self.splits, strict=True):
            parts = list(islice(written, len(split.sentences) or 1))
            whole = parts[0] if len(parts) == 1 else _together(split, parts, target)
            folded.append(replace(whole, x=text) if target is Segment.Y else replace(whole, y=text))
        return folded

    def by_texts(self, on_progress: Callable[[int], object] | None) -> Callable[[int], object] | None:
        """Return a callback that takes numbers of finished rows and reports numbers of finished texts."""
        if on_progress is None or self.texts is None or len(self.rows) == len(self.texts):
            return on_progress
        done, texts, rows = 0, len(self.texts), len(self.rows)

        def report(count: int) -> None:
            nonlocal done
            before, done = done, done + count
            on_progress(done * texts // rows - before * texts // rows)

        return report


def _together(split: SplitText, parts: Sequence[Generation], target: Segment) -> Generation:
    """Join the translations of a text's sentences."""
    text = split.join([(part.y if target is Segment.Y else part.x) or "" for part in parts]).strip()
    cut = [part.finish for part in parts if part.finish is not Finish.FINISHED]
    return Generation(
        x=text,
        y=text,
        rounds=max(part.rounds for part in parts),
        tokens=sum(part.tokens for part in parts),
        finish=cut[0] if cut else Finish.FINISHED,
        log_prob=sum(part.log_prob for part in parts),
        sentences=tuple(parts),
    )
