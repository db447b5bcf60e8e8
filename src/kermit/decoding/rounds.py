"""The one decoder: insert into the open slots of a batch of canvases, round by round, until they are finished.

A round is one forward pass and the insertions it leads to. Serial decoding makes the best (or a drawn) insertion;
parallel decoding inserts at every open slot that does not say end-of-slot (the paper's section 3.2). All slots are
asked anew each round, for the canvas around them has changed. From left to right, only the slot at the end of the first
unfinished span is asked. Finished texts leave the batch.

Drawn serially at temperature 1, a text comes with the probability that `kermit.likelihood` gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kermit.canvas import Canvas, Segment
from kermit.canvas_batch import NOTHING, CanvasBatch
from kermit.decoding.candidates import decode_candidates
from kermit.decoding.choosing import Choice, Chooser
from kermit.decoding.limits import Room
from kermit.decoding.repeats import allowed_runs, withdraw_repeats
from kermit.decoding.settings import MAX_TOKENS, DecodingSettings, Finish, Ranking, Strategy, is_whole
from kermit.decoding.trace import Rounds, Trace, TracedInsertion
from kermit.errors import DecodingError
from kermit.slots import InsertionModel, Termination, learned


@dataclass(frozen=True)
class Decoded:
    """What became of a canvas.

    Args:
        canvas: the final canvas.
        rounds: how many forward passes it took, the one that found nothing more to insert included.
        tokens: how many tokens were inserted.
        finish: why it ended.
        log_prob: the sum of the log-probabilities of all that was decided: the insertions, and at the end that nothing
            more belongs there.
        inserted: for each segment of the final canvas, whether each of its tokens was inserted.
        trace: every round's insertions, where asked for.
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


def decode(
    model: InsertionModel,
    canvases: Sequence[Canvas],
    settings: DecodingSettings | None = None,
    *,
    seeds: Sequence[int] | None = None,
    limits: Sequence[int] | None = None,
    begun: Sequence[Rounds] | None = None,
    trace: bool = False,
    batch_size: int = 64,
    on_progress: Callable[[int], object] | None = None,
    on_round: OnRound | None = None,
) -> list[Decoded]:
    """Insert into the open slots of canvases until they are finished.

    Args:
        model: what scores the slots; put it in evaluation mode first.
        canvases: the canvases at the start.
        settings: how to decode; parallel and greedy by default.
        seeds: one a canvas, for sampling; 0, 1, 2, ... by default.
        limits: the most tokens to insert, one number per canvas; by default what the settings say for all.
        begun: for each canvas the rounds that are already decided; decoding continues after them, as if they had just
            been made. They count among the rounds, tokens and log-probabilities of the result.
        trace: whether to record every round's insertions.
        batch_size: how many canvases to decode together; it does not change what they decode to.
        on_progress: called with the number of canvases that were just finished.
        on_round: called after every round with the traces so far, by the number of the canvas. The canvases whose
            numbers it returns are abandoned: they end there, and the others go on as if alone. Not with candidates.

    Returns:
        One result a canvas, in order.

    Raises:
        DecodingError: settings that contradict each other or the model, or a canvas too long for the model.
        CanvasError: a decided insertion that is impossible.
    """
    settings = settings or DecodingSettings()
    begun = [()] * len(canvases) if begun is None else begun
    seeds = range(len(canvases)) if seeds is None else seeds
    if len(seeds) != len(canvases):
        raise DecodingError(f"{len(seeds)} seeds for {len(canvases)} canvases; give one a canvas")
    for seed in seeds:
        if not is_whole(seed):
            raise DecodingError(f"a seed must be a whole number, not {seed!r}")
    seeds = [int(seed) for seed in seeds]
    limits = [settings.max_tokens or MAX_TOKENS] * len(canvases) if limits is None else limits
    check_strategy(model, settings)
    check_lengths(model, [Trace(*part).canvases()[-1] for part in zip(canvases, begun, strict=True)])
    if settings.candidates > 1 and on_round is not None:
        raise DecodingError("rounds cannot be told as they come where the best of several candidates is kept")

    def one_each(
        starts: Sequence[Trace], how: DecodingSettings, seeds: Sequence[int], limits: Sequence[int]
    ) -> list[Decoded]:
        canvases, begun = [start.start for start in starts], [start.rounds for start in starts]
        return decode(model, canvases, how, seeds=seeds, limits=limits, begun=begun, trace=trace, batch_size=batch_size)

    results: dict[int, Decoded] = {}
    by_length = sorted(range(len(canvases)), key=lambda index: len(canvases[index]))
    for start in range(0, len(by_length), batch_size):
        part = by_length[start : start + batch_size]
        starts = [Trace(canvases[i], begun[i]) for i in part]
        part_seeds, part_limits = [seeds[i] for i in part], [limits[i] for i in part]
        if settings.candidates > 1:
            kept = decode_candidates(model, one_each, starts, settings, part_seeds, part_limits, batch_size)
            results.update(zip(part, kept, strict=True))
            if on_progress is not None:
                on_progress(len(part))
            continue
        run = _Run(model, settings, starts, part_seeds, part_limits, trace, _renumbered(on_round, part))
        with torch.inference_mode():
            while len(run.batch):
                left = len(run.batch)
                run.round()
                if on_progress is not None and len(run.batch) < left:
                    on_progress(left - len(run.batch))
        results.update({part[index]: result for index, result in run.results.items()})
    return [results[index] for index in range(len(canvases))]


def check_strategy(model: InsertionModel, settings: DecodingSettings) -> None:
    """Check that the model can decode as the settings say.

    Raises:
        DecodingError: it was not trained for that strategy, or for that ranking.
    """
    ordered = settings.strategy is Strategy.LEFT_TO_RIGHT
    if settings.strategy is not Strategy.SERIAL and model.termination == Termination.SEQUENCE:
        raise DecodingError(
            f"{settings.strategy} decoding needs slot termination, for each slot must say when it is finished; "
            "decode this model serially, or train one with termination: slot"
        )
    if not learned(model, left_to_right=ordered):
        needed = "left_to_right among its orders" if ordered else "an order such as balanced_tree among its orders"
        other = "parallel or serial" if ordered else "left_to_right"
        raise DecodingError(
            f"{settings.strategy} decoding needs a model trained with {needed}, and this one was not; "
            f"use the strategy {other}"
        )
    if settings.ranked_by is Ranking.LEFT_TO_RIGHT and not learned(model, left_to_right=True):
        raise DecodingError(
            "ranking left_to_right needs a model trained with left_to_right among its orders, and this one was not;"
            " rank by `again`"
        )


def strategies_of(model: InsertionModel) -> list[Strategy]:
    """List the strategies that the model can decode with, the default first."""
    by_slot, in_rounds = model.termination == Termination.SLOT, learned(model, left_to_right=False)
    can = {
        Strategy.PARALLEL: by_slot and in_rounds,
        Strategy.SERIAL: in_rounds,
        Strategy.LEFT_TO_RIGHT: by_slot and learned(model, left_to_right=True),
    }
    return [strategy for strategy, possible in can.items() if possible]


def check_lengths(model: InsertionModel, canvases: Sequence[Canvas]) -> None:
    """Whether the model has positions for every canvas.

    Raises:
        DecodingError: it has not; the message gives the limit.
    """
    for number, canvas in enumerate(canvases):
        longest = max(map(len, canvas.segments))
        for length, limit in ((len(canvas), model.max_length), (longest, model.max_segment_length)):
            if limit is not None and length > limit:
                raise DecodingError(
                    f"{length} tokens, but the model has room for {limit}; shorten or split it",
                    text=number,
                    limit=limit,
                )


def _renumbered(on_round: OnRound | None, part: Sequence[int]) -> OnRound | None:
    """The caller's `on_round` for a batch of some of its canvases."""
    if on_round is None:
        return None
    place = {number: index for index, number in enumerate(part)}

    def renumbered(traces: Mapping[int, Trace]) -> list[int]:
        abandoned = on_round({part[index]: trace for index, trace in traces.items()}) or ()
        return [place[number] for number in abandoned if number in place]

    return renumbered


class _Run:
    """A batch of canvases being decoded. All tensors are by row, and rows are those not yet finished."""

    def __init__(
        self,
        model: InsertionModel,
        settings: DecodingSettings,
        starts: list[Trace],
        seeds: list[int],
        limits: list[int],
        trace: bool,
        on_round: OnRound | None,
    ) -> None:
        self.model, self.settings = model, settings
        self.results: dict[int, Decoded] = {}
        self.keep_traces, self.on_round = trace, on_round
        self.traces = starts
        self.number = 0
        canvases = [start.start for start in starts]
        self.batch = CanvasBatch.from_canvases(canvases, model.device)
        self.index = torch.arange(len(canvases))
        self.seeds = torch.tensor([seed % 2**63 for seed in seeds])
        self.log_prob = torch.zeros(len(canvases), device=model.device)
        self.blank = self.batch.open_slots.cumsum(1) * self.batch.open_slots
        self.spans = self.blank.amax(1)
        self.span = torch.ones_like(self.spans)  # left to right: the one that is being filled
        self.cut = torch.zeros_like(self.spans, dtype=torch.bool)  # whether a span ended for lack of room
        self.repeating = torch.zeros_like(self.cut)  # whether a token was withdrawn that was said too often
        self.repeats = None if settings.max_repeats is None else allowed_runs(self.batch, settings.max_repeats)
        self.room = Room.of(model, settings, self.batch, limits, self.spans)
        joined = torch.zeros(self.batch.valid.shape, dtype=torch.bool)
        for row, canvas in enumerate(canvases):
            joined[row, sorted(canvas.joined_slots)] = True
        self.joined = joined.to(model.device)
        specials = model.specials
        framing = (self.batch.token_ids == specials.cls_id) | (self.batch.token_ids == specials.sep_id)
        self.given = self.batch.valid & ~framing
        self.chooser = Chooser(settings, specials, model.device)
        self._replay([start.rounds for start in starts])

    def _replay(self, begun: Sequence[Rounds]) -> None:
        """Apply rounds that were decided before, without asking the model."""
        while self.number < max(map(len, begun)):
            grid = torch.full_like(self.batch.token_ids, NOTHING)
            for row, rounds in enumerate(begun):
                for insertion in rounds[self.number] if self.number < len(rounds) else ():
                    grid[row, insertion.slot] = insertion.token_id
                    self.log_prob[row] += insertion.log_prob
            rows, slots = (grid != NOTHING).nonzero(as_tuple=True)
            blanks = self.blank[rows, slots]
            self.room.spend(rows, self.batch.segment_ids[rows, slots], blanks)
            self.span = self.span.scatter_reduce(0, rows, blanks, "amax")
            self._insert(grid)

    def _insert(self, grid: Tensor) -> None:
        """Insert the tokens of a (batch, length) grid and end the round."""
        planes = [(self.blank, NOTHING), (self.joined, NOTHING), (self.given, False)]
        self.batch, (self.blank, self.joined, self.given) = self.batch.insert(grid, planes)
        self.number += 1

    def round(self) -> None:
        """Run one forward pass, apply its insertions, retire finished rows."""
        idle = ~self.batch.open_slots.any(1)
        if bool(idle.any()):
            self._retire(idle, [Finish.FINISHED] * int(idle.sum()))
            return
        ordered = self.settings.strategy is Strategy.LEFT_TO_RIGHT
        asked = self._span_ends() if ordered else None
        scores = self.model.score_slots(self.batch, asked=asked, left_to_right=ordered)
        rows, slots = scores.rows, scores.slots
        segments, blanks = self.batch.segment_ids[rows, slots], self.blank[rows, slots]
        glued = self.given[rows, slots - 1] & ~self.joined[rows, slots]
        seeds = self.seeds if self.settings.sampling is not None else None
        choice = self.chooser.choose(
            scores, self.batch, self.room, segments, blanks, glued, self.repeats, seeds, self.number
        )
        if self.repeats is not None:
            tokens, withdrawn = withdraw_repeats(choice.tokens, scores, self.batch, self.repeats)
            choice = replace(choice, tokens=tokens)
            self.repeating |= withdrawn
        taken = (choice.tokens != NOTHING).nonzero().flatten()
        self.room.spend(rows[taken], segments[taken], blanks[taken])
        self.log_prob.index_add_(0, rows[taken], choice.log_probs[taken])
        abandoned = self._trace(rows[taken], slots[taken], choice, taken)
        grid = torch.full_like(self.batch.token_ids, NOTHING)
        grid[rows, slots] = choice.tokens
        self._insert(grid)
        ended = (grid == NOTHING).all(1)
        self.cut |= choice.blocked & ended
        self.log_prob += torch.where(ended & ~choice.blocked & ~self.repeating, choice.end_log_prob, 0)
        if ordered:
            self.span += ended
            ended = ended & (self.span > self.spans)
        self._part_with_finished(ended, abandoned)

    def _span_ends(self) -> Tensor:
        """(batch, length) bool, the last slot of the span that is being filled."""
        inside = self.batch.open_slots & (self.blank == self.span[:, None])
        return inside & (inside.flip(1).cumsum(1).flip(1) == 1)

    def _part_with_finished(self, done: Tensor, abandoned: Collection[int]) -> None:
        last = self.settings.max_rounds is not None and self.number >= self.settings.max_rounds
        flags = zip(done.tolist(), self.cut.tolist(), self.repeating.tolist(), strict=True)
        finishes = [_finish(*row) or (Finish.MAX_ROUNDS if last else None) for row in flags]
        if abandoned:
            indices = self.index.tolist()
            finishes = [
                f or (Finish.ABANDONED if i in abandoned else None) for f, i in zip(finishes, indices, strict=True)
            ]
        leaving = torch.tensor([finish is not None for finish in finishes], device=done.device)
        if bool(leaving.any()):
            self._retire(leaving, [finish for finish in finishes if finish is not None])

    def _retire(self, leaving: Tensor, finishes: list[Finish]) -> None:
        """Note the results of finished rows and go on with the others."""
        gone = leaving.nonzero().flatten()
        batch = self.batch.select(gone).to("cpu")  # at once: from a device, each look at a tensor is a wait
        columns = (self.index[gone.cpu()], self.room.used[gone], self.log_prob[gone], self.given[gone])
        rows = zip(finishes, *(column.tolist() for column in columns), strict=True)
        for row, (finish, index, tokens, log_prob, given) in enumerate(rows):
            canvas = batch.canvas(row)
            self.results[index] = Decoded(
                canvas=canvas,
                rounds=self.number,
                tokens=tokens,
                finish=finish,
                log_prob=log_prob,
                inserted=tuple(
                    tuple(not given[slot] for slot in canvas.slots(Segment(segment))[:-1])
                    for segment in range(len(canvas.segments))
                ),
                trace=self.traces[index] if self.keep_traces else None,
            )
        left = (~leaving).nonzero().flatten()
        self.batch = self.batch.select(left)
        length = self.batch.token_ids.shape[1]
        self.blank, self.joined, self.given = (plane[left, :length] for plane in (self.blank, self.joined, self.given))
        self.room, self.log_prob = self.room.select(left), self.log_prob[left]
        self.spans, self.span = self.spans[left], self.span[left]
        self.cut, self.repeating = self.cut[left], self.repeating[left]
        self.repeats = None if self.repeats is None else self.repeats[left]
        self.index, self.seeds = self.index[left.cpu()], self.seeds[left.cpu()]

    def _trace(self, rows: Tensor, slots: Tensor, choice: Choice, taken: Tensor) -> Collection[int]:
        """Record the round where someone wants to know, and tell; returns the texts to abandon."""
        if not self.keep_traces and self.on_round is None:
            return ()
        found: dict[int, list[TracedInsertion]] = {index: [] for index in self.index.tolist()}
        columns = (self.index[rows.cpu()], slots, choice.tokens[taken], choice.log_probs[taken])
        for index, slot, token_id, log_prob in zip(*(column.tolist() for column in columns), strict=True):
            found[index].append(TracedInsertion(slot, token_id, log_prob))
        for index, insertions in found.items():
            before = self.traces[index]
            self.traces[index] = Trace(before.start, (*before.rounds, tuple(insertions)))
        return (self.on_round({index: self.traces[index] for index in found}) or ()) if self.on_round else ()


def _finish(done: bool, cut: bool, repeating: bool) -> Finish | None:
    """Why a text ended that wants no more tokens, or got none that it wanted."""
    if not done:
        return None
    return Finish.MAX_TOKENS if cut else Finish.REPETITION if repeating else Finish.FINISHED
