"""The round loop: insert into the open slots of a batch of canvases until they are finished.

A round is one forward pass and the insertions it leads to. Serial decoding makes the best (or a drawn) insertion;
parallel decoding inserts at every open slot that does not say end-of-slot (the paper's section 3.2). All slots are
asked anew each round, for the canvas around them has changed. From left to right, only the slot at the end of the first
unfinished span is asked. Finished texts leave the batch.

Drawn serially at temperature 1, a text comes with the probability that `kermit.decoding.likelihood` gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kermit.canvas import Canvas
from kermit.canvas.arrays import Array, Booleans, Integers
from kermit.decoding.asking import GivenCache
from kermit.decoding.choosing import Choice, Chooser
from kermit.decoding.growing_canvases import OPEN, ROW, SEGMENT, SPAN, Growing, ranges
from kermit.decoding.limits import Room, allowed_runs, too_many
from kermit.decoding.reading import reading_of
from kermit.decoding.settings import DecodingSettings, Finish, Strategy
from kermit.decoding.trace import Trace, TracedInsertion, TracedRounds
from kermit.engines.engine import Answer, Engine
from kermit.errors import DecodingError


@dataclass(frozen=True)
class Decoded:
    """The result of decoding a canvas.

    Args:
        canvas: the final canvas.
        rounds: number of forward passes it took, including one that found nothing more to insert.
        tokens: number of inserted tokens.
        finish: why it ended.
        log_prob: the sum of the log-probabilities of all that was decided: the insertions, and at the end that nothing
            more belongs there.
        inserted: for each segment of the final canvas, whether each of its tokens was inserted.
        trace: every round's insertions, if requested.
    """

    canvas: Canvas
    rounds: int
    tokens: int
    finish: Finish
    log_prob: float
    inserted: tuple[tuple[bool, ...], ...]
    trace: Trace | None = None


OnRound = Callable[[Mapping[int, Trace]], Collection[int] | None]
"""Called after every round with the traces so far, by the number of the text; may return texts to abandon."""


class Rounds:
    """A batch of canvases being decoded. Arrays are by row, and rows are those not yet finished.

    Args:
        copies: number of rows per canvas, next to each other; they share what is read in the first round.
        drawn: (rows,) bool, the rows whose tokens are drawn, if others take the best.
        begun: the rounds that are already decided, where there is a single canvas; decoding continues after them.
    """

    def __init__(
        self,
        engine: Engine,
        settings: DecodingSettings,
        canvases: Sequence[Canvas],
        seeds: Sequence[int],
        limits: Sequence[int],
        *,
        trace: bool = False,
        on_round: OnRound | None = None,
        copies: int = 1,
        drawn: Booleans | None = None,
        begun: TracedRounds = (),
    ) -> None:
        self.settings, self.keep_traces, self.on_round = settings, trace, on_round
        self.results: dict[int, Decoded] = {}
        self.number = 0
        info = engine.info
        self.ordered = settings.strategy is Strategy.LEFT_TO_RIGHT
        self.chooser = Chooser(settings, info)
        self.reading = reading_of(engine, left_to_right=self.ordered)
        self.text = Growing(
            canvases, blank_id=info.blank_id if info.cached_context else None, blank_room=info.blank_room
        )
        self.index: Integers = np.arange(len(canvases))
        self.span: Integers = self.index  # (batch,) the one being filled from left to right, of open_spans
        self._leave_idle(canvases, copies, trace)
        self._started: Integers = self.index
        self._find_spans()
        self._first: Answer | None = None
        if copies > 1 and len(self.text):
            if begun:
                self._repeat(copies)
            else:
                self._first = self._shared_first_round(copies)
        if copies > 1:
            self.index = (self.index[:, None] * copies + np.arange(copies)).ravel()
        rows = self.index.tolist()
        self.traces = {row: Trace(canvases[row // copies], ()) for row in rows} if trace or on_round else {}
        self.seeds: Integers = np.array([seeds[row] % 2**63 for row in rows], dtype=np.int64)
        self.drawn = None if drawn is None else drawn[self.index]
        self.log_prob: Array = np.zeros(len(rows))
        self.cut: Booleans = np.zeros(len(rows), dtype=bool)  # whether a span ended for lack of room
        self.repeating: Booleans = np.zeros(len(rows), dtype=bool)  # whether a repeated token was withdrawn
        self.repeats = None if settings.max_repeats is None else allowed_runs(self.text, settings.max_repeats)
        self.room = Room.of(info, settings.constraints, self.text, [limits[row] for row in rows])
        for insertions in begun if len(self) else ():
            self._replay(insertions)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def unfinished(self) -> int:
        """Number of texts that are not finished."""
        return len(self)

    def given(self, numbers: Integers) -> GivenCache | None:
        """Return the given parts of canvases with open slots, by their numbers, as the first round read them."""
        found = self.reading.given
        return None if found is None else found.select(self._started.searchsorted(numbers))

    def round(self) -> None:
        """Run one forward pass, apply its insertions, retire finished rows."""
        text, batch = self.text, len(self)
        slots = self._asked()
        answer, self._first = self._first or self._ask(slots), None
        seeds = self.seeds if self.settings.sampling is not None else None
        choice = self.chooser.choose(
            answer, self.reading, text, slots, self.room, self.repeats, seeds, self.drawn, self.number
        )
        choice = self._grow(choice)
        came = text.planes[:, choice.slots]
        rows = came[ROW]
        self.room.spend(rows, came[SEGMENT], came[SPAN])
        self.log_prob += np.bincount(rows, choice.log_probs, batch)
        abandoned = self._trace(text, rows, choice) if self.traces else ()
        self.number += 1
        ended = np.bincount(rows, minlength=batch) == 0
        if choice.complete is not None:
            ended |= choice.complete & ~self.repeating & (self.room.owed == 0)
        self.cut |= choice.blocked & ended
        self.log_prob += np.where(ended & ~choice.blocked & ~self.repeating, choice.end_log_prob, 0)
        if self.ordered:
            self.span = self.span + ended
            ended &= self.span >= self.spans_end
        self._retire_finished(ended, abandoned)

    def _leave_idle(self, canvases: Sequence[Canvas], copies: int, trace: bool) -> None:
        """Record the results of canvases without an open slot, and drop them."""
        idle = [number for number, canvas in enumerate(canvases) if not canvas.open_slots]
        for number in idle:
            canvas, inserted = self.text.canvas(number)
            record = Trace(canvases[number], ()) if trace else None
            for copy in range(copies):
                self.results[number * copies + copy] = Decoded(canvas, 0, 0, Finish.FINISHED, 0.0, inserted, record)
        if idle:
            self.index = np.setdiff1d(self.index, idle)
            self.text.take(self.index)

    def _find_spans(self) -> None:
        """Number the spans that are filled one after the other, from left to right."""
        opened = self.text.planes[:, self.text.planes[OPEN].nonzero()[0]]
        self.open_spans: Integers = opened[SPAN]
        rows = opened[ROW]
        self.spans_end: Integers = np.bincount(rows, minlength=len(self.text)).cumsum()  # (batch,) of open_spans
        self.span = np.concatenate([np.zeros(1, dtype=np.int64), self.spans_end[:-1]])

    def _asked(self) -> Integers:
        """Return (slots,), the items whose slots are asked about: all open ones, or the end of the current span."""
        if not self.ordered:
            return np.asarray(self.text.planes[OPEN].nonzero()[0])
        return np.asarray(self.text.planes[SPAN].searchsorted(self.open_spans[self.span], side="right") - 1)

    def _ask(self, slots: Integers) -> Answer:
        return self.reading.ask(self.text, slots, top=self.chooser.top, full=self.chooser.full)

    def _shared_first_round(self, copies: int) -> Answer:
        """Ask once for all copies of a canvas, then repeat every row."""
        slots = self._asked()
        answer = self._ask(slots)
        counts = np.bincount(self.text.planes[ROW, slots], minlength=len(self.text))
        rows = np.repeat(np.arange(len(self.text)), copies)
        before = (counts.cumsum() - counts)[rows]
        counts = counts[rows]
        numbers: Integers = np.repeat(before - (counts.cumsum() - counts), counts)
        numbers = numbers + np.arange(len(numbers))
        self._repeat(copies)
        return self.reading.share(answer, rows, numbers)

    def _repeat(self, copies: int) -> None:
        """Repeat every row."""
        self.text.take(np.repeat(np.arange(len(self.text)), copies))
        self._find_spans()

    def _replay(self, insertions: Sequence[TracedInsertion]) -> None:
        """Apply a round that was decided before."""
        if self.ordered:
            self._read_up_to(insertions)
        text, batch, count = self.text, len(self), len(insertions)
        places = np.array([insertion.slot for insertion in insertions], dtype=np.int64)
        slots: Integers = (text.starts[:, None] + places).ravel()
        rows, segments, spans = text.planes[np.array([ROW, SEGMENT, SPAN])[:, None], slots]
        self.room.spend(rows, segments, spans)
        if count:
            self.text = text.grown(slots, np.tile([insertion.token_id for insertion in insertions], batch))
        self.log_prob += sum(insertion.log_prob for insertion in insertions)
        for index, before in self.traces.items():
            self.traces[index] = Trace(before.start, (*before.rounds, tuple(insertions)))
        self.number += 1
        if self.ordered and not count:
            self.span = self.span + 1
            self._retire_finished(self.span >= self.spans_end, ())

    def _read_up_to(self, insertions: Sequence[TracedInsertion]) -> None:
        """Read what comes before a decided insertion, from left to right; the answers are decided already."""
        while True:
            slots = self._asked()
            self._ask(slots)
            if not insertions or insertions[0].slot == slots[0] - self.text.starts[0]:
                return
            self.span = self.span + 1
            if (self.span >= self.spans_end).any():
                raise DecodingError(
                    f"slot {insertions[0].slot} is out of order; from left to right, tokens are inserted at the end of"
                    " a span, and spans are filled in order"
                )

    def _grow(self, choice: Choice) -> Choice:
        """Apply insertions, without those that make too long a run."""
        if not len(choice.slots):
            return choice
        grown = self.text.grown(choice.slots, choice.tokens)
        if self.repeats is not None:
            came = choice.slots + np.arange(len(choice.slots))
            gone = too_many(grown, self.repeats, came)
            if gone is not None:
                self.repeating[grown.planes[ROW, came[gone]]] = True
                left = ~gone
                slots, tokens, log_probs = choice.slots[left], choice.tokens[left], choice.log_probs[left]
                choice = replace(choice, slots=slots, tokens=tokens, log_probs=log_probs)
                grown = self.text.grown(slots, tokens)
        self.text = grown
        return choice

    def _retire_finished(self, ended: Booleans, abandoned: Collection[int]) -> None:
        last = self.settings.max_rounds is not None and self.number >= self.settings.max_rounds
        leaving = np.ones_like(ended) if last else ended
        if abandoned:
            leaving = leaving | np.isin(self.index, list(abandoned))
        if not np.count_nonzero(leaving):
            return
        for row in leaving.nonzero()[0].tolist():
            index = int(self.index[row])
            if ended[row]:
                finish = _finish(bool(self.cut[row]), bool(self.repeating[row]))
            else:
                finish = Finish.MAX_ROUNDS if last else Finish.ABANDONED
            canvas, inserted = self.text.canvas(row)
            self.results[index] = Decoded(
                canvas=canvas,
                rounds=self.number,
                tokens=int(self.room.used[row]),
                finish=finish,
                log_prob=float(self.log_prob[row]),
                inserted=inserted,
                trace=self.traces[index] if self.keep_traces else None,
            )
        self._take((~leaving).nonzero()[0])

    def _take(self, rows: Integers) -> None:
        """Keep these rows, in this order; a row may be repeated."""
        shift = rows
        if len(rows):
            spans, shift = self.text.take(rows)
            self.room.take(rows, spans)
            self.reading.select(rows)
        self.index, self.seeds, self.log_prob = self.index[rows], self.seeds[rows], self.log_prob[rows]
        self.cut, self.repeating = self.cut[rows], self.repeating[rows]
        left = self.spans_end[rows] - self.span[rows]
        self.open_spans = self.open_spans[ranges(self.span[rows], left)] + np.repeat(shift, left)
        self.spans_end = left.cumsum()
        self.span = self.spans_end - left
        self.repeats = None if self.repeats is None else self.repeats[rows]
        self.drawn = None if self.drawn is None else self.drawn[rows]

    def _trace(self, text: Growing, rows: Integers, choice: Choice) -> Collection[int]:
        """Record the round and report it to the caller; return the texts to abandon."""
        found: dict[int, list[TracedInsertion]] = {index: [] for index in self.index.tolist()}
        columns = (self.index[rows], choice.slots - text.starts[rows], choice.tokens, choice.log_probs)
        for index, slot, token_id, log_prob in zip(*(column.tolist() for column in columns), strict=True):
            found[index].append(TracedInsertion(slot, token_id, log_prob))
        for index, insertions in found.items():
            before = self.traces[index]
            self.traces[index] = Trace(before.start, (*before.rounds, tuple(insertions)))
        return (self.on_round({index: self.traces[index] for index in found}) or ()) if self.on_round else ()


def _finish(cut: bool, repeating: bool) -> Finish:
    """Return why a text ended: no slot predicted a token, or none of the predicted tokens could be inserted."""
    return Finish.MAX_TOKENS if cut else Finish.REPETITION if repeating else Finish.FINISHED
