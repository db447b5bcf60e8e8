"""The best of several candidates, compared with each of them decoded alone."""

from dataclasses import replace

import pytest
from insertion_models import END, SPECIALS, A, B, C, Says, TableEngine, engine_of, random_model

from kermit.canvas import Canvas, Factorization
from kermit.decoding import Decoded, DecodingSettings, Finish, Ranking, Sampling, decode
from kermit.decoding.candidates import CANDIDATE_TEMPERATURE, ranks
from kermit.errors import DecodingError

SETTINGS = DecodingSettings(max_tokens=8, candidates=5, ranking=Ranking.LIKELIHOOD)


def starts(count: int) -> list[Canvas]:
    """Canvases of 0, 1, 2, ... given tokens."""
    return [Canvas.from_ids(SPECIALS, (A,) * given, (), generate=Factorization.Y_GIVEN_X) for given in range(count)]


def one_by_one(model: TableEngine, canvas: Canvas, seed: int, settings: DecodingSettings) -> list[Decoded]:
    """Every candidate, decoded alone."""
    found = []
    for candidate in range(settings.candidates):
        drawn = settings.sampling or (Sampling(CANDIDATE_TEMPERATURE) if candidate else None)
        alone = replace(settings, candidates=1, ranking=None, sampling=drawn)
        found += decode(engine_of(model), [canvas], alone, seeds=[seed + candidate * 0x9E3779B97F4A7C15])
    return found


@pytest.mark.parametrize("sampling", [None, Sampling(1.0)], ids=["best", "drawn"])
@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_the_likeliest_candidate_is_kept_with_the_rounds_of_the_slowest(
    batch_size: int, sampling: Sampling | None
) -> None:
    model, settings = random_model(vocab_size=40, seed=2), replace(SETTINGS, sampling=sampling)
    canvases, seeds, done = starts(5)[::-1], [7, 8, 9, 10, 11], []
    found = decode(engine_of(model), canvases, settings, seeds=seeds, batch_size=batch_size, on_progress=done.append)
    kept = []
    for canvas, seed, result in zip(canvases, seeds, found, strict=True):
        candidates = one_by_one(model, canvas, seed, settings)
        best = max(candidates, key=lambda one: (one.finish is Finish.FINISHED, one.log_prob / (one.tokens + 1)))
        assert (result.canvas, result.tokens, result.finish) == (best.canvas, best.tokens, best.finish)
        assert result.log_prob == pytest.approx(best.log_prob, abs=1e-4)
        assert result.rounds == max(one.rounds for one in candidates)
        kept.append(candidates.index(best))
    assert sampling is None or len(set(kept)) > 1  # otherwise the test could not distinguish the first from the best
    assert sum(done) == 5


def test_the_greedy_text_is_replaced_by_a_likelier_one() -> None:
    # at first A is the best token, but everything after it is uncertain; after B nothing is
    after = {(A,): {A: 0.2, B: 0.2, C: 0.2, END: 0.4}, (B,): {END: 1.0}}

    def says(canvas: Canvas) -> Says:
        y = canvas.segments[1]
        here = {A: 0.55, B: 0.45} if not y else after.get(tuple(y), {END: 1.0})
        return Says(dict.fromkeys(canvas.open_slots, here))

    (best,) = decode(TableEngine(says), starts(1))
    (likeliest,) = decode(TableEngine(says), starts(1), DecodingSettings(candidates=8, ranking=Ranking.LIKELIHOOD))
    assert best.canvas.segments[1] == (A,)
    assert likeliest.canvas.segments[1] == (B,)


def test_a_finished_candidate_is_preferred_to_one_that_was_cut_off() -> None:
    model = random_model(vocab_size=40, seed=2)
    (some,) = decode(engine_of(model), starts(1), DecodingSettings(max_tokens=8))
    finished = replace(some, finish=Finish.FINISHED, log_prob=-50.0, tokens=4)
    cut_off = replace(some, finish=Finish.MAX_TOKENS, log_prob=-1.0, tokens=8)
    assert max([cut_off, finished], key=lambda one: ranks(engine_of(model), [one], Ranking.LIKELIHOOD)) is finished


def test_the_trace_is_that_of_the_kept_candidate() -> None:
    for result in decode(engine_of(random_model(vocab_size=40, seed=2)), starts(3), SETTINGS, trace=True):
        assert result.trace is not None
        assert sum(map(len, result.trace.rounds)) == result.tokens
        assert len(result.trace.rounds) <= result.rounds


def test_candidates_cannot_be_reported_by_round_or_be_zero() -> None:
    with pytest.raises(DecodingError, match="candidates"):
        decode(engine_of(random_model(vocab_size=40, seed=2)), starts(1), SETTINGS, on_round=lambda traces: None)
    with pytest.raises(DecodingError, match="at least 1, not 0"):
        DecodingSettings(candidates=0)
