"""Compare two engines on synthetic rows, which also calibrate and verify exported files."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kermit.canvas.arrays import Booleans, Floats
from kermit.engines.engine import Answer, Asked, Engine, ModelInfo, Rows

_TOP = 4
"""Number of best tokens to compare."""


@dataclass(frozen=True)
class Difference:
    """The largest absolute difference of two engines, and the mean one of the best token's log-probability.

    It is infinite if they disagree on which tokens can never be inserted.
    """

    largest: float
    best: float


def sample_rows(info: ModelInfo, seed: int, *, batch: int, length: int, order: int = 1) -> Rows:
    """Make synthetic rows: `length` tokens of X are given, then come as many of Y; all but the first row are padded.

    With cached context, Y is a block of that order, 2 for left to right, which starts at the same place in every row
    and has fractional positions.
    """
    random = np.random.default_rng(seed)
    x, y = (np.concatenate([[length], random.integers(2, length + 1, batch - 1)])[:, None] for _ in "xy")
    place, of_y = np.arange(2 * length), np.arange(2 * length) >= length
    if info.cached_context:
        valid = np.where(of_y, place - length < y, place < x)
        segment_ids = np.broadcast_to(of_y, valid.shape) & valid
        positions = np.where(of_y, 0.5 + 0.75 * (place - length), place) * valid
    else:
        valid, segment_ids = place < x + y, (place >= x) & (place < x + y)
        positions = (place - segment_ids * (x - 1) if info.restarts else place) * valid
    specials = info.specials
    content = np.setdiff1d(np.arange(info.vocab_size), list(specials.ids))
    token_ids = random.choice(content, valid.shape)
    token_ids[:, 0], token_ids[place == x - 1] = specials.cls_id, specials.sep_id
    token_ids[~valid] = specials.pad_id
    orders = order * segment_ids if info.cached_context else 0 * segment_ids
    return Rows(
        token_ids,
        segment_ids.astype(np.int64),
        positions.astype(np.float32),
        orders.astype(np.int64),
        _mask(valid, segment_ids & info.cached_context, order),
    )


def _mask(valid: Booleans, in_block: Booleans, order: int) -> Booleans:
    """Return what each token sees: given tokens see each other; block tokens see everything, or what came before."""
    places = np.arange(valid.shape[1])
    seen = valid[:, :, None] & valid[:, None, :] & (in_block[:, :, None] >= in_block[:, None, :])
    if order == 2:
        seen &= ~in_block[:, None, :] | (places[:, None] >= places)
    return np.asarray(seen | np.eye(valid.shape[1], dtype=bool))


def compare(engine: Engine, reference: Engine) -> Difference:
    """Compare the answers of two engines, on rows with and without a cache."""
    info = reference.info
    found = []
    for seed, (batch, order) in enumerate([(1, 1), (3, 1), (3, 2)]):
        rows = sample_rows(info, seed, batch=batch, length=sample_length(info, 12), order=order)
        real = rows.token_ids != info.specials.pad_id
        answers = (_answers(engine, rows, real), _answers(reference, rows, real))
        found += [_between(*pair) for pair in zip(*answers, strict=True)]
        states = np.abs(engine.hidden(rows) - reference.hidden(rows))[real]
        found.append(Difference(float(states.max()), 0.0))
    return Difference(max(one.largest for one in found), max(one.best for one in found))


def sample_length(info: ModelInfo, most: int) -> int:
    """Return a length of X and of Y that a model has positions for."""
    return min(most, info.max_segment_length or most, (info.max_length or 2 * most) // 2)


def _answers(engine: Engine, rows: Rows, real: Booleans) -> list[Answer]:
    """Ask about the slots of rows read whole and, if the engine caches, also with X read before Y."""
    everything = _asked(real, 0)
    answers = [engine.ask(rows, everything)]
    if engine.caches:
        middle = rows.token_ids.shape[1] // 2
        given = engine.ask(_part(rows, 0, middle), _asked(real[:, :middle], 0))
        assert given.cache is not None
        backwards = np.arange(len(rows.token_ids) - 1, -1, -1)
        cache = given.cache.select(backwards).select(backwards)
        for _ in range(2):  # the second time with the cache that the first call returned
            after = replace(_part(rows, middle, None), past=cache)
            answers.append(engine.ask(after, _asked(real, middle)))
            assert answers[-1].cache is not None
            cache = answers[-1].cache.first(middle)
        answers.append(given)
    return answers


def _part(rows: Rows, start: int, stop: int | None) -> Rows:
    """Return a range of places of rows; they see themselves and the places before them."""
    some = (slice(None), slice(start, stop))
    mask = rows.mask[(*some, slice(stop))]
    return Rows(rows.token_ids[some], rows.segment_ids[some], rows.positions[some], rows.orders[some], mask)


def _asked(real: Booleans, start: int) -> Asked:
    """Ask about all slots between neighbouring tokens, beginning at a place."""
    row, place = np.nonzero(real[:, start:-1] & real[:, start + 1 :])
    left = row * real.shape[1] + start + place
    return Asked(left, left + 1, top=_TOP, full=True)


def _between(ours: Answer, theirs: Answer) -> Difference:
    """Return the difference between two answers."""
    assert ours.content is not None
    assert theirs.content is not None
    possible = np.isfinite(theirs.content)
    if not np.array_equal(np.isfinite(ours.content), possible):
        return Difference(np.inf, np.inf)
    pairs = [
        (ours.content[possible], theirs.content[possible]),
        (ours.location, theirs.location),
        (ours.log_probs, np.take_along_axis(ours.content, ours.tokens, 1)),
        (ours.log_probs, theirs.log_probs),
    ]
    if ours.stop is not None and theirs.stop is not None:
        pairs.append((ours.stop, theirs.stop))
    if np.isfinite(theirs.end).all():
        pairs.append((ours.end, theirs.end))
    best = np.abs(ours.log_probs[:, 0] - theirs.log_probs[:, 0]).mean()
    return Difference(max(_largest(*pair) for pair in pairs), float(best))


def _largest(ours: Floats, theirs: Floats) -> float:
    """Return the largest absolute difference; equal infinities count as 0."""
    return float(np.where(ours == theirs, 0, np.abs(ours - theirs)).max())
