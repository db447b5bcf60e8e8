"""Dropped tokens: frequencies, and a comparison with a chain that is walked token by token."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kermit.objectives.dropping import LONGEST_REPEAT, repeat_lengths, sample_dropped, sample_repeated


def walked(noise: list[float], probability: float, span_length: float) -> list[bool]:
    """The same chain, one token after the other."""
    follow = 1 - 1 / span_length
    begin = probability * (1 - follow) / (1 - probability * follow)
    dropped = [noise[0] < probability]
    for value in noise[1:]:
        if value < begin:
            dropped.append(True)
        elif value < begin + (1 - begin) * follow:
            dropped.append(dropped[-1])
        else:
            dropped.append(False)
    return dropped


@pytest.mark.parametrize("span_length", [1.0, 1.5, 4.0])
def test_the_vectorised_chain_equals_the_token_by_token_one(span_length: float) -> None:
    found = sample_dropped((50, 40), 0.3, np.random.default_rng(2), span_length=span_length)
    noise = np.random.default_rng(2).random((50, 40))
    assert found.tolist() == [walked(row, 0.3, span_length) for row in noise.tolist()]


@pytest.mark.parametrize("span_length", [1.0, 2.0, 5.0])
def test_every_token_is_dropped_with_the_same_probability_including_first_and_last(span_length: float) -> None:
    dropped = sample_dropped((40_000, 12), 0.15, np.random.default_rng(0), span_length=span_length)
    assert dropped.mean(0).tolist() == pytest.approx([0.15] * 12, abs=0.009)  # five standard errors


@pytest.mark.parametrize(("span_length", "again"), [(1.0, 0.15), (2.0, 0.15 / 1.85 + 0.5 * (1 - 0.15 / 1.85))])
def test_the_probability_of_dropping_after_a_dropped_token_is_as_worked_out_by_hand(
    span_length: float, again: float
) -> None:
    """With 15% in spans of 2, a run starts with 0.15 * 0.5 / (1 - 0.15 * 0.5) = 0.15 / 1.85; else half continue."""
    dropped = sample_dropped((2000, 500), 0.15, np.random.default_rng(1), span_length=span_length)
    after = dropped[:, 1:][dropped[:, :-1]]
    assert after.mean().item() == pytest.approx(again, abs=0.006)


def test_no_tokens_and_all_tokens_are_possible() -> None:
    generator = np.random.default_rng(0)
    assert not sample_dropped((3, 5), 0.0, generator, span_length=3).any()
    assert sample_dropped((3, 5), 1.0, generator, span_length=3).all()
    assert sample_dropped((2, 0), 0.5, generator).shape == (2, 0)
    with pytest.raises(ValueError, match="1 or more"):
        sample_dropped((1, 1), 0.1, generator, span_length=0.5)


def slow_repeats(tokens: list[int], among: list[bool], common: int) -> list[int]:
    """The runs by their definition: from each place, the longest that occurs earlier without overlapping it."""
    lengths, covered = [], 0
    for start in range(len(tokens)):
        longest = 0
        for length in range(1, min(LONGEST_REPEAT, len(tokens) - start) + 1):
            run = tokens[start : start + length]
            ends_tell = run[0] >= common and run[-1] >= common
            before = [
                at
                for at in range(start - length + 1)
                if tokens[at : at + length] == run and all(among[at : at + length])
            ]
            if ends_tell and before and all(among[start : start + length]):
                longest = length
        lengths.append(longest if start >= covered else 0)
        covered = max(covered, start + longest)
    return lengths


@given(st.data())
def test_repeats_are_the_longest_runs_that_occurred_before(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 30))
    tokens = data.draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))
    among = data.draw(st.lists(st.sampled_from([True, True, True, False]), min_size=size, max_size=size))
    common = data.draw(st.integers(0, 3))
    other = data.draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))  # other rows change nothing
    found = repeat_lengths(np.array([tokens, other]), np.array([among, [True] * size]), common)
    assert found[0].tolist() == slow_repeats(tokens, among, common)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.floats(0.05, 1.0), st.integers(0, 99))
def test_dropped_repeated_runs_still_occur_earlier(tokens: list[int], probability: float, seed: int) -> None:
    ids = np.array([tokens])
    generator = np.random.default_rng(seed)
    [dropped] = sample_repeated(ids, np.ones_like(ids, dtype=bool), probability, generator)
    for place, gone in enumerate(dropped.tolist()):
        if gone:
            first = tokens.index(tokens[place])
            assert first < place
            assert not dropped[first]


def test_repeated_runs_are_dropped_with_the_requested_probability() -> None:
    text = [*range(20), *reversed(range(20))]  # 20 runs of one token
    ids = np.array([text] * 4000)
    dropped = sample_repeated(ids, np.ones_like(ids, dtype=bool), 0.15, np.random.default_rng(0))
    assert not dropped[:, :20].any()
    assert dropped[:, 20:].mean(0).tolist() == pytest.approx([0.3] * 20, abs=0.04)
    everything = sample_repeated(ids, np.ones_like(ids, dtype=bool), 0.9, np.random.default_rng(0))
    assert everything[:, 20:].all()
    assert not sample_repeated(ids, ids < 0, 0.9, np.random.default_rng(0)).any()


def test_a_frequent_word_is_dropped_as_often_as_one_that_occurs_twice() -> None:
    often, twice = [7, 8, 7, 9, 7, 10, 7, 11, 7, 12, 7], [20, 13, 20]
    ids = np.array([[*often, *twice, *range(30, 70)]]).repeat(4000, 0)
    dropped = sample_repeated(ids, np.ones_like(ids, dtype=bool), 0.02, np.random.default_rng(0))
    counts = dropped.sum(0)
    assert int(counts[ids[0] == 7].sum()) == pytest.approx(int(counts[ids[0] == 20].sum()), rel=0.1)
    assert float(dropped.mean()) == pytest.approx(0.02, rel=0.1)
