"""The record of a decode: every round's insertions with their log-probabilities.

The terminal, the page, the plot and the JSON all render this one record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kermit.canvas import Canvas, Insertion


@dataclass(frozen=True, slots=True)
class TracedInsertion:
    """One insertion and how sure the model was of it.

    Args:
        slot: the slot, in the canvas at the start of the round.
        log_prob: log p(c given l) in parallel decoding, log p(c, l) in serial decoding.
    """

    slot: int
    token_id: int
    log_prob: float

    def to_json(self, text: Callable[[int], str] | None = None) -> dict[str, object]:
        """Return the insertion as plain JSON values, with its token's text if one is known."""
        named = {} if text is None else {"text": text(self.token_id)}
        return {"slot": self.slot, "token_id": self.token_id, **named, "log_prob": round(self.log_prob, 4)}


TracedRounds = tuple[tuple[TracedInsertion, ...], ...]
"""The insertions of each round, left to right."""


@dataclass(frozen=True, slots=True)
class TracedToken:
    """A token of the final canvas; given tokens have round 0 and no log-probability, others a round from 1."""

    token_id: int
    segment: int
    round: int
    log_prob: float | None


@dataclass(frozen=True)
class Trace:
    """A decode: the canvas at the start, and the insertions of each round, left to right; the last may have none."""

    start: Canvas
    rounds: TracedRounds

    def canvases(self) -> list[Canvas]:
        """Return the canvas before the first round and after each round."""
        canvases = [self.start]
        for insertions in self.rounds:
            moves = [Insertion(insertion.slot, insertion.token_id) for insertion in insertions]
            canvases.append(canvases[-1].insert(moves))
        return canvases

    def tokens(self) -> list[TracedToken]:
        """Return the tokens of the final canvas, [CLS] and [SEP] included, each with its round."""
        row = [
            TracedToken(token_id, segment, 0, None)
            for token_id, segment in zip(self.start.token_ids, self.start.segment_ids, strict=True)
        ]
        for number, insertions in enumerate(self.rounds, start=1):
            new = {insertion.slot: insertion for insertion in insertions}
            grown: list[TracedToken] = []
            for slot, token in enumerate(row):
                if slot in new:
                    came = new[slot]
                    grown.append(TracedToken(came.token_id, token.segment, number, came.log_prob))
                grown.append(token)
            row = grown
        return row

    def to_json(self, text: Callable[[int], str] | None = None) -> dict[str, object]:
        """Return the record as JSON values; `text`, if given, adds the text of each token."""
        start: dict[str, object] = {"start": [list(segment) for segment in self.start.segments]}
        if text is not None:
            start["start_text"] = [[text(token_id) for token_id in segment] for segment in self.start.segments]
        return start | {"rounds": [[insertion.to_json(text) for insertion in insertions] for insertions in self.rounds]}
