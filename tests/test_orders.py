"""The order priors: weights worked out by hand, and kept sets by enumeration over orders."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from kermit.canvas.arrays import Array
from kermit.objectives.orders import (
    BalancedTreePrior,
    LeftToRightPrior,
    OrderPrior,
    Spans,
    UniformPrior,
    sample_uniform_kept,
)

INFINITY = float("inf")


class RightToLeftPrior(OrderPrior):
    """A custom prior with only `weights`."""

    def weights(self, kept: Array, valid: Array) -> Array:
        missing = valid & ~kept
        after = missing[:, ::-1].cumsum(1)[:, ::-1]
        return (missing & (after == 1)).astype(float)


class LopsidedPrior(OrderPrior):
    """A custom prior in which a token's weight is its place in the row, from 1."""

    def weights(self, kept: Array, valid: Array) -> Array:
        weights = (valid & ~kept) * np.arange(1.0, kept.shape[1] + 1)
        return weights / np.maximum(weights.sum(1, keepdims=True), 1)


PRIORS: list[OrderPrior] = [
    UniformPrior(),
    BalancedTreePrior(0.01),
    BalancedTreePrior(0.5),
    BalancedTreePrior(1.0),
    BalancedTreePrior(INFINITY),
    LeftToRightPrior(),
    RightToLeftPrior(),
    LopsidedPrior(),
]


def name(prior: OrderPrior) -> str:
    return type(prior).__name__ + str(getattr(prior, "temperature", ""))


def masks(row: str) -> tuple[Array, Array]:
    """`K` kept, `.` missing, `-` padding."""
    return np.array([[c == "K" for c in row]]), np.array([[c != "-" for c in row]])


def weights(prior: OrderPrior, row: str) -> list[float]:
    return [round(value, 6) for value in prior.weights(*masks(row))[0].tolist()]


def slot_weights(prior: OrderPrior, row: str) -> list[float]:
    return [round(value, 6) for value in prior.slot_weights(*masks(row))[0].tolist()]


def test_the_uniform_prior_gives_all_missing_tokens_the_same_weight() -> None:
    assert weights(UniformPrior(), "K..K.-") == [0, 0.333333, 0.333333, 0, 0.333333, 0]
    assert slot_weights(UniformPrior(), "K..K.-") == [0, 0.5, 0.5, 0, 1, 0]


def test_the_tree_prior_divides_by_slot_and_then_by_distance_from_the_middle() -> None:
    # spans of 3 and of 1: each half; in the first exp(-1), 1, exp(-1) over their sum 1 + 2/e
    total = 1 + 2 / math.e
    side, middle = round(0.5 / math.e / total, 6), round(0.5 / total, 6)
    assert weights(BalancedTreePrior(1.0), "...K.") == [side, middle, side, 0, 0.5]


def test_the_tree_prior_of_an_even_span_has_two_middles() -> None:
    # distances from the middle of four tokens: 1.5, 0.5, 0.5, 1.5, so the inner two weigh e times the outer two
    outer = 1 / (2 + 2 * math.e)
    expected = [round(v, 6) for v in (outer, outer * math.e, outer * math.e, outer)]
    assert slot_weights(BalancedTreePrior(1.0), "....") == expected
    assert slot_weights(BalancedTreePrior(1.0), "..") == [0.5, 0.5]


def test_the_temperature_divides_the_distance() -> None:
    # exp(-1 / 0.5) = e^-2, compared with 1
    total = 1 + 2 * math.exp(-2)
    side, middle = round(math.exp(-2) / total, 6), round(1 / total, 6)
    assert slot_weights(BalancedTreePrior(0.5), "...") == [side, middle, side]


@pytest.mark.parametrize("length", range(1, 12))
@pytest.mark.parametrize("temperature", [0.3, 1.0, 7.0])
def test_the_tree_prior_has_one_formula_for_every_span_length_and_is_symmetric(length: int, temperature: float) -> None:
    found = BalancedTreePrior(temperature).slot_weights(*masks("." * length))[0].tolist()
    middle = (length - 1) / 2
    raw = [math.exp(-abs(place - middle) / temperature) for place in range(length)]
    assert found == pytest.approx([value / sum(raw) for value in raw], abs=1e-6)
    assert found == found[::-1]


@pytest.mark.parametrize("length", [1, 2, 5, 8, 40])
def test_the_tree_prior_becomes_flat_as_the_temperature_grows(length: int) -> None:
    flat = pytest.approx([1 / length] * length, abs=1e-6)
    assert BalancedTreePrior(1e9).slot_weights(*masks("." * length))[0].tolist() == flat
    assert BalancedTreePrior(INFINITY).slot_weights(*masks("." * length))[0].tolist() == flat


@pytest.mark.parametrize("temperature", [1e-3, 1e-9, 1e-30])
def test_the_tree_prior_becomes_a_certain_middle_as_the_temperature_shrinks(temperature: float) -> None:
    prior = BalancedTreePrior(temperature)
    assert slot_weights(prior, ".....") == [0, 0, 1, 0, 0]
    assert slot_weights(prior, "....") == [0, 0.5, 0.5, 0]
    long = prior.slot_weights(*masks("." * 201))[0]
    assert int(long.argmax()) == 100
    assert float(long[100]) == 1


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_the_temperature_must_be_above_zero(temperature: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        BalancedTreePrior(temperature)


def test_left_to_right_takes_the_leftmost_missing_token() -> None:
    assert weights(LeftToRightPrior(), "-K..K.") == [0, 0, 1, 0, 0, 0]
    assert slot_weights(LeftToRightPrior(), "-K..K.") == [0, 0, 1, 0, 0, 1]


def test_a_prior_with_only_weights_has_slot_weights_too() -> None:
    assert slot_weights(LopsidedPrior(), "K..K.") == [0, 0.4, 0.6, 0, 1]  # 2 : 3, and 5 on its own
    # where the prior gives a whole span zero, its tokens have equal weights
    assert slot_weights(RightToLeftPrior(), "K..K.") == [0, 0.5, 0.5, 0, 1]


@pytest.mark.parametrize("prior", PRIORS, ids=name)
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.text("K.", min_size=1, max_size=9), min_size=1, max_size=4), left=st.booleans())
def test_weights_sum_to_one_where_a_token_is_missing_and_vanish_elsewhere(
    prior: OrderPrior, rows: list[str], left: bool
) -> None:
    width = max(map(len, rows)) + 1
    padded = [row.rjust(width, "-") if left else row.ljust(width, "-") for row in rows]
    kept, valid = (np.concatenate(part) for part in zip(*map(masks, padded), strict=True))
    found, found_in_slot = prior.weights(kept, valid), prior.slot_weights(kept, valid)
    for number, row in enumerate(padded):
        missing = [place for place, mark in enumerate(row) if mark == "."]
        assert float(found[number].sum()) == pytest.approx(float(bool(missing)), abs=1e-5)
        assert all(found[number, place] == 0 for place in range(width) if place not in missing)
        assert all(found_in_slot[number, place] == 0 for place in range(width) if place not in missing)
        for is_missing, run in itertools.groupby(range(width), key=lambda place, row=row: row[place] == "."):
            if is_missing:
                assert sum(float(found_in_slot[number, place]) for place in run) == pytest.approx(1, abs=1e-5)
        alone = prior.weights(*masks(rows[number]))[0]
        here = found[number, width - len(row.strip("-")) :] if left else found[number, : len(rows[number])]
        if not isinstance(prior, LopsidedPrior):  # weights depend on the place, and padding on the left shifts it
            assert np.allclose(here, alone)


@given(st.text("K.-", min_size=1, max_size=12))
def test_spans_are_the_runs_of_missing_tokens(row: str) -> None:
    spans = Spans.of(*masks(row))
    runs = [list(run) for missing, run in itertools.groupby(range(len(row)), key=lambda at: row[at] == ".") if missing]
    assert spans.places.tolist() == [place for run in runs for place in run]
    assert spans.lengths.tolist() == [len(run) for run in runs]
    assert spans.rank.tolist() == [rank for run in runs for rank in range(len(run))]
    assert spans.length.tolist() == [len(run) for run in runs for _ in run]
    assert int(spans.count[0, 0]) == len(runs)


def test_a_span_does_not_continue_in_the_next_row() -> None:
    spans = Spans.of(np.array([[True, False], [False, True]]), np.ones((2, 2), dtype=bool))
    assert spans.lengths.tolist() == [1, 1]


def kept_by_definition(prior: OrderPrior, row: str, count: int) -> dict[str, float]:
    """The distribution of the row after `count` insertions: the sum over all sequences of next tokens."""
    reached = {row: 1.0}
    for _ in range(count):
        after: dict[str, float] = {}
        for state, probability in reached.items():
            for place, weight in enumerate(prior.weights(*masks(state))[0].tolist()):
                if weight > 0:
                    new = state[:place] + "K" + state[place + 1 :]
                    after[new] = after.get(new, 0.0) + probability * weight
        reached = after
    return reached


def draws(prior: OrderPrior, row: str, count: int, number: int, seed: int) -> Counter[str]:
    kept, valid = (np.repeat(mask, number, 0) for mask in masks(row))
    generator = np.random.default_rng(seed)
    found = prior.sample_kept(kept, valid, np.full(number, count), generator)
    marks = {True: "K", False: "."}
    return Counter(
        "".join("-" if old == "-" else marks[new] for old, new in zip(row, one, strict=True)) for one in found.tolist()
    )


@pytest.mark.parametrize("temperature", [0.2, 1.0, INFINITY])
@pytest.mark.parametrize("row", ["....", ".....", ".K...-", "-..K..K."])
def test_the_tree_priors_kept_sets_have_the_distribution_of_its_orders(row: str, temperature: float) -> None:
    prior, number = BalancedTreePrior(temperature), 20_000
    for count in range(row.count(".") + 1):
        expected = kept_by_definition(prior, row, count)
        found = draws(prior, row, count, number, seed=count)
        assert set(found) <= set(expected)
        chi_square = sum((found[state] - number * p) ** 2 / (number * p) for state, p in expected.items() if p > 1e-3)
        assert chi_square < 2 * len(expected) + 20  # mean len - 1; about 1 in 10^5 by chance


@pytest.mark.parametrize("prior", PRIORS, ids=name)
def test_the_kept_sets_of_every_prior_have_the_distribution_of_its_orders(prior: OrderPrior) -> None:
    number = 3_000
    for count in range(4):
        expected = kept_by_definition(prior, "K..K.-", count)
        found = draws(prior, "K..K.-", count, number, seed=9)
        for state in set(found) | set(expected):
            p = expected.get(state, 0.0)
            assert found[state] / number == pytest.approx(
                p, abs=5 * math.sqrt(max(0.0, p * (1 - p)) / number) + 1e-6
            ), state


@pytest.mark.parametrize("prior", PRIORS, ids=name)
@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.text("K.-", min_size=7, max_size=7), min_size=1, max_size=5), data=st.data())
def test_the_kept_set_grows_by_the_requested_count(prior: OrderPrior, rows: list[str], data: st.DataObject) -> None:
    counts = [data.draw(st.integers(0, row.count("."))) for row in rows]
    kept, valid = (np.concatenate(part) for part in zip(*map(masks, rows), strict=True))
    generator = np.random.default_rng(data.draw(st.integers(0, 1000)))
    found = prior.sample_kept(kept, valid, np.array(counts), generator)
    assert bool((found >= kept).all())
    assert bool((found <= valid).all())
    assert (found & ~kept).sum(1).tolist() == counts


def test_kept_sets_are_reproducible_from_a_generator() -> None:
    kept, valid = (np.repeat(mask, 50, 0) for mask in masks("." * 12))
    count = np.arange(50) % 13
    for prior in PRIORS:
        one, two = (prior.sample_kept(kept, valid, count, np.random.default_rng(4)) for _ in range(2))
        assert np.array_equal(one, two)


def test_uniform_subsets_are_equally_likely() -> None:
    number = 12_000
    kept, valid = (np.repeat(mask, number, 0) for mask in masks("K.-..K."))
    found = sample_uniform_kept(kept, valid, np.full(number, 2), np.random.default_rng(0))
    counts = Counter(tuple(row) for row in found.tolist())
    assert len(counts) == math.comb(4, 2)
    assert all(count / number == pytest.approx(1 / 6, abs=0.02) for count in counts.values())


def test_nothing_is_drawn_from_an_empty_row() -> None:
    kept, valid = masks("KK-")
    for prior in PRIORS:
        assert np.array_equal(prior.sample_kept(kept, valid, np.array([0]), np.random.default_rng()), kept)
        assert prior.weights(kept, valid).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("prior", PRIORS, ids=name)
def test_rounds_insert_one_token_into_every_unfinished_slot(prior: OrderPrior) -> None:
    kept, valid = masks("K.......K..K.K---")
    rounds = prior.sample_rounds(kept, valid, np.random.default_rng(3))
    assert (rounds[kept] == 0).all()
    assert (rounds[~valid] == 0).all()
    for number in range(1, int(rounds.max()) + 1):
        before = Spans.of(kept | (rounds < number), valid)
        inserted = before.at(rounds == number)
        assert int((rounds == number).sum()) == len(before.starts), "one per span"
        assert (np.add.reduceat(inserted.astype(int), before.starts) == 1).all()
    assert (rounds[valid & ~kept] > 0).all()


def test_a_tree_at_low_temperature_takes_logarithmically_many_rounds() -> None:
    kept, valid = masks("K" + "." * 15 + "K")
    rounds = BalancedTreePrior(0.01).sample_rounds(kept, valid, np.random.default_rng(0))
    assert rounds[0].tolist() == [0, 4, 3, 4, 2, 4, 3, 4, 1, 4, 3, 4, 2, 4, 3, 4, 0]


def test_the_first_round_draws_tokens_in_proportion_to_their_slot_weights() -> None:
    prior = BalancedTreePrior(1.0)
    kept, valid = (np.repeat(mask, 20_000, 0) for mask in masks("K...K"))
    first = (prior.sample_rounds(kept, valid, np.random.default_rng(1)) == 1).mean(0)
    np.testing.assert_allclose(first, prior.slot_weights(kept[:1], valid[:1])[0], atol=0.01, rtol=0)
