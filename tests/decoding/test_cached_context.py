"""Decoding with cached context: the canvases of all methods, all strategies, and their probabilities."""

import itertools
import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from insertion_models import (
    CACHED_SPECIALS,
    END,
    A,
    B,
    C,
    Says,
    TableEngine,
    cached_model,
    engine_of,
    random_model,
    scores_of,
)

from kermit.canvas import Canvas, CanvasBatch, Factorization, Insertion, Segment
from kermit.decoding import Constraints, Decoded, DecodingSettings, Finish, Ranking, Sampling, Strategy, decode
from kermit.decoding.candidates import from_left_to_right, nothing_missing, ranks
from kermit.decoding.likelihood import (
    _exact,
    _Scorer,
    exact_log_likelihood,
    left_to_right_log_likelihood,
    left_to_right_log_probs,
)
from kermit.decoding.rounds import Rounds
from kermit.errors import DecodingError, ModelError
from kermit.objectives.training_canvases import Texts

SPECIALS = CACHED_SPECIALS
STARTS = {
    "translate": Canvas.from_ids(SPECIALS, (A, B, C), (), generate=Factorization.Y_GIVEN_X),
    "translate_back": Canvas.from_ids(SPECIALS, (), (A, B, C), generate=Factorization.X_GIVEN_Y),
    "sample_pair": Canvas.from_ids(SPECIALS, (), (), generate=Factorization.JOINT),
    "sample_one": Canvas.from_ids(SPECIALS, (), (), generate=Factorization.Y),
    "infill": Canvas.from_fragments(SPECIALS, [(A,), (B,), (C,)], [(A, B), ()]),
    "complete": Canvas.from_ids(SPECIALS, (A, B), (C,), generate=Factorization.JOINT),
    "complete_one": Canvas.from_ids(SPECIALS, (A, B), (), generate=Factorization.JOINT),
}


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("job", list(STARTS))
def test_every_job_decodes_the_same_alone_and_in_a_batch(job: str, strategy: Strategy) -> None:
    model = cached_model(seed=4)
    settings = DecodingSettings(strategy, sampling=Sampling(0.8), max_tokens=6)
    canvases = [STARTS[job], STARTS["translate"], STARTS["infill"], STARTS[job]]
    together = decode(engine_of(model), canvases, settings, seeds=[1, 2, 3, 4], trace=True)
    for number, canvas in enumerate(canvases):
        [alone] = decode(engine_of(model), [canvas], settings, seeds=[number + 1], trace=True)
        assert alone.canvas == together[number].canvas
        assert alone.log_prob == pytest.approx(together[number].log_prob, abs=1e-4)
        given = [
            tuple(token for token, new in zip(side, flags, strict=True) if not new)
            for side, flags in zip(alone.canvas.segments, alone.inserted, strict=True)
        ]
        assert tuple(given) == canvas.segments  # word for word


def grown(start: Canvas, steps: int, model) -> tuple[dict[tuple[Canvas, tuple], float], float]:
    """Enumerate serial generation from a canvas up to a number of steps, with the probability of not ending."""
    flags = tuple((False,) * len(side) for side in start.segments)
    current: dict[tuple[Canvas, tuple], float] = {(start, flags): 1.0}
    ended: dict[tuple[Canvas, tuple], float] = defaultdict(float)
    for _ in range(steps + 1):
        following: dict[tuple[Canvas, tuple], float] = defaultdict(float)
        for (canvas, inserted), chance in current.items():
            scores = scores_of(model, CanvasBatch.from_canvases([canvas], inserted=[inserted]))
            content, location = scores.content.double().softmax(1), scores.location.double().softmax(0)
            for index, slot in enumerate(scores.slots.tolist()):
                here = chance * float(location[index])
                ended[canvas, inserted] += here * float(content[index, END])
                for token in (A, B, C):
                    side = next(s for s in range(len(canvas.segments)) if slot in canvas.slots(Segment(s)))
                    place = slot - canvas.slots(Segment(side))[0]
                    new = (*inserted[side][:place], True, *inserted[side][place:])
                    marks = tuple(new if number == side else row for number, row in enumerate(inserted))
                    after = canvas.insert([Insertion(slot, token)])
                    following[after, marks] += here * float(content[index, token])
        current = following
    return ended, sum(current.values())


def texts_of(found: Decoded | tuple[Canvas, tuple]) -> Texts:
    canvas, inserted = found if isinstance(found, tuple) else (found.canvas, found.inserted)
    batch = CanvasBatch.from_canvases([canvas], inserted=[inserted])
    generated = np.zeros_like(batch.valid)
    generated[0, 1 : 1 + sum(len(row) + 1 for row in inserted)] = [new for row in inserted for new in (*row, False)]
    is_open = [[not canvas.open_slots.isdisjoint(canvas.slots(Segment(s))) for s in range(len(inserted))]]
    return Texts(batch, batch.valid, generated, np.array(is_open), batch.marked)


@pytest.mark.parametrize("job", ["translate", "translate_back", "infill", "complete", "sample_pair"])
def test_the_exact_likelihood_with_given_tokens_is_that_of_generating_and_sums_to_one(job: str) -> None:
    model = cached_model(seed=2)
    ended, going_on = grown(STARTS[job], 2, model)
    assert sum(ended.values()) + going_on == pytest.approx(1.0, abs=1e-5)
    assert 0.01 < going_on < 0.99
    scorer = _Scorer(engine_of(model), 256, None)
    for found, chance in itertools.islice(ended.items(), 0, None, 11):
        assert _exact(scorer, texts_of(found)) == pytest.approx(math.log(chance), abs=1e-4)


def test_the_exact_likelihood_of_a_translation_is_that_of_the_public_function() -> None:
    model = cached_model(seed=2)
    ended, _ = grown(STARTS["translate"], 2, model)
    found = list(ended)[5]
    value = exact_log_likelihood(engine_of(model), [found[0].segments], Factorization.Y_GIVEN_X)
    assert value == pytest.approx([math.log(ended[found])], abs=1e-4)


@pytest.mark.parametrize("job", list(STARTS))
def test_left_to_right_decoding_returns_the_exact_log_probability(job: str) -> None:
    model = cached_model(seed=6)
    settings = DecodingSettings(Strategy.LEFT_TO_RIGHT, sampling=Sampling(1.0), max_tokens=30)
    found = [text for text in decode(engine_of(model), [STARTS[job]] * 12, settings) if text.finish is Finish.FINISHED]
    assert len(found) > 3
    for text in found:
        exact = float(left_to_right_log_probs(engine_of(model), texts_of(text))[0])
        assert text.log_prob == pytest.approx(exact, abs=1e-3)
        spans = len(STARTS[job].open_slots)
        assert text.rounds == text.tokens + spans  # one pass per token, and one for the end of each span


def test_left_to_right_asks_the_end_of_each_span_in_turn() -> None:
    def rule(canvas: Canvas) -> Says:
        return Says({slot: {B: 1.0} for slot in canvas.open_slots if len(canvas) < 7})

    model = TableEngine(rule)
    start = Canvas.from_fragments(model.specials, [(A,), (A,), ()])
    [found] = decode(engine_of(model), [start], DecodingSettings(Strategy.LEFT_TO_RIGHT), trace=True)
    assert found.trace is not None
    slots = [insertion.slot for number in found.trace.rounds for insertion in number]
    assert slots == [2, 3, 4]  # the first blank takes all tokens, from left to right
    assert found.canvas.segments == ((A, B, B, B, A),)


def test_minimum_and_maximum_per_blank_hold_from_left_to_right() -> None:
    talkative = TableEngine(lambda canvas: Says({slot: {B: 1.0} for slot in canvas.open_slots}))
    start = Canvas.from_fragments(talkative.specials, [(A,), (A,), ()])
    settings = DecodingSettings(Strategy.LEFT_TO_RIGHT, constraints=Constraints(max_tokens_per_blank=2))
    [found] = decode(talkative, [start], settings)
    assert found.canvas.segments == ((A, B, B, A, B, B),)
    assert found.finish is Finish.MAX_TOKENS
    [found] = decode(talkative, [start], replace(settings, constraints=Constraints(), max_tokens=3))
    assert found.tokens == 3
    assert found.finish is Finish.MAX_TOKENS
    needy = Constraints(min_tokens_per_blank=1)
    [found] = decode(talkative, [start], replace(settings, constraints=needy, max_tokens=3))
    assert found.canvas.segments == ((A, B, B, A, B),)  # the second blank gets its minimum
    silent = TableEngine(lambda canvas: Says({slot: {END: 0.9, C: 0.1} for slot in canvas.open_slots}))
    settings = DecodingSettings(Strategy.LEFT_TO_RIGHT, constraints=Constraints(min_tokens_per_blank=2))
    [found] = decode(silent, [start], settings)
    assert found.canvas.segments == ((A, C, C, A, C, C),)
    assert found.finish is Finish.FINISHED


@pytest.mark.parametrize("ranking", list(Ranking))
def test_candidates_are_ranked(ranking: Ranking) -> None:
    model = cached_model(seed=8)
    start = STARTS["translate"]
    settings = DecodingSettings(sampling=Sampling(1.0), max_tokens=8, candidates=6, ranking=ranking)
    [best] = decode(engine_of(model), [start], settings, seeds=[3])
    assert best.canvas.segments[0] == (A, B, C)


@pytest.mark.parametrize("ranking", [Ranking.AGAIN, Ranking.LEFT_TO_RIGHT, Ranking.BOTH_WAYS])
def test_ranks_do_not_depend_on_whether_the_given_parts_are_read_again(ranking: Ranking) -> None:
    engine = engine_of(cached_model(seed=8))
    jobs = ("translate", "translate_back") if ranking is Ranking.BOTH_WAYS else tuple(STARTS)
    starts = [STARTS[job] for job in jobs for _ in range(3)]
    settings = DecodingSettings(sampling=Sampling(1.0), max_tokens=6)
    rounds = Rounds(engine, settings, starts, range(len(starts)), [6] * len(starts))
    while len(rounds):
        rounds.round()
    texts = [rounds.results[number] for number in range(len(starts))]
    cached = ranks(engine, texts, ranking, batch_size=4, given=rounds.given)
    for (_, one), (_, other) in zip(cached, ranks(engine, texts, ranking), strict=True):
        assert one == pytest.approx(other, abs=1e-5)


def test_ranking_reads_no_given_token_again_and_equal_texts_once() -> None:
    engine, read = engine_of(cached_model(seed=8)), []
    ask = engine.ask

    def counting(rows, asked):
        read.append((rows.token_ids.shape, asked.full))
        return ask(rows, asked)

    engine.ask = counting
    start = Canvas.from_ids(SPECIALS, (A, B, C) * 5, (), generate=Factorization.Y_GIVEN_X)
    sampling = Sampling(0.01, top_k=2)
    settings = DecodingSettings(sampling=sampling, max_tokens=4, candidates=8, termination_penalty=20.0)
    decode(engine, [start], settings, seeds=[3])
    assert read[0][0] == (1, 18)  # [CLS], fifteen tokens and [SEP], then the block of one [SEP]
    assert all(length <= 5 for (_, length), _ in read[1:])
    assert not any(full for _, full in read)
    assert [batch for (batch, _), _ in read[-3:]] == [1, 1, 1]  # at this temperature all candidates are the same text


def test_the_likeliest_candidate_from_left_to_right_is_kept() -> None:
    model = cached_model(seed=8)
    start, sampling = STARTS["infill"], Sampling(1.0)
    settings = DecodingSettings(
        sampling=sampling, max_tokens=8, candidates=8, ranking=Ranking.LEFT_TO_RIGHT, length_reward=0.0
    )
    [best] = decode(engine_of(model), [start], settings, seeds=[3])
    others = decode(engine_of(model), [start] * 40, DecodingSettings(sampling=sampling, max_tokens=8), seeds=range(40))
    [rank] = from_left_to_right(engine_of(model), [best])
    of_others = from_left_to_right(engine_of(model), others)
    assert rank > sorted(of_others)[len(of_others) // 2]
    expected = float(left_to_right_log_probs(engine_of(model), texts_of(best))[0]) / (best.tokens + 1)
    assert rank == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("start", "way"),
    [
        (Canvas.from_ids(SPECIALS, (A, B, C), (), generate=Factorization.Y_GIVEN_X), Factorization.Y_GIVEN_X),
        (Canvas(SPECIALS, ((A, B), (C, A, B)), frozenset({2})), Factorization.X_GIVEN_Y),
        (Canvas(SPECIALS, ((A, B), (C, A)), frozenset({1, 5})), Factorization.JOINT),
        (Canvas(SPECIALS, ((A, B, C), ()), frozenset({3})), Factorization.X),
        (Canvas(SPECIALS, ((A, B, C),), frozenset({3})), Factorization.JOINT),
    ],
    ids=["translation", "blank beside a given side", "blanks on both sides", "one side empty", "one segment"],
)
def test_whole_texts_are_ranked_by_the_likelihoods_of_the_open_sides_and_of_the_fills(start, way) -> None:
    engine = engine_of(cached_model(seed=8))
    settings = DecodingSettings(sampling=Sampling(1.0), max_tokens=6)
    texts = decode(engine, [start] * 5, settings)
    found = [rank for _, rank in ranks(engine, texts, Ranking.WHOLE_TEXT, batch_size=2)]
    whole = left_to_right_log_likelihood(engine, [text.canvas.segments for text in texts], way)
    expected = [value + 0.25 * text.log_prob for value, text in zip(whole, texts, strict=True)]
    assert found == pytest.approx(expected, abs=1e-4)
    [best] = decode(engine, [start], replace(settings, candidates=12, ranking=Ranking.WHOLE_TEXT))
    [whole_of_best] = left_to_right_log_likelihood(engine, [best.canvas.segments], way)
    assert whole_of_best + 0.25 * best.log_prob > sorted(expected)[2] - 1e-4


def test_the_ends_of_a_finished_text_are_scored_with_the_given_text() -> None:
    model = cached_model(seed=8)
    [text] = decode(engine_of(model), [STARTS["infill"]], DecodingSettings(sampling=Sampling(1.0), max_tokens=6))
    scores = scores_of(model, CanvasBatch.from_canvases([text.canvas], inserted=[text.inserted]))
    expected = float(scores.content.log_softmax(1)[:, END].mean())
    assert nothing_missing(engine_of(model), [text]) == pytest.approx([expected], abs=1e-5)


def test_a_strategy_that_the_model_was_not_trained_for_is_rejected() -> None:
    tree_only, ordered_only = cached_model(orders=("balanced_tree",)), cached_model(orders=("left_to_right",))
    start = STARTS["translate"]
    with pytest.raises(DecodingError, match="left_to_right decoding needs a model trained with left_to_right"):
        decode(engine_of(tree_only), [start], DecodingSettings(Strategy.LEFT_TO_RIGHT))
    with pytest.raises(DecodingError, match="use the strategy left_to_right"):
        decode(engine_of(ordered_only), [start], DecodingSettings(Strategy.PARALLEL))
    for ranking in (Ranking.LEFT_TO_RIGHT, Ranking.WHOLE_TEXT):
        with pytest.raises(DecodingError, match=f"ranking {ranking} needs"):
            decode(engine_of(tree_only), [start], DecodingSettings(candidates=2, ranking=ranking))
    with pytest.raises(ModelError, match="left_to_right needs a model with cached_context"):
        left_to_right_log_likelihood(engine_of(random_model()), [((A,), (B,))], Factorization.Y_GIVEN_X)
