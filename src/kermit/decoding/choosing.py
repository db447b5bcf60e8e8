"""Choose what to insert: at every slot (parallel) or at one slot of each text (serial); the best token, or a draw.

A chooser asks an engine only for what it needs: the best token of each slot, the few best if some may be barred, the k
best to draw from, and the whole vocabulary only to draw from all of it or if everything returned is barred.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from kermit.canvas.arrays import Array, Booleans, Integers
from kermit.decoding.growing_canvases import INSERTED, JOINED, ROW, SEGMENT, SPAN, TOKEN, Growing
from kermit.decoding.limits import Room, best_of_group, full_runs
from kermit.decoding.numbers import NO_DIGIT, next_digits
from kermit.decoding.reading import Reading
from kermit.decoding.sampling import draw, uniform
from kermit.decoding.settings import EARLY_FINISH, DecodingSettings, Sampling, Strategy
from kermit.decoding.slot_options import Options
from kermit.decoding.strategies import with_strategy
from kermit.engines.engine import Answer, ModelInfo
from kermit.errors import DecodingError

_IMPOSSIBLE = np.float32(-100)
"""The log-probability of an end that the model rules out, where nothing else is allowed."""

_SPARE = 8
"""Number of best tokens to ask for if constraints may forbid some of them."""


@dataclass(frozen=True)
class Choice:
    """The insertions of a round.

    Args:
        slots: (insertions,) items, ascending; a token is inserted left of each.
        tokens: (insertions,).
        log_probs: (insertions,) of the token: log p(c given l) in parallel, log p(c, l) in serial decoding.
        blocked: (batch,) bool, whether a wanted token found no room.
        end_log_prob: (batch,) the log-probability of inserting nothing more.
        complete: (batch,) bool, whether nothing more belongs there after these insertions; None if that is unknown.
    """

    slots: Integers
    tokens: Integers
    log_probs: Array
    blocked: Booleans
    end_log_prob: Array
    complete: Booleans | None = None


@dataclass(frozen=True)
class Ranked:
    """What can continue texts, (batch, columns) each, end-of-slot among it; `blocked` is (batch,).

    Args:
        tokens: the token of each column.
        scores: with the termination penalty taken off; -inf where it is not allowed.
        log_probs: without the penalty.
        blocked: whether a wanted token found no room.
    """

    tokens: Integers
    scores: Array
    log_probs: Array
    blocked: Booleans


class Chooser:
    """Turn an engine's predictions into insertions."""

    def __init__(self, settings: DecodingSettings, info: ModelInfo) -> None:
        settings = with_strategy(info, settings)
        self.settings, self.end = settings, info.specials.end_of_slot_id
        self.penalty = np.float32(settings.termination_penalty or 0.0)
        constraints = settings.constraints
        if constraints.never and (highest := max(constraints.never)) >= info.vocab_size:
            raise DecodingError(f"never holds {highest}, but the model's tokens end at {info.vocab_size - 1}")
        self.never: Booleans | None = None
        if constraints.never:
            self.never = np.zeros(info.vocab_size, dtype=bool)
            self.never[sorted(constraints.never)] = True
        self.continues = constraints.continues_word
        self.digit_of = constraints.digit_of if settings.strategy is Strategy.LEFT_TO_RIGHT else None
        self.bars = self.never is not None or self.continues is not None
        self.plain = settings.strategy is Strategy.PARALLEL and settings.sampling is None and not self.bars
        early = EARLY_FINISH if settings.early_finish is None else settings.early_finish
        self.finishes_early = settings.strategy is Strategy.PARALLEL and info.predicts_completion and early < 1
        self.completed_from = math.log(early)
        self.top, self.full = 1, False
        if settings.sampling is not None:
            self.full = settings.sampling.top_k is None or self.bars
            self.top = 1 if self.full else settings.sampling.top_k or 1
        elif self.bars:
            self.top = _SPARE
        if settings.beams > 1:
            self.top += settings.beams

    def choose(
        self,
        answer: Answer,
        reading: Reading,
        text: Growing,
        slots: Integers,
        room: Room,
        repeats: Integers | None,
        seeds: Integers | None,
        drawn: Booleans | None,
        number: int,
    ) -> Choice:
        """Choose the insertions of a round.

        Args:
            slots: (slots,) the items whose slots were asked about.
            repeats: (batch,) how often a token may stand in a row; None for no limit.
            seeds: (batch,) the texts' seeds where tokens are drawn, None where the best are taken.
            drawn: (batch,) bool, the texts whose tokens are drawn; None for all of them.
            number: the round, from 0.
        """
        planes = text.planes[:, slots]
        full = None if repeats is None else full_runs(text, slots, repeats)
        if self.plain and full is None and room.need is None:
            choice = self._plain(answer, planes, slots, room)
        else:
            options = self._options(answer, reading, text, slots, full)
            pick = _Pick(options, planes[ROW], planes[SEGMENT], planes[SPAN], room, answer.end, drawn=drawn)
            if seeds is not None:
                slot = slots - text.starts[pick.rows]
                noise = uniform(seeds[pick.rows], number, slot)
                pick = replace(pick, slots=slot, noise=noise, location_noise=uniform(seeds, number))
            choice = self._picked(pick, slots, answer)
        return self._completed(choice, answer, slots, planes[ROW]) if self.finishes_early else choice

    def _picked(self, pick: _Pick, slots: Integers, answer: Answer) -> Choice:
        """Choose the insertions by the strategy."""
        match self.settings.strategy:
            case Strategy.PARALLEL:
                return self._parallel(pick, slots)
            case Strategy.SERIAL:
                return self._serial(pick, slots, answer)
            case _:
                return self._left_to_right(pick, slots)

    def _completed(self, choice: Choice, answer: Answer, slots: Integers, rows: Integers) -> Choice:
        """Find the texts that the insertions complete; `rows` are the slots' rows."""
        assert answer.completion is not None
        batch, filled = len(choice.blocked), slots.searchsorted(choice.slots)
        inserted, sure = rows[filled], answer.completion[filled] + choice.log_probs
        complete = (np.bincount(inserted, minlength=batch) > 0) & ~choice.blocked
        complete &= np.bincount(inserted, sure, batch) >= self.completed_from
        log_probs = answer.end.copy()
        log_probs[filled] = answer.completion[filled]
        end_log_prob = np.where(complete, np.bincount(rows, log_probs, batch), choice.end_log_prob)
        return replace(choice, end_log_prob=end_log_prob, complete=complete)

    def rank(
        self, answer: Answer, reading: Reading, text: Growing, slots: Integers, room: Room, repeats: Integers | None
    ) -> Ranked:
        """Return what can continue texts from left to right; `slots` holds the end of one span per text."""
        planes = text.planes[:, slots]
        full = None if repeats is None else full_runs(text, slots, repeats)
        options = self._options(answer, reading, text, slots, full)
        fits, ends = self._fits(planes[ROW], planes[SEGMENT], planes[SPAN], room, options), options.ends()
        blocked = (options.at(options.best())[0] != self.end) & ~fits
        options.scores[~fits] = np.where(ends[~fits], options.scores[~fits], -np.inf)
        stuck = ~np.isfinite(options.scores).any(1)
        options.scores[stuck] = np.where(ends[stuck], np.maximum(answer.end, _IMPOSSIBLE)[stuck, None], -np.inf)
        return Ranked(options.tokens(), options.scores, options.scores + np.where(ends, self.penalty, 0), blocked)

    def _options(
        self,
        answer: Answer,
        reading: Reading,
        text: Growing,
        slots: Integers,
        full: tuple[Booleans, Booleans] | None,
    ) -> Options:
        """Return what can be inserted, without what is barred."""
        options = Options.of(answer, self.end, self.penalty)
        digits = None if self.digit_of is None else next_digits(text, slots, self.digit_of)
        if self.bars or full is not None or digits is not None:
            barred = self._barred(options, text, slots, full, digits)
            if barred is not None and not options.full and self._lacks(options, barred):
                options = Options.of(reading.ask_fully(), self.end, self.penalty)
                barred = self._barred(options, text, slots, full, digits)
            if barred is not None:
                options.bar(barred)
        return options

    def _fits(self, rows: Integers, segments: Integers, spans: Integers, room: Room, options: Options) -> Booleans:
        """(slots,) whether one token more fits from left to right; end-of-slot is barred where a blank needs one."""
        fits = room.left(rows, segments, spans)
        fits &= room.text[rows] > room.reserved(rows, spans)  # reserve the minimum of later blanks
        options.bar_end(room.needs(spans) & fits)
        return fits

    def _plain(self, answer: Answer, planes: Integers, slots: Integers, room: Room) -> Choice:
        """Take the best tokens in parallel, for the common case without forbidden tokens."""
        rows, log_probs = planes[ROW], answer.log_probs[:, 0]
        wanting = log_probs > answer.end - self.penalty
        taken = room.admit(wanting, log_probs, rows, planes[SEGMENT], planes[SPAN])
        batch = len(room.text)
        blocked = np.zeros(batch, dtype=bool) if taken is wanting else _any_by_row(wanting & ~taken, rows, batch)
        chosen = taken.nonzero()[0]
        ends = np.bincount(rows, answer.end, batch)
        return Choice(slots[chosen], answer.tokens[chosen, 0], log_probs[chosen], blocked, ends)

    def _barred(
        self,
        options: Options,
        text: Growing,
        slots: Integers,
        full: tuple[Booleans, Booleans] | None,
        digits: Booleans | None,
    ) -> Booleans | None:
        """Return (slots, columns) bool, what may not be inserted; None if everything may."""
        barred: Booleans | None = None
        if self.never is not None:
            barred = options.of_table(self.never)
        if digits is not None and self.digit_of is not None:
            digit = options.of_table(self.digit_of)
            more = ~np.take_along_axis(digits, np.where(digit < 0, NO_DIGIT, digit), 1)
            barred = more if barred is None else barred | more
        if self.continues is not None:
            planes = text.planes[:, slots - 1]
            framing = (planes[TOKEN] == text.specials.cls_id) | (planes[TOKEN] == text.specials.sep_id)
            glued = (planes[INSERTED] == 0) & ~framing & (text.planes[JOINED, slots] == 0)
            if glued.any():
                more = glued[:, None] & options.of_table(self.continues)
                barred = more if barred is None else barred | more
        if full is not None:
            tokens = text.planes[TOKEN]
            for token, is_full in ((tokens[slots - 1], full[0]), (tokens[slots], full[1])):
                more = is_full[:, None] & options.equal(token)
                barred = more if barred is None else barred | more
        return barred

    def _lacks(self, options: Options, barred: Booleans) -> bool:
        """Return whether more tokens must be known than the engine returned."""
        content = barred[:, : options.columns - 1]  # the last column is end-of-slot
        return bool(content.any() if self.settings.sampling is not None else content.all(1).any())

    def _tokens(self, pick: _Pick) -> Integers:
        """Return (slots,), the best or drawn column."""
        options = pick.options
        if pick.noise is None or self.settings.sampling is None:
            return options.best()
        found = draw(options.scores, self.settings.sampling, pick.noise, options.ids)
        return found if pick.drawn is None else np.where(pick.drawn[pick.rows], found, options.best())

    def _left_to_right(self, pick: _Pick, slots: Integers) -> Choice:
        """Choose for one slot of each text: a token, or that its span is finished."""
        fits = self._fits(pick.rows, pick.segments, pick.spans, pick.room, pick.options)
        tokens, log_probs = pick.options.at(self._tokens(pick))
        wanting = (tokens != self.end) & (log_probs > -np.inf)  # where everything is barred, nothing can be drawn
        return self._choice(pick, slots, tokens, log_probs, wanting, wanting & fits, pick.ends())

    def _parallel(self, pick: _Pick, slots: Integers) -> Choice:
        room, options = pick.room, pick.options
        column = self._tokens(pick)
        tokens, log_probs = options.at(column)
        wanting = tokens != self.end
        if room.need is not None and (needing := room.needs(pick.spans)).any():
            served = np.zeros(len(room.need), dtype=bool)
            served[pick.spans[wanting]] = True
            lacking = needing & ~served[pick.spans]
            options.bar_end(lacking)
            tokens, log_probs = options.at(np.where(lacking, self._tokens(pick), column))
            forced = best_of_group(np.where(lacking, log_probs, -np.inf), pick.spans, len(room.need))
            wanting = (wanting & ~lacking) | forced
        taken = room.admit(wanting, log_probs, pick.rows, pick.segments, pick.spans)
        return self._choice(pick, slots, tokens, log_probs, wanting, taken, pick.ends())

    def _serial(self, pick: _Pick, slots: Integers, answer: Answer) -> Choice:
        rows, room, batch = pick.rows, pick.room, len(pick.room.text)
        log_location, log_stop = log_locations(rows, answer.location, answer.stop, batch)
        fits = room.left(rows, pick.segments, pick.spans)
        needing = room.needs(pick.spans) & fits
        needy = _any_by_row(needing, rows, batch)
        pick.options.bar_end(needing)
        tokens, log_probs = pick.options.at(self._tokens(pick))
        log_probs = log_probs + log_location
        stop = None if log_stop is None else np.where(needy, -np.inf, log_stop - self.penalty)
        eligible = fits & (needing | ~needy[rows])
        wanting = tokens != self.end
        if stop is not None:
            wanting &= log_probs > stop[rows]
        chosen = best_of_group(np.where(eligible & wanting, log_probs, -np.inf), rows, batch)
        if pick.location_noise is not None:
            # where no token fits, a draw from all slots decides whether the text ended or was cut off
            nowhere = ~_any_by_row(eligible, rows, batch)
            location = np.where(eligible | nowhere[rows], log_location, -np.inf)
            assert pick.slots is not None
            place = self._draw_location(rows, pick.slots, location, stop, pick.location_noise)
            possible = log_probs > -np.inf  # where everything is barred, nothing can be drawn
            wanted = (place[rows] == np.arange(len(rows))) & (tokens != self.end) & possible
            by_chance = np.ones(batch, dtype=bool) if pick.drawn is None else pick.drawn
            wanting = np.where(by_chance[rows], wanted, wanting)
            chosen = np.where(by_chance[rows], eligible & wanted, chosen)
        ends = row_logsumexp(pick.end_log_prob + log_location, rows, batch) if log_stop is None else log_stop
        blocked = wanting & ~fits
        return self._choice(pick, slots, tokens, log_probs, blocked | chosen, chosen, ends)

    def _draw_location(
        self, rows: Integers, slots: Integers, location: Array, stop: Array | None, noise: Array
    ) -> Integers:
        """Return (batch,), the index of the drawn slot among all; -1 if stopping or nothing was drawn."""
        assert self.settings.sampling is not None
        grid = np.full((len(noise), int(slots.max()) + 1), -np.inf)  # slot 0 does not exist: it stands for stopping
        numbers = np.full(grid.shape, -1)
        grid[rows, slots], numbers[rows, slots] = location, np.arange(len(rows))
        if stop is not None:
            grid[:, 0] = stop
        grid[:, 0] = np.where(np.isfinite(grid).any(1), grid[:, 0], 0)
        drawn = draw(grid, Sampling(self.settings.sampling.temperature), noise)
        return np.asarray(numbers[np.arange(len(noise)), drawn])

    def _choice(
        self,
        pick: _Pick,
        slots: Integers,
        tokens: Integers,
        log_probs: Array,
        wanting: Booleans,
        taken: Booleans,
        end_log_prob: Array,
    ) -> Choice:
        blocked = _any_by_row(wanting & ~taken, pick.rows, len(pick.room.text))
        return Choice(slots[taken], tokens[taken], log_probs[taken], blocked, end_log_prob)


@dataclass(frozen=True)
class _Pick:
    """The options of a round and what restricts the choice; arrays are by slot.

    Where tokens are drawn, `noise` decides about them, and `location_noise`, (batch,), about locations; `drawn`,
    (batch,), are the texts whose tokens are drawn, None for all of them.
    """

    options: Options
    rows: Integers
    segments: Integers
    spans: Integers
    room: Room
    end_log_prob: Array
    slots: Integers | None = None
    noise: Array | None = None
    location_noise: Array | None = None
    drawn: Booleans | None = None

    def ends(self) -> Array:
        """Return (batch,), the log-probability of all slots being finished."""
        return np.bincount(self.rows, self.end_log_prob, len(self.room.text))


def log_locations(rows: Integers, location: Array, stop: Array | None, batch: int) -> tuple[Array, Array | None]:
    """Return log p(l), a softmax over the row's open slots and, with sequence termination, stopping.

    `rows` and `location` are (slots,), `stop` is (batch,) and None with slot termination; so are the results.
    """
    normaliser = row_logsumexp(location, rows, batch)
    if stop is None:
        return location - normaliser[rows], None
    normaliser = np.logaddexp(normaliser, stop)
    return location - normaliser[rows], stop - normaliser


def row_logsumexp(values: Array, rows: Integers, batch: int) -> Array:
    """Return the logsumexp of values, (items,), by their rows, (items,); (batch,), -inf for a row without items."""
    peak = np.full(batch, -np.inf)
    np.maximum.at(peak, rows, values)
    base = np.where(np.isfinite(peak), peak, 0)
    with np.errstate(divide="ignore"):
        return np.log(np.bincount(rows, np.exp(values - base[rows]), batch)) + base


def _any_by_row(values: Booleans, rows: Integers, batch: int) -> Booleans:
    """Return (batch,), whether any value of the row is true."""
    found = np.zeros(batch, dtype=bool)
    found[rows[values]] = True
    return found
