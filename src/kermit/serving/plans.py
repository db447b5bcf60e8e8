"""How the texts of a request become rows to decode, and how the results of rows become results of texts again.

A long text is translated sentence by sentence: each sentence is a row, and their translations take the layout of the
text. Every other request has one row per text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kermit.canvas import Segment
from kermit.decoding import Finish
from kermit.serving.answers import Generated, GeneratedTexts
from kermit.text.splitting import SplitText, split_text

_SEED_STEP = 1_000_003  # between the seeds of a text's sentences; those of the texts follow one another


@dataclass(frozen=True)
class PlannedRow:
    """One text, or one sentence of it, to decode.

    Args:
        index: the number of the text in the request.
        sentence: the number of the sentence in the text.
        seed: of its draws.
        text: what is translated; empty where the request is not a translation.
        place: where it is in the request, for error messages.
    """

    index: int
    sentence: int
    seed: int
    text: str = ""
    place: str = ""


@dataclass(frozen=True)
class Plan:
    """The rows of a request, text by text.

    Args:
        rows: the rows.
        texts: the texts to translate; None where the request is not a translation.
        splits: their sentences; None where they are translated whole.
        target: the side that is translated into.
    """

    rows: tuple[PlannedRow, ...]
    texts: tuple[str, ...] | None = None
    splits: tuple[SplitText, ...] | None = None
    target: Segment = Segment.Y

    @classmethod
    def of_size(cls, size: int, seed: int) -> Plan:
        """Plan one row per text."""
        return cls(tuple(PlannedRow(index, 0, seed + index) for index in range(size)))

    @classmethod
    def whole(cls, texts: Sequence[str], seed: int, target: Segment) -> Plan:
        """Plan to translate texts as they are."""
        rows = (PlannedRow(index, 0, seed + index, text, f"texts.{index}") for index, text in enumerate(texts))
        return cls(tuple(rows), tuple(texts), None, target)

    @classmethod
    def split(cls, texts: Sequence[str], seed: int, target: Segment, language: str) -> Plan:
        """Plan to translate texts sentence by sentence; a blank text is one row."""
        splits = tuple(split_text(text, language) for text in texts)
        rows = [
            PlannedRow(index, number, seed + index + number * _SEED_STEP, sentence, _place(index, number, split))
            for index, split in enumerate(splits)
            for number, sentence in enumerate(split.sentences or ("",))
        ]
        return cls(tuple(rows), tuple(texts), splits, target)

    def fold(self, results: Sequence[Generated]) -> GeneratedTexts:
        """Return the results of the texts, given those of the rows."""
        if self.texts is None:
            return GeneratedTexts(results=list(results))
        left = iter(results)
        folded = []
        for index, text in enumerate(self.texts):
            split = None if self.splits is None else self.splits[index]
            count = 1 if split is None else max(1, len(split.sentences))
            parts = [next(left) for _ in range(count)]
            whole = parts[0] if split is None or count == 1 else self._together(split, parts)
            folded.append(whole.model_copy(update={"y" if self.target is Segment.X else "x": text}))
        return GeneratedTexts(results=folded)

    def _together(self, split: SplitText, parts: Sequence[Generated]) -> Generated:
        written = [(part.y if self.target is Segment.Y else part.x) or "" for part in parts]
        text = split.join(written).strip()
        ended = [part.finish for part in parts if part.finish is not Finish.FINISHED]
        return Generated(
            x=text if self.target is Segment.X else None,
            y=text if self.target is Segment.Y else None,
            rounds=max(part.rounds for part in parts),
            tokens=sum(part.tokens for part in parts),
            finish=ended[0] if ended else Finish.FINISHED,
            log_prob=sum(part.log_prob for part in parts),
            sentences=list(parts),
        )


def _place(index: int, number: int, split: SplitText) -> str:
    return f"texts.{index}" if len(split.sentences) < 2 else f"texts.{index}, sentence {number + 1}"
