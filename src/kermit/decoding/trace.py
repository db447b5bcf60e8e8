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
        token_id: the token.
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
    """A token of the final canvas, and the round that inserted it.

    Args:
        token_id: the token.
        segment: 0 for X, 1 for Y.
        round: the round that inserted it, from 1; 0 for what was given.
        log_prob: of its insertion; None for what was given.
    """

    token_id: int
    segment: int
    round: int
    log_prob: float | None


@dataclass(frozen=True)
class Trace:
    """A decode, round by round.

    Args:
        start: the canvas at the start.
        rounds: the insertions of each round, left to right; the last round, which only finds the text finished, may be
            empty.
    """

    start: Canvas
    rounds: TracedRounds

    def canvases(self) -> list[Canvas]:
        """The canvas before the first round and after each."""
        canvases = [self.start]
        for insertions in self.rounds:
            moves = [Insertion(insertion.slot, insertion.token_id) for insertion in insertions]
            canvases.append(canvases[-1].insert(moves))
        return canvases

    def tokens(self) -> list[TracedToken]:
        """The tokens of the final canvas, [CLS] and [SEP] included, each with its round."""
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
        """The record as plain JSON values.

        Args:
            text: returns the text of a token, to add next to its id, and for those at the start as ``start_text``.
        """
        start: dict[str, object] = {"start": [list(segment) for segment in self.start.segments]}
        if text is not None:
            start["start_text"] = [[text(token_id) for token_id in segment] for segment in self.start.segments]
        return start | {
            "rounds": [[insertion.to_json(text) for insertion in insertions] for insertions in self.rounds],
        }
