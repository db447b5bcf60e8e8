"""Which tokens are dropped in pretraining: each with the same probability, singly or in runs, or repeated text.

Masked language models mask the tokens drawn here; KERMIT removes them. This module knows no model.
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

    Each token either begins a run, follows the token before it, or is kept. The probabilities are such that a run lasts
    `span_length` tokens on average (adjacent runs look like one), and that every token, including the first of a row,
    is dropped with the given probability. With a span length of 1, tokens are dropped independently.

    Args:
        probability: probability of each token; one number, or (rows, 1).
        span_length: mean length of a run, 1 or more; one number, or (rows, 1).
    """
    if np.any(np.asarray(span_length) < 1):
        raise ValueError(f"the mean length of a span must be 1 or more, not {span_length}")
    follow = 1 - 1 / span_length  # probability that a token which begins no run follows the one before it
    begin = probability * (1 - follow) / (1 - probability * follow)  # solves p = begin + (1 - begin) * follow * p
    noise = generator.random(shape)
    begins = noise < begin
    lets_go = noise >= begin + (1 - begin) * follow
    begins[:, :1] = noise[:, :1] < probability  # the first token follows none, so it is drawn directly
    lets_go[:, :1] = ~begins[:, :1]
    place = np.arange(shape[1])
    last_begun, last_let_go = (np.maximum.accumulate(np.where(event, place, -1), 1) for event in (begins, lets_go))
    return np.asarray(last_begun > last_let_go)


LONGEST_REPEAT = 8
"""Maximum number of tokens in a dropped run of repeated text."""


def sample_repeated(
    token_ids: Integers, among: Booleans, probability: float | Array, generator: np.random.Generator, *, common: int = 0
) -> Booleans:
    """Drop runs of tokens that also occur earlier in the text, so that what is missing can be copied from what is left.

    First occurrences are kept, and so are runs of only common tokens. Runs are drawn such that the given share is
    dropped on average, or less if there are too few. The probability of a run is inversely proportional to the number
    of its repetitions: each of the last five occurrences of a word that occurs six times has a fifth of the probability
    of the second occurrence of a word that occurs twice, unless a probability reaches 1. Otherwise the topic words of a
    text would be most of what is missing, and guessing them would be as good as looking them up.

    Args:
        among: (rows, tokens) bool, the tokens that may be dropped; a run and its first occurrence lie within it.
        probability: share of these tokens to drop; one number, or (rows,).
        common: no run begins or ends with a token of a lower id. Vocabularies list characters and frequent tokens
            first, so this selects rarer words.
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
    """Return (rows, tokens) the length, up to `LONGEST_REPEAT`, of the repeated run that begins at each token.

    It is 0 if none does, and inside a longer run. No run begins or ends with a token of an id below `common`.
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
    """Return (rows, tokens), how often each token occurs in its row."""
    first = _first_place(token_ids) + np.arange(len(token_ids))[:, None] * token_ids.shape[1]
    return np.asarray(np.bincount(first.ravel(), among.ravel(), first.size).astype(np.int64)[first])


def _first_place(keys: Integers) -> Integers:
    """Return (rows, places), the place of the first occurrence of each key in its row."""
    place = keys.argsort(axis=1, kind="stable")
    ordered = np.take_along_axis(keys, place, 1)
    begins = np.ones(ordered.shape, dtype=bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    start = np.maximum.accumulate(np.where(begins, np.arange(keys.shape[1]), 0), 1)
    found = np.empty_like(place)
    np.put_along_axis(found, place, np.take_along_axis(place, start, 1), 1)
    return found
