"""Drawing: hashed numbers are uniform, and draws have the requested probabilities."""

import math

import numpy as np
import pytest

from kermit.decoding.limits import best_of_group, keep_best
from kermit.decoding.sampling import draw, uniform
from kermit.decoding.settings import Constraints, DecodingSettings, Sampling
from kermit.errors import DecodingError

PROBABILITIES = np.array([0.5, 0.05, 0.15, 0.3])


def shares(sampling: Sampling, number: int = 100_000) -> list[float]:
    """How often each is drawn."""
    noise = (np.arange(number) + 0.5) / number
    found = draw(np.log(PROBABILITIES)[None].repeat(number, 0), sampling, noise)
    return (np.bincount(found, minlength=4) / number).tolist()


def test_a_draw_has_the_models_probabilities() -> None:
    assert shares(Sampling()) == pytest.approx([0.5, 0.05, 0.15, 0.3], abs=0.005)


def test_temperature_sharpens_and_flattens() -> None:
    squares = PROBABILITIES**2 / (PROBABILITIES**2).sum()
    assert shares(Sampling(temperature=0.5)) == pytest.approx(squares.tolist(), abs=0.005)
    assert shares(Sampling(temperature=1e6)) == pytest.approx([0.25] * 4, abs=0.005)
    assert shares(Sampling(temperature=1e-3)) == [1, 0, 0, 0]


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_extreme_sampling_settings_draw_the_best_token_or_all_equally(scale: float) -> None:
    logits = scale * np.array([[-2.0, -np.inf, -1.0, -3.0]]).repeat(3, 0)
    noise = np.array([1e-16, 0.5, 1 - 1e-16])
    for sharp in (Sampling(temperature=1e-320), Sampling(top_p=1e-320), Sampling(temperature=1e-2, top_p=1e-9)):
        assert draw(logits, sharp, noise).tolist() == [2, 2, 2]
    noise = uniform(np.arange(30_000), 0)
    flat = draw(logits[:1].repeat(len(noise), 0), Sampling(temperature=1e308), noise)
    assert (np.bincount(flat, minlength=4) / len(noise)).tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3], abs=0.01)


def test_top_k_draws_from_the_k_best() -> None:
    assert shares(Sampling(top_k=1)) == [1, 0, 0, 0]
    assert shares(Sampling(top_k=2)) == pytest.approx([0.625, 0, 0, 0.375], abs=0.005)
    assert shares(Sampling(top_k=9)) == pytest.approx([0.5, 0.05, 0.15, 0.3], abs=0.005)


def test_top_p_draws_from_the_fewest_tokens_that_reach_it() -> None:
    assert shares(Sampling(top_p=0.4)) == [1, 0, 0, 0]
    assert shares(Sampling(top_p=0.7)) == pytest.approx([0.625, 0, 0, 0.375], abs=0.005)
    assert shares(Sampling(top_p=0.9)) == pytest.approx([0.5 / 0.95, 0, 0.15 / 0.95, 0.3 / 0.95], abs=0.005)
    assert shares(Sampling(top_p=1.0)) == pytest.approx([0.5, 0.05, 0.15, 0.3], abs=0.005)


def test_impossible_tokens_are_never_drawn() -> None:
    logits = np.array([[-np.inf, 0.0, -np.inf, 0.0, -np.inf]]).repeat(3, 0)
    noise = np.array([1e-16, 0.5, 1 - 1e-16])
    assert set(draw(logits, Sampling(), noise).tolist()) <= {1, 3}


def test_rounding_hardly_ever_changes_what_is_drawn() -> None:
    """Half of the probability lies in a tail of 8,000 tokens, as label smoothing has it; one logit is a little off."""
    logits = np.full((2000, 8000), math.log(0.5 / 7999))
    logits[:, 0] = math.log(0.5)
    nearly = logits.copy()
    nearly[:, 0] += 1e-4
    noise = uniform(np.arange(2000), 0)
    drawn = draw(logits, Sampling(), noise)
    assert int((drawn != draw(nearly, Sampling(), noise)).sum()) <= 2
    assert len(np.unique(drawn)) > 800


def test_the_waiting_times_of_two_slots_are_independent() -> None:
    """If each slot draws one of ten uniformly, pairs of draws are uniform too."""
    seeds, logits = np.arange(50_000), np.zeros((50_000, 10))
    first, second = (draw(logits, Sampling(), uniform(seeds, 0, np.full_like(seeds, slot))) for slot in (1, 2))
    counts = np.bincount(first * 10 + second, minlength=100)
    assert float(((counts - 500.0) ** 2 / 500).sum()) < 160  # chi-square with 99 degrees of freedom


def test_hashed_numbers_are_uniform_and_differ_by_seed_round_slot_and_purpose() -> None:
    seeds = np.arange(40).repeat(50)
    slots = np.tile(np.arange(50), 40)
    numbers = np.concatenate([*(uniform(seeds, number, slots) for number in range(10)), uniform(np.arange(40), 0)])
    assert len(np.unique(numbers)) == len(numbers)
    assert float(numbers.min()) > 0
    assert float(numbers.max()) < 1
    counts = np.histogram(numbers, 20, (0, 1))[0]
    expected = len(numbers) / 20
    assert float(((counts - expected) ** 2 / expected).sum()) < 60  # chi-square with 19 degrees of freedom
    pairs = np.stack([uniform(seeds, 0, slots), uniform(seeds, 1, slots)])
    assert abs(float(np.corrcoef(pairs)[0, 1])) < 0.1


@pytest.mark.parametrize("sampling", [Sampling(0.7, top_k=5), Sampling(1.3, top_k=5, top_p=0.6), Sampling(top_k=1)])
def test_a_draw_from_the_k_best_does_not_depend_on_how_many_tokens_are_returned(sampling: Sampling) -> None:
    random = np.random.default_rng(0)
    scores = np.log(random.dirichlet(np.full(50, 0.3), size=3000)).astype(np.float32)
    scores[::3] = np.round(scores[::3])  # with many ties
    noise = uniform(np.arange(3000), 4)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :7]
    known = draw(np.take_along_axis(scores, best, 1), sampling, noise, best)
    found = best[np.arange(3000), known]
    assert found.tolist() == draw(scores, sampling, noise).tolist()
    assert len(np.unique(found)) > 20


def test_the_best_of_each_group_is_kept() -> None:
    wanting = np.array([True, True, False, True, True])
    score = np.array([0.1, 0.3, 0.9, 0.2, 0.5])
    group = np.array([0, 0, 0, 0, 1])
    assert keep_best(wanting, score, group, np.array([2, 0])).tolist() == [False, True, False, True, False]
    assert keep_best(wanting, score, group, np.array([9, 9])).tolist() == wanting.tolist()
    assert best_of_group(np.array([1.0, 2.0, 2.0, -np.inf]), np.array([0, 0, 0, 1]), 2).tolist() == [
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sampling(temperature=0), "temperature must be a number above 0"),
        (lambda: Sampling(temperature=float("inf")), "temperature must be a number above 0"),
        (lambda: DecodingSettings(termination_penalty=float("nan")), "termination_penalty must be a finite number"),
        (lambda: Sampling(top_k=0), "top_k must be at least 1"),
        (lambda: Sampling(top_p=0), "top_p must be above 0"),
        (lambda: Sampling(top_p=1.5), "top_p must be above 0 and at most 1"),
        (lambda: Constraints(min_tokens_per_blank=-1), "min_tokens_per_blank must be at least 0"),
        (lambda: Constraints(min_tokens_per_blank=3, max_tokens_per_blank=2), "no less than min_tokens_per_blank"),
        (lambda: Constraints(max_tokens_per_blank=0), "max_tokens_per_blank must be at least 1"),
        (lambda: DecodingSettings(max_rounds=0), "max_rounds must be at least 1"),
        (lambda: DecodingSettings(max_tokens=0), "max_tokens must be at least 1"),
    ],
)
def test_impossible_settings_are_errors(make: object, message: str) -> None:
    with pytest.raises(DecodingError, match=message):
        make()  # type: ignore[operator]
