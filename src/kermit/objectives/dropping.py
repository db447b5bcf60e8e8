"""Which tokens a text loses in pretraining: all with the same chance, alone or in runs, or what it said before.

Masked language models hide the tokens that are drawn here, KERMIT leaves them out. This module knows no model.
"""

from __future__ import annotations

import numpy as np

from kermit.canvas.arrays import Array, Booleans, Integers


def sample_dropped(
    shape: tuple[int, int],
    probability: float | Array,
    generator: np.random.Generator,
    *,
    span_length: float | Array = 1.0,
) -> Booleans:
    """Drop every token with the same probability, in runs of a geometric length.

    Each token does one of three things: it begins a run, it does as the token before it, or it is kept. The chances
    are such that a run goes on for `span_length` tokens on average before it is let go (runs may touch, and then look
    like one), and that every token, the first of a row included, is dropped with the probability asked for. A span
    length of 1 drops each token on its own.

    Args:
        shape: (rows, tokens).
        probability: of each token; one number, or (rows, 1).
        generator: the source of randomness.
        span_length: the mean length of a run, 1 or more; one number, or (rows, 1).

    Returns:
        (rows, tokens) bool.
    """
    if np.any(np.asarray(span_length) < 1):
        raise ValueError(f"the mean length of a span must be 1 or more, not {span_length}")
    follow = 1 - 1 / span_length  # the chance of a token that begins no run to do as the one before it
    begin = probability * (1 - follow) / (1 - probability * follow)  # solves p = begin + (1 - begin) * follow * p
    noise = generator.random(shape)
    begins = noise < begin
    lets_go = noise >= begin + (1 - begin) * follow
    begins[:, :1] = noise[:, :1] < probability  # nothing is before the first: it is as in the midst of a text
    lets_go[:, :1] = ~begins[:, :1]
    place = np.arange(shape[1])
    last_begun, last_let_go = (np.maximum.accumulate(np.where(event, place, -1), 1) for event in (begins, lets_go))
    return np.asarray(last_begun > last_let_go)


LONGEST_REPEAT = 8
"""So many tokens of what a text says again are lost at once."""


def sample_repeated(
    token_ids: Integers, among: Booleans, probability: float, generator: np.random.Generator, *, common: int = 0
) -> Booleans:
    """Drop runs of tokens that stand earlier in the text too, so that what is missing can be found in what is left.

    First sayings stay, and so do runs without a token that is not common. Runs are drawn such that the share asked for
    is dropped on average, or less where there are too few. Of a word said six times each of the last five has a fifth
    of the chance of the second of a word said twice, as long as no chance comes to 1; of a text that has few runs
    nearly all that are rare are dropped, and some of the others. What a text is about would else be most of what is
    missing from it, and a guess at that as good as a look.

    Args:
        token_ids: (rows, tokens).
        among: (rows, tokens) bool, what may be dropped; a run lies within it, and so does its first saying.
        probability: the share of these tokens to drop.
        generator: the source of randomness.
        common: no run begins or ends with a token of a lower id. Vocabularies list their characters first and then what
            is frequent, so this keeps to what a text is about.

    Returns:
        (rows, tokens) bool.
    """
    lengths = repeat_lengths(token_ids, among, common)
    noise = generator.random(among.shape)
    chance = np.sign(lengths) / np.maximum(_times(token_ids, among) - 1, 1)
    wanted, drawn = probability * among.sum(1), (chance * lengths).sum(1)
    chance *= (wanted / np.where(drawn > 0, drawn, 1))[:, None]
    lengths = np.where(noise < chance, lengths, 0)
    place = np.arange(lengths.shape[1])
    return np.asarray(np.maximum.accumulate(place + lengths, 1) > place)


def repeat_lengths(token_ids: Integers, among: Booleans, common: int = 0) -> Integers:
    """Return how long a run begins at each token that was there before; 0 where none does, and inside a longer one.

    Args:
        token_ids: (rows, tokens).
        among: (rows, tokens) bool, the tokens that count.
        common: no run begins or ends with a token of a lower id.

    Returns:
        (rows, tokens) of at most `LONGEST_REPEAT`.
    """
    size = token_ids.shape[1]
    place = np.broadcast_to(np.arange(size), token_ids.shape)
    first = first_token = _first_place(np.where(among, token_ids, -1 - place))
    telling = among & (token_ids >= common)
    lengths = np.zeros_like(token_ids)
    for length in range(1, min(LONGEST_REPEAT, size) + 1):
        if length > 1:
            first = _first_place(first[:, :-1] * size + first_token[:, length - 1 :])
        until = first.shape[1]
        again = (place[:, :until] - first >= length) & telling[:, :until] & telling[:, length - 1 :]
        lengths[:, :until] = np.where(again, length, lengths[:, :until])
    covered = np.zeros_like(lengths)
    covered[:, 1:] = np.maximum.accumulate(place + lengths, 1)[:, :-1]
    return np.asarray(np.where(covered <= place, lengths, 0))


def _times(token_ids: Integers, among: Booleans) -> Integers:
    """(rows, tokens) how often each token stands in its row."""
    first = _first_place(token_ids) + np.arange(len(token_ids))[:, None] * token_ids.shape[1]
    return np.asarray(np.bincount(first.ravel(), among.ravel(), first.size).astype(np.int64)[first])


def _first_place(keys: Integers) -> Integers:
    """(rows, places) where each key stood first in its row."""
    place = keys.argsort(axis=1, kind="stable")
    ordered = np.take_along_axis(keys, place, 1)
    begins = np.ones(ordered.shape, dtype=bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    start = np.maximum.accumulate(np.where(begins, np.arange(keys.shape[1]), 0), 1)
    found = np.empty_like(place)
    np.put_along_axis(found, place, np.take_along_axis(place, start, 1), 1)
    return found
