"""Split texts into rows to decode, and combine the results of the rows into results of texts.

A long text is translated sentence by sentence: each sentence is a row, and the translations keep the layout of the
text. A row in capitals is read in sentence case, and its translation is written in capitals. The Python interface, the
command line and the service share this plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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

    @classmethod
    def of(cls, index: int, sentence: int, seed: int, text: str, recase: Recase | None) -> PlannedRow:
        """Plan to translate a text, in sentence case if it is in capitals and `recase` agrees."""
        recased = recase is not None and in_capitals(text) and recase(text)
        return cls(index, sentence, seed, sentence_case(text) if recased else text, recased)

    def written(self, result: Generation) -> Generation:
        """Return the result with both sides in capitals if the text was."""
        return replace(result, x=result.x.upper(), y=(result.y or "").upper()) if self.recased else result


@dataclass(frozen=True)
class Plan:
    """The rows of texts, in order.

    Args:
        texts: the texts to translate; None if the plan is not for a translation.
        splits: their sentences; None if they are translated whole.
    """

    rows: tuple[PlannedRow, ...]
    texts: tuple[str, ...] | None = None
    splits: tuple[SplitText, ...] | None = None

    @classmethod
    def of_size(cls, seeds: Sequence[int]) -> Plan:
        """Plan one row per seed."""
        return cls(tuple(PlannedRow(index, 0, seed) for index, seed in enumerate(seeds)))

    @classmethod
    def whole(cls, texts: Sequence[str], seeds: Sequence[int], recase: Recase | None = None) -> Plan:
        """Plan to translate each text whole."""
        numbered = enumerate(zip(texts, seeds, strict=True))
        rows = (PlannedRow.of(index, 0, seed, text, recase) for index, (text, seed) in numbered)
        return cls(tuple(rows), tuple(texts))

    @classmethod
    def split(cls, texts: Sequence[str], seeds: Sequence[int], language: str, recase: Recase | None = None) -> Plan:
        """Plan to translate texts sentence by sentence; an empty text is one row.

        Args:
            seeds: one per text; the seeds of its sentences follow in steps of `SENTENCE_SEED_STEP`.
            language: the code of the texts' language, for the rules of splitting.
        """
        splits = tuple(split_text(text, language) for text in texts)
        rows = [
            PlannedRow.of(index, number, seed + number * SENTENCE_SEED_STEP, sentence, recase)
            for index, (split, seed) in enumerate(zip(splits, seeds, strict=True))
            for number, sentence in enumerate(split.sentences or ("",))
        ]
        return cls(tuple(rows), tuple(texts), splits)

    def fold(self, results: Sequence[Generation], target: Segment) -> list[Generation]:
        """Combine the results of the rows into results of the texts; `target` is the side that was translated into."""
        if self.texts is None:
            return list(results)
        written = (row.written(result) for row, result in zip(self.rows, results, strict=True))
        left, folded = iter(written), []
        for index, text in enumerate(self.texts):
            split = None if self.splits is None else self.splits[index]
            parts = [next(left) for _ in range(max(1, len(split.sentences)) if split else 1)]
            whole = parts[0] if split is None or len(parts) == 1 else _together(split, parts, target)
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
