"""Beam search from left to right, compared with all texts, with the best tokens, and with itself in other batches."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
from insertion_models import BLANK, CACHED_SPECIALS, END, A, B, C, Says, TableEngine, cached_model, engine_of

from kermit.canvas import Canvas, Factorization
from kermit.decoding import Constraints, DecodingSettings, Finish, Sampling, Strategy, Trace, decode
from kermit.decoding.beams import Beams
from kermit.decoding.likelihood import left_to_right_log_likelihood
from kermit.errors import DecodingError

BEAMS = DecodingSettings(Strategy.LEFT_TO_RIGHT, beams=4, max_tokens=6)


def translation(*given: int) -> Canvas:
    return Canvas.from_ids(CACHED_SPECIALS, given, (), generate=Factorization.Y_GIVEN_X)


STARTS = [
    translation(A, B),
    translation(C),
    Canvas.from_fragments(CACHED_SPECIALS, [(A,), (B, C), ()]),
    Canvas.from_fragments(CACHED_SPECIALS, [(A,), ()], [(), (C,)]),
    translation(B, B, C, A),
]


@pytest.mark.parametrize("seed", range(4))
def test_with_enough_beams_the_best_of_all_texts_is_found(seed: int) -> None:
    engine = engine_of(cached_model(seed=seed))
    texts = [text for size in range(4) for text in itertools.product((A, B, C), repeat=size)]
    pairs = [((A, B), text) for text in texts]
    log_probs = left_to_right_log_likelihood(engine, pairs, Factorization.Y_GIVEN_X)
    ranks = [float(log_prob) / (len(text) + 1) for text, log_prob in zip(texts, log_probs, strict=True)]
    best = max(range(len(texts)), key=ranks.__getitem__)
    [found] = decode(engine, [STARTS[0]], replace(BEAMS, beams=len(texts), max_tokens=3))
    assert found.canvas.segments[1] == texts[best]
    if found.finish is Finish.FINISHED:
        assert found.log_prob == pytest.approx(float(log_probs[best]), abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_one_beam_takes_the_best_tokens(seed: int) -> None:
    engine, settings = engine_of(cached_model(seed=seed)), replace(BEAMS, beams=1)
    expected = decode(engine, STARTS, settings)
    search = Beams(engine, settings, STARTS, [0] * 5, [6] * 5)
    while len(search):
        search.round()
    for index, greedy in enumerate(expected):
        found = search.results[index]
        assert (found.canvas, found.tokens, found.finish) == (greedy.canvas, greedy.tokens, greedy.finish)


@pytest.mark.parametrize("beams", [2, 3])
def test_a_text_does_not_depend_on_its_batch(beams: int) -> None:
    engine, done = engine_of(cached_model(seed=5)), []
    settings = replace(BEAMS, beams=beams)
    together = decode(engine, STARTS, settings, on_progress=done.append)
    alone = [decode(engine, [start], settings)[0] for start in STARTS]
    assert sum(done) == len(STARTS)
    for one, other in zip(together, alone, strict=True):
        assert replace(one, log_prob=0.0) == replace(other, log_prob=0.0)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)


def test_more_beams_find_likelier_texts() -> None:
    engine, means = engine_of(cached_model(seed=1)), []
    for beams in (1, 4, 16):
        texts = decode(engine, STARTS, replace(BEAMS, beams=beams))
        assert all(text.finish is Finish.FINISHED for text in texts)
        means.append(sum(text.log_prob / (text.tokens + 1) for text in texts))
    assert means[0] + 0.1 < means[1] <= means[2] + 1e-4


def doubtful(canvas: Canvas) -> Says:
    """At first A is the best token, but after it all is in doubt; after B nothing is."""
    after = {(): {A: 0.55, B: 0.45}, (A,): {A: 0.2, B: 0.2, C: 0.2, END: 0.4}}
    return Says(dict.fromkeys(canvas.open_slots, after.get(tuple(canvas.segments[1]), {END: 1.0})))


def test_the_best_first_token_gives_way_to_a_likelier_text() -> None:
    engine = TableEngine(doubtful)
    start = Canvas.from_ids(engine.specials, (A,), (), generate=Factorization.Y_GIVEN_X)
    [greedy] = decode(engine, [start], replace(BEAMS, beams=1))
    [found] = decode(engine, [start], replace(BEAMS, beams=2), trace=True)
    assert (greedy.canvas.segments[1], found.canvas.segments[1]) == ((A,), (B,))
    assert found.trace is not None
    assert [len(insertions) for insertions in found.trace.rounds] == [1, 0]
    assert Trace(found.trace.start, found.trace.rounds).canvases()[-1].segments == found.canvas.segments


def test_limits_constraints_and_rounds_hold() -> None:
    talkative = TableEngine(lambda canvas: Says({slot: {B: 0.6, C: 0.4} for slot in canvas.open_slots}))
    start = Canvas.from_fragments(talkative.specials, [(A,), (A,), ()])
    [found] = decode(talkative, [start], replace(BEAMS, constraints=Constraints(max_tokens_per_blank=2)))
    assert (found.canvas.segments, found.finish) == (((A, B, B, A, B, B),), Finish.MAX_TOKENS)
    [found] = decode(talkative, [start], replace(BEAMS, max_tokens=2, constraints=Constraints(never=frozenset({B}))))
    assert set(found.canvas.segments[0]) == {A, C}
    [found] = decode(talkative, [start], replace(BEAMS, max_rounds=3))
    assert (found.rounds, found.finish) == (3, Finish.MAX_ROUNDS)
    silent = TableEngine(lambda canvas: Says({slot: {END: 0.9, C: 0.1} for slot in canvas.open_slots}))
    [found] = decode(silent, [start], replace(BEAMS, constraints=Constraints(min_tokens_per_blank=1)))
    assert (found.canvas.segments, found.finish) == (((A, C, A, C),), Finish.FINISHED)


@pytest.mark.parametrize(
    "wrong",
    [{"beams": 0}, {"beams": 2, "candidates": 2}, {"beams": 2, "sampling": Sampling(1.0)}],
)
def test_settings_that_contradict_each_other_are_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(DecodingError, match="beams"):
        DecodingSettings(Strategy.LEFT_TO_RIGHT, **wrong)


def test_beams_need_a_search_from_left_to_right_and_cannot_be_followed() -> None:
    engine = engine_of(cached_model())
    with pytest.raises(DecodingError, match="left_to_right, not parallel"):
        decode(engine, STARTS, DecodingSettings(Strategy.PARALLEL, beams=2))
    with pytest.raises(DecodingError, match="on_round"):
        decode(engine, STARTS, BEAMS, on_round=lambda traces: None)
    assert BLANK not in decode(engine, [STARTS[2]], BEAMS)[0].canvas.segments[0]
