"""The engine of torch models: caching changes what is read, not what is predicted."""

from dataclasses import replace

import numpy as np
import pytest
from insertion_models import BLANK, CACHED_SPECIALS, END, A, B, C, cached_model

from kermit.canvas import Canvas, CanvasBatch, Factorization
from kermit.canvas.context import generations_of
from kermit.decoding import Constraints, DecodingSettings, Ranking, Sampling, Strategy, decode
from kermit.decoding.asking import ask_canvases, context_rows, lay_out_for
from kermit.engines import Answer, Asked, Rows
from kermit.engines.torch_engine import TorchEngine

STARTS = [
    Canvas.from_ids(CACHED_SPECIALS, (A, B, C, A, B), (), generate=Factorization.Y_GIVEN_X),
    Canvas.from_ids(CACHED_SPECIALS, (), (A, B), generate=Factorization.X_GIVEN_Y),
    Canvas.from_ids(CACHED_SPECIALS, (), (), generate=Factorization.JOINT),
    Canvas.from_fragments(CACHED_SPECIALS, [(A,), (B,), (C,)], [(A, B), ()]),
    Canvas.from_ids(CACHED_SPECIALS, (A, B), (), generate=Factorization.JOINT),
]


class Noting(TorchEngine):
    """Records its calls; can be created without a cache."""

    def __init__(self, model, *, caches: bool = True) -> None:
        super().__init__(model)
        self.caches = self.caches and caches
        self.calls: list[tuple[Rows, Asked]] = []

    def ask(self, rows: Rows, asked: Asked) -> Answer:
        self.calls.append((rows, asked))
        return super().ask(rows, asked)

    @property
    def read(self) -> int:
        """The number of tokens read."""
        return sum(int((rows.token_ids != 0).sum()) for rows, _ in self.calls)


@pytest.mark.parametrize("sampling", [None, Sampling(0.9), Sampling(1.2, top_k=2)], ids=["best", "drawn", "top_k"])
@pytest.mark.parametrize("strategy", list(Strategy))
def test_texts_are_the_same_with_and_without_a_cache(strategy: Strategy, sampling: Sampling | None) -> None:
    settings = DecodingSettings(strategy, sampling=sampling, max_tokens=9)
    engines = [Noting(cached_model(seed=4), caches=caches) for caches in (True, False)]
    with_cache, without = (decode(engine, STARTS * 2, settings, batch_size=4, trace=True) for engine in engines)
    for one, other in zip(with_cache, without, strict=True):
        assert one.canvas == other.canvas
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
    assert engines[0].read < engines[1].read


def test_given_tokens_are_read_once() -> None:
    engine = Noting(cached_model(seed=4))
    settings = DecodingSettings(termination_penalty=50.0, max_tokens=7)
    [found] = decode(engine, STARTS[:1], settings)
    assert [rows.token_ids.shape[1] for rows, _ in engine.calls] == [7 + 1, 2, 4, 8][: found.rounds]
    assert engine.calls[0][0].past is None
    assert all(rows.past is not None and rows.past.length == 7 for rows, _ in engine.calls[1:])


def test_left_to_right_every_token_is_read_once() -> None:
    engine = Noting(cached_model(seed=4))
    [found] = decode(engine, STARTS[3:4], DecodingSettings(Strategy.LEFT_TO_RIGHT, max_tokens=9))
    assert {rows.token_ids.shape[1] for rows, _ in engine.calls[1:]} == {1}
    blanks = len(STARTS[3].open_slots)  # each has a marker in the given part and another that begins its span
    given = 1 + 3 + 1 + 2 + 1 + blanks
    assert engine.read == given + blanks + found.tokens


@pytest.mark.parametrize("strategy", list(Strategy))
def test_candidates_share_the_given_tokens_and_the_first_round(strategy: Strategy) -> None:
    engine = Noting(cached_model(seed=4))
    settings = DecodingSettings(
        strategy, termination_penalty=50.0, max_tokens=6, candidates=5, ranking=Ranking.LIKELIHOOD
    )
    decode(engine, STARTS[:2], settings)
    first, second = engine.calls[:2]
    assert len(first[0].token_ids) == 2
    assert len(second[0].token_ids) == 10
    assert second[0].past is not None


def test_an_engine_is_asked_only_for_what_is_needed() -> None:
    engine = Noting(cached_model(seed=4))

    def asked(settings: DecodingSettings, start: Canvas = STARTS[0]) -> set[tuple[int, bool]]:
        engine.calls.clear()
        decode(engine, [start], settings)
        return {(question.top, question.full) for _, question in engine.calls}

    best = DecodingSettings(max_tokens=5)
    assert asked(best) == {(1, False)}
    assert asked(replace(best, max_repeats=9)) == {(1, False)}
    assert asked(replace(best, sampling=Sampling(0.7, top_k=2))) == {(2, False)}
    assert asked(replace(best, sampling=Sampling(0.7))) == {(1, True)}
    assert asked(replace(best, constraints=Constraints(never=frozenset({A})))) == {(8, False)}
    # a token that may not be repeated is detected, and further tokens are requested
    assert (1, True) in asked(replace(best, max_repeats=1, termination_penalty=50.0))


def test_forbidden_tokens_are_skipped_as_with_the_full_vocabulary() -> None:
    model = cached_model(seed=4)

    class Telling(TorchEngine):
        """Returns the full distribution, whatever is requested."""

        def ask(self, rows: Rows, asked: Asked) -> Answer:
            return super().ask(rows, replace(asked, full=True))

    for settings in (
        DecodingSettings(max_tokens=8, max_repeats=1, termination_penalty=3.0),
        DecodingSettings(max_tokens=8, max_repeats=1, sampling=Sampling(1.0, top_k=2)),
        DecodingSettings(max_tokens=8, candidates=4, max_repeats=1, termination_penalty=3.0),
        DecodingSettings(max_tokens=8, constraints=Constraints(never=frozenset({A, B}), min_tokens_per_blank=2)),
    ):
        one, other = (decode(engine, STARTS, settings) for engine in (TorchEngine(model), Telling(model)))
        assert [found.canvas for found in one] == [found.canvas for found in other]
        assert any(found.tokens > 1 for found in one)


def test_an_answer_has_the_best_tokens_without_end_of_slot_and_their_log_probabilities() -> None:
    engine = TorchEngine(cached_model(seed=4))
    found = ask_canvases(engine, CanvasBatch.from_canvases(STARTS), top=2, full=True).answer
    assert found.content is not None
    np.testing.assert_allclose(np.exp(found.content).sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(found.content[:, END], found.end, atol=1e-6)
    others = found.content.copy()
    others[:, END] = -np.inf
    assert found.tokens.tolist() == np.argsort(-others, axis=1)[:, :2].tolist()
    np.testing.assert_allclose(found.log_probs, -np.sort(-others, axis=1)[:, :2], atol=1e-6)
    assert (found.content[:, BLANK] == -np.inf).all()
    assert found.log_probs.dtype == found.end.dtype == found.content.dtype == found.location.dtype == np.float32


def test_a_cache_can_be_truncated_and_its_rows_selected() -> None:
    engine = TorchEngine(cached_model(seed=4))
    canvases = CanvasBatch.from_canvases(STARTS[:1] * 2)
    layout = lay_out_for(engine.info, generations_of(canvases))
    slots = layout.slots
    whole = engine.ask(context_rows(layout.rows), Asked(slots.left, slots.right, full=True))
    assert whole.cache is not None
    given = whole.cache.first(7).select(np.array([1, 1, 0]))
    assert given.length == 7
    rows = context_rows(layout.rows)
    block = Rows(
        np.repeat(rows.token_ids[:1, 7:], 3, 0),
        np.repeat(rows.segment_ids[:1, 7:], 3, 0),
        np.repeat(rows.positions[:1, 7:], 3, 0),
        np.repeat(rows.orders[:1, 7:], 3, 0),
        np.repeat(rows.mask[:1, 7:], 3, 0),
        given,
    )
    width = rows.token_ids.shape[1]
    left, right = (int(place[0]) + width * np.arange(3) for place in (slots.left, slots.right))
    again = engine.ask(block, Asked(left, right, full=True))
    assert again.content is not None
    assert whole.content is not None
    np.testing.assert_allclose(again.content[:, 3:], np.repeat(whole.content[:1, 3:], 3, 0), atol=1e-5)
