"""Limits on repeated tokens and on runaway translations."""

import itertools

import pytest
import torch
from hypothesis import given, strategies as st
from insertion_models import END, SPECIALS, A, B, Says, TableEngine, engine_of

from kermit.canvas import Canvas, Factorization
from kermit.decoding import Decoded, DecodingSettings, Finish, Sampling, Strategy, decode

START = Canvas.from_ids(SPECIALS, (A, B), (), generate=Factorization.Y_GIVEN_X)


def longest_run(tokens: tuple[int, ...]) -> int:
    return max((len(list(run)) for _, run in itertools.groupby(tokens)), default=0)


def says(*, b: float, a: float = 0.0) -> TableEngine:
    """Every slot predicts the same, whatever the canvas."""
    chances = {B: b, A: a, END: 1 - a - b}
    return TableEngine(lambda canvas: Says(dict.fromkeys(canvas.open_slots, chances)))


def decoded(model: TableEngine, start: Canvas, **settings: object) -> Decoded:
    [found] = decode(engine_of(model), [start], DecodingSettings(**settings))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_token_is_not_repeated_more_often_in_a_row_than_allowed(strategy: Strategy) -> None:
    found = decoded(says(b=0.9), START, strategy=strategy, max_repeats=3, max_tokens=20)
    assert found.canvas.segments[1] == (B, B, B)
    found = decoded(says(b=0.9), START, strategy=strategy, max_tokens=20)
    assert len(found.canvas.segments[1]) == 20


def test_the_second_choice_is_taken_if_the_first_is_forbidden() -> None:
    found = decoded(says(b=0.6, a=0.3), START, strategy=Strategy.LEFT_TO_RIGHT, max_repeats=2, max_tokens=8)
    assert found.canvas.segments[1] == (B, B, A, B, B, A, B, B)
    assert found.finish is Finish.MAX_TOKENS


def test_tokens_repeated_in_the_given_text_may_be_repeated() -> None:
    start = Canvas.from_ids(SPECIALS, (A, B, B, B, B, B), (), generate=Factorization.Y_GIVEN_X)
    found = decoded(says(b=0.9), start, max_repeats=3, max_tokens=20)
    assert found.canvas.segments[1] == (B,) * 5


def test_insertions_that_together_repeat_too_often_are_withdrawn_and_reported() -> None:
    # from B B, all three slots predict B at once; one of them fits
    start = Canvas.from_fragments(SPECIALS, [(A,)], [(), (B,), (B,), ()])
    found = decoded(says(b=0.9), start, max_repeats=3, max_tokens=20, max_rounds=1)
    assert found.canvas.segments[1] == (B, B, B)
    [finished] = decode(says(b=0.9), [START], DecodingSettings(max_repeats=3, max_tokens=20))
    assert finished.finish in (Finish.FINISHED, Finish.REPETITION)


@given(data=st.data())
def test_no_run_is_longer_than_allowed_in_any_strategy(data: st.DataObject) -> None:
    chance = data.draw(st.floats(0.3, 0.9))
    strategy = data.draw(st.sampled_from(list(Strategy)))
    most = data.draw(st.integers(1, 4))
    settings = DecodingSettings(strategy, sampling=Sampling(1.0), max_repeats=most, max_tokens=12)
    model = says(b=chance, a=(1 - chance) / 2)
    for found in decode(
        model, [START] * 3, settings, seeds=data.draw(st.lists(st.integers(0, 999), min_size=3, max_size=3))
    ):
        assert longest_run(found.canvas.segments[1]) <= most


def test_every_text_has_its_own_limits() -> None:
    found = decode(says(b=0.5, a=0.4), [START] * 3, DecodingSettings(), limits=[2, 5, 9])
    assert [text.tokens for text in found] == [2, 5, 9]
    assert {text.finish for text in found} == {Finish.MAX_TOKENS}
    assert torch.isfinite(torch.tensor([text.log_prob for text in found])).all()
