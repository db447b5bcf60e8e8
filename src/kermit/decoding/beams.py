"""Beam search from left to right: continue the best few texts of each canvas together, and keep the best complete one.

After every step, a canvas keeps as many unfinished texts as it has beams: those with the highest log-probability among
all continuations. A complete text is ranked by its log-probability per decision. The search of a canvas ends when it
has as many complete texts as beams.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from kermit.canvas.arrays import Array, Booleans, Integers
from kermit.decoding.growing_canvases import ROW, SEGMENT, SPAN
from kermit.decoding.rounds import Decoded, Rounds
from kermit.decoding.settings import Finish
from kermit.decoding.trace import Trace, TracedInsertion


class Beams(Rounds):
    """A batch of canvases with several unfinished texts each; `index` holds the canvas of every row, ascending."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.score: Array = self.log_prob.copy()  # with the termination penalty taken off
        self.complete: dict[int, list[tuple[float, Decoded]]] = {index: [] for index in self.index.tolist()}
        self.paths = [self.traces.get(index) for index in self.index.tolist()]

    @property
    def unfinished(self) -> int:
        """Number of canvases without a result."""
        return len(np.unique(self.index))

    def round(self) -> None:
        """Run one forward pass, and keep the best continuations of every canvas."""
        slots = self._asked()
        answer = self._ask(slots)
        ranked = self.chooser.rank(answer, self.reading, self.text, slots, self.room, self.repeats)
        scores = self.score[:, None] + ranked.scores
        ending = ranked.tokens == self.chooser.end
        last = self.span + 1 >= self.spans_end
        rows, columns = _best(scores, self.index, ending & last[:, None], self.settings.beams)
        tokens, log_probs = ranked.tokens[rows, columns], ranked.log_probs[rows, columns]
        score, ended, blocked = scores[rows, columns], ending[rows, columns], ranked.blocked[rows]
        self._take(rows)
        self.score, self.log_prob = score, self.log_prob + np.where(blocked & ended, 0, log_probs)
        self.cut |= blocked & ended
        self._continue(tokens, log_probs, ended)
        self.number += 1
        self.span = self.span + ended
        self._retire(self.span >= self.spans_end)

    def _take(self, rows: Integers) -> None:
        """Keep these rows, in this order; a row may be repeated."""
        if len(rows) == len(self) and (rows == np.arange(len(rows))).all():
            return
        super()._take(rows)
        self.score, self.paths = self.score[rows], [self.paths[row] for row in rows.tolist()]

    def _continue(self, tokens: Integers, log_probs: Array, ended: Booleans) -> None:
        """Insert the tokens of the rows whose span did not end."""
        text, slots = self.text, self._asked()
        if self.keep_traces:
            self._trace_beams(slots - text.starts, tokens, log_probs, ended)
        slots = slots[~ended]
        if len(slots):
            rows, segments, spans = text.planes[np.array([ROW, SEGMENT, SPAN])[:, None], slots]
            self.room.spend(rows, segments, spans)
            self.text = text.grown(slots, tokens[~ended])

    def _trace_beams(self, slots: Integers, tokens: Integers, log_probs: Array, ended: Booleans) -> None:
        columns = (column.tolist() for column in (slots, tokens, log_probs, ended))
        for row, (slot, token_id, log_prob, is_end) in enumerate(zip(*columns, strict=True)):
            before = self.paths[row]
            assert before is not None
            came = () if is_end else (TracedInsertion(slot, token_id, log_prob),)
            self.paths[row] = Trace(before.start, (*before.rounds, came))

    def _retire(self, finished: Booleans) -> None:
        """Collect complete texts, and finish the canvases that have enough of them."""
        last = self.settings.max_rounds is not None and self.number >= self.settings.max_rounds
        for row in np.flatnonzero(finished | last).tolist():
            self._collect(row, finished=bool(finished[row]))
        enough = {number for number, found in self.complete.items() if len(found) >= self.settings.beams}
        live = ~(finished | last) & ~np.isin(self.index, list(enough))
        for number in set(self.complete) - set(self.index[live].tolist()):
            _, best = max(self.complete.pop(number), key=lambda ranked: ranked[0])
            self.results[number] = replace(best, rounds=self.number)
        self._take(np.flatnonzero(live))

    def _collect(self, row: int, *, finished: bool) -> None:
        """Add a row to the complete texts of its canvas; a text that did not finish comes after all that did."""
        tokens = int(self.room.used[row])
        rank = float(self.score[row]) / (tokens + 1) if finished else -math.inf
        canvas, inserted = self.text.canvas(row)
        finish = Finish.MAX_ROUNDS if not finished else Finish.MAX_TOKENS if self.cut[row] else Finish.FINISHED
        found = Decoded(canvas, self.number, tokens, finish, float(self.log_prob[row]), inserted, self.paths[row])
        self.complete[int(self.index[row])].append((rank, found))


def _best(scores: Array, index: Integers, completes: Booleans, beams: int) -> tuple[Integers, Integers]:
    """Return the rows and columns of the best continuations of each canvas, in order of canvas and score.

    Among the `beams` best, those that complete a text are kept, and the `beams` best of the others.

    Args:
        scores: (rows, columns).
        index: (rows,) the canvas of each row, ascending.
        completes: (rows, columns) bool, the continuations that complete a text.
        beams: number of texts to keep.
    """
    width = min(2 * beams, scores.shape[1])
    columns = np.argpartition(-scores, width - 1, axis=1)[:, :width]
    rows = np.repeat(np.arange(len(scores)), width)
    flat = columns.ravel()
    score, complete, group = scores[rows, flat], completes[rows, flat], index[rows]
    order = np.lexsort((flat, rows, -score, group))
    order = order[score[order] > -np.inf]
    group, complete = group[order], complete[order]
    rank = np.arange(len(order)) - np.searchsorted(group, group)
    before: Integers = np.cumsum(~complete) - ~complete  # of the others
    rank_of_others: Integers = before - before[np.searchsorted(group, group)]
    kept = order[np.where(complete, rank < beams, rank_of_others < beams)]
    return rows[kept], flat[kept]
