"""Candidates ranked by the model once they are complete, compared with scores computed token by token."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from insertion_models import END, SPECIALS, A, B, C, Says, TableEngine, engine_of, random_model, scores_of

from kermit.canvas import Canvas, CanvasBatch, Factorization, Segment
from kermit.decoding import Decoded, DecodingSettings, Finish, Ranking, Sampling, decode
from kermit.decoding.candidates import asked_again, check_given, nothing_missing, ranks
from kermit.errors import DecodingError
from kermit.modeling import KermitForInsertion

X, Y = Segment.X, Segment.Y
SLOT_RANKINGS = (Ranking.LIKELIHOOD, Ranking.AGAIN, Ranking.BOTH_WAYS)
PAIRS = [((4, 5, 6, 7, 8), (9, 10)), ((11,), (12, 13, 14)), ((4, 4, 4, 5), ())]


def token_by_token(model: KermitForInsertion, pair: tuple[tuple[int, ...], ...], side: Segment) -> float:
    """The mean over a side's tokens, each in the slot that it leaves when every other token of the side is missing."""
    tokens, total = pair[side], 0.0
    if not tokens:
        return -math.inf
    for parity in (0, 1):
        kept = [token for place, token in enumerate(tokens) if place % 2 != parity]
        segments = [kept if number == side else given for number, given in enumerate(pair)]
        way = Factorization.X_GIVEN_Y if side is X else Factorization.Y_GIVEN_X
        canvas = Canvas.from_ids(SPECIALS, *segments, generate=way)
        with torch.inference_mode():
            scores = scores_of(model, CanvasBatch.from_canvases([canvas]))
        for place, token in enumerate(tokens):
            if place % 2 == parity:
                slot = canvas.slots(side)[sum(other % 2 != parity for other in range(place))]
                row = scores.slots.tolist().index(slot)
                total += float(scores.content[row].log_softmax(0)[token])
    return total / len(tokens)


def ends(model: KermitForInsertion, canvas: Canvas) -> float:
    """The mean over the open slots of how likely end-of-slot is."""
    with torch.inference_mode():
        scores = scores_of(model, CanvasBatch.from_canvases([canvas]))
    return float(scores.content.log_softmax(1)[:, END].mean())


def translated(pair: tuple[tuple[int, ...], ...]) -> Decoded:
    """A pair whose second side was inserted."""
    inserted = ((False,) * len(pair[X]), (True,) * len(pair[Y]))
    canvas = Canvas.from_ids(SPECIALS, *pair, generate=Factorization.Y_GIVEN_X)
    return Decoded(canvas, 3, len(pair[Y]), Finish.FINISHED, -1.0, inserted)


def b_and_perhaps_c(canvas: Canvas) -> Says:
    """The second side is B, followed by C with probability 0.4."""
    y = canvas.segments[Y]
    slots = {slot: {END: 1.0} for slot in canvas.open_slots}
    if B not in y:
        slots[canvas.slots(Y)[0]] = {B: 1.0}
    elif C not in y:
        slots[canvas.slots(Y)[-1]] = {END: 0.6, C: 0.4}
    return Says(slots)


@pytest.mark.parametrize("batch_size", [1, 64])
def test_every_token_is_predicted_once_with_its_neighbours_present(batch_size: int) -> None:
    model = random_model(vocab_size=40, seed=3)
    texts = [translated(pair) for pair in PAIRS]
    again = asked_again(engine_of(model), texts)
    assert again == pytest.approx([token_by_token(model, pair, Y) for pair in PAIRS], abs=1e-4)
    assert again[-1] == -math.inf
    back = asked_again(engine_of(model), texts, inserted=False)
    assert back == pytest.approx([token_by_token(model, pair, X) for pair in PAIRS], abs=1e-4)
    end = [ends(model, text.canvas) for text in texts]
    found = {
        ranking: [rank for _, rank in ranks(engine_of(model), texts, ranking, batch_size)] for ranking in SLOT_RANKINGS
    }
    assert found[Ranking.AGAIN] == pytest.approx([sum(parts) for parts in zip(again, end, strict=True)], abs=1e-4)
    expected = [sum(parts) for parts in zip(again, end, back, strict=True)]
    assert found[Ranking.BOTH_WAYS] == pytest.approx(expected, abs=1e-4)
    assert found[Ranking.LIKELIHOOD] == [-1.0 / (text.tokens + 1) for text in texts]


def test_with_sequence_termination_stopping_is_scored() -> None:
    model = random_model(vocab_size=40, seed=3, termination="sequence")
    text = translated(PAIRS[0])
    with torch.inference_mode():
        scores = scores_of(model, CanvasBatch.from_canvases([text.canvas]))
    actions = torch.cat([scores.location, scores.stop])
    assert nothing_missing(engine_of(model), [text]) == pytest.approx([float(actions.log_softmax(0)[-1])], abs=1e-4)
    closed = replace(text, canvas=Canvas.from_ids(SPECIALS, *PAIRS[0]))
    assert nothing_missing(engine_of(model), [closed, text]) == pytest.approx(
        [0.0, *nothing_missing(engine_of(model), [text])]
    )


def test_only_tokens_inserted_into_fragments_are_predicted_again() -> None:
    # A _ B _ with what was given in place: each inserted token is the only one missing, the other is the second asked
    model = random_model(vocab_size=40, seed=4)
    canvas = Canvas(SPECIALS, ((A, 9, B, 10),), frozenset({2, 3, 4, 5}))
    text = Decoded(canvas, 2, 2, Finish.FINISHED, -1.0, ((False, True, False, True),))
    expected = []
    for fragments, token in (([(A,), (B, 10)], 9), ([(A, 9, B), ()], 10)):
        with torch.inference_mode():
            scores = scores_of(model, CanvasBatch.from_canvases([Canvas.from_fragments(SPECIALS, fragments)]))
        assert len(scores.slots) == 1
        expected.append(float(scores.content[0].log_softmax(0)[token]))
    assert asked_again(engine_of(model), [text]) == pytest.approx([sum(expected) / 2], abs=1e-4)


def test_a_candidate_that_is_unfinished_or_inserts_nothing_ranks_last() -> None:
    model = random_model(vocab_size=40, seed=3)
    finished, empty = translated(PAIRS[0]), translated(PAIRS[2])
    cut = replace(finished, finish=Finish.MAX_TOKENS)
    for ranking in SLOT_RANKINGS:
        one, other, nothing = ranks(engine_of(model), [finished, cut, empty], ranking)
        assert one > other
        assert ranking is Ranking.LIKELIHOOD or nothing[1] == -math.inf
    assert ranks(engine_of(model), [empty], Ranking.AGAIN) == [(True, -math.inf)]


def test_a_text_that_was_already_complete_is_ranked_only_by_its_ends() -> None:
    model = random_model(vocab_size=40, seed=3)
    canvas = Canvas.from_ids(SPECIALS, (A, B), (9, 10), generate=Factorization.Y_GIVEN_X)
    whole = Decoded(canvas, 1, 0, Finish.FINISHED, -1.0, ((False, False), (False, False)))
    assert ranks(engine_of(model), [whole], Ranking.AGAIN) == [(True, pytest.approx(ends(model, canvas), abs=1e-4))]


def test_both_ways_scores_the_given_side_and_not_given_fragments_of_the_other() -> None:
    model, pair = random_model(vocab_size=40, seed=3), PAIRS[0]
    fragments = replace(translated(pair), inserted=((False,) * len(pair[X]), (True, False)))
    found = asked_again(engine_of(model), [fragments, translated(pair)], inserted=False)
    assert found == pytest.approx([token_by_token(model, pair, X)] * 2, abs=1e-4)


@pytest.mark.parametrize("settings", [{"copy_width": 4}, {"slot_vector": "right"}], ids=str)
def test_predictions_do_not_depend_on_the_other_slots_asked(settings: dict[str, Any]) -> None:
    model = random_model(vocab_size=40, seed=5, **settings)
    assert asked_again(engine_of(model), [translated(PAIRS[0])]) == pytest.approx(
        [token_by_token(model, PAIRS[0], Y)], abs=1e-4
    )


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_the_candidate_with_the_likeliest_tokens_once_complete_is_kept(batch_size: int) -> None:
    model = random_model(vocab_size=40, seed=2, scale=0.6)
    settings = DecodingSettings(max_tokens=8, candidates=8, sampling=Sampling(1.0), ranking=Ranking.LIKELIHOOD)
    canvases = [Canvas.from_ids(SPECIALS, range(4, 6 + n), (), generate=Factorization.Y_GIVEN_X) for n in range(6)]
    seeds = range(6)
    found = decode(engine_of(model), canvases, replace(settings, ranking=None), seeds=seeds, batch_size=batch_size)
    by_itself = decode(engine_of(model), canvases, settings, seeds=seeds)

    def rank(one: Decoded) -> float:
        return token_by_token(model, one.canvas.segments, Y) + ends(model, one.canvas)

    again = [[rank(one) for one in results] for results in (found, by_itself)]
    assert all(one >= other - 1e-4 for one, other in zip(*again, strict=True))
    assert any(one.canvas != other.canvas for one, other in zip(found, by_itself, strict=True))


def test_the_candidate_that_agrees_best_with_the_given_side_is_kept() -> None:
    model = random_model(vocab_size=40, seed=2, scale=0.6)
    settings = DecodingSettings(max_tokens=8, candidates=8, sampling=Sampling(1.0), ranking=Ranking.LIKELIHOOD)
    canvases = [Canvas.from_ids(SPECIALS, range(4, 6 + n), (), generate=Factorization.Y_GIVEN_X) for n in range(6)]
    found = decode(engine_of(model), canvases, replace(settings, ranking=Ranking.BOTH_WAYS), seeds=range(6))
    by_itself = decode(engine_of(model), canvases, settings, seeds=range(6))

    def rank(result: object) -> float:
        pair = result.canvas.segments
        return token_by_token(model, pair, X) + token_by_token(model, pair, Y) + ends(model, result.canvas)

    assert all(rank(one) >= rank(other) - 1e-4 for one, other in zip(found, by_itself, strict=True))
    assert any(one.canvas != other.canvas for one, other in zip(found, by_itself, strict=True))


def test_a_text_that_omits_part_of_the_source_loses_to_one_that_does_not() -> None:
    # B alone is the likeliest translation of A C, but then nothing corresponds to C; with B C it does
    def says(canvas: Canvas) -> Says:
        x, y = canvas.segments
        if canvas.open_slots.isdisjoint(canvas.slots(X)):
            return b_and_perhaps_c(canvas)
        missing = [token for token in (A, C) if token not in x]
        told = {token: (1.0 if token == A or C in y else 0.01) for token in missing}
        rest = 1.0 - sum(told.values()) if len(told) == 1 else 0.0
        return Says({slot: told | ({END: rest} if rest else {}) for slot in canvas.open_slots})

    start = [Canvas.from_ids(SPECIALS, (A, C), (), generate=Factorization.Y_GIVEN_X)]
    (likeliest,) = decode(TableEngine(says), start, DecodingSettings(candidates=12, ranking=Ranking.LIKELIHOOD))
    (faithful,) = decode(TableEngine(says), start, DecodingSettings(candidates=12, ranking=Ranking.BOTH_WAYS))
    (again,) = decode(TableEngine(says), start, DecodingSettings(candidates=12, ranking=Ranking.AGAIN))
    assert likeliest.canvas.segments[Y] == again.canvas.segments[Y] == (B,)
    assert faithful.canvas.segments[Y] == (B, C)


def test_the_length_reward_is_the_logarithm_of_the_inserted_tokens() -> None:
    model = random_model(vocab_size=40, seed=3)
    texts = [translated(pair) for pair in PAIRS[:2]]
    for ranking in SLOT_RANKINGS:
        plain = ranks(engine_of(model), texts, ranking)
        rewarded = ranks(engine_of(model), texts, ranking, length_reward=0.7)
        expected = [rank + 0.7 * math.log(len(pair[Y])) for (_, rank), pair in zip(plain, PAIRS, strict=False)]
        assert [rank for _, rank in rewarded] == pytest.approx(expected, abs=1e-4)
    assert (
        ranks(engine_of(model), [translated(PAIRS[2])], Ranking.AGAIN, length_reward=0.7)[0][1] == -math.inf
    )  # still no text


@pytest.mark.parametrize(("reward", "kept"), [(None, (B,)), (0.0, (B,)), (2.0, (B, C))])
def test_with_a_reward_the_longer_of_two_candidates_is_kept(reward: float | None, kept: tuple[int, ...]) -> None:
    start = [Canvas.from_ids(SPECIALS, (A,), (), generate=Factorization.Y_GIVEN_X)]
    (found,) = decode(TableEngine(b_and_perhaps_c), start, DecodingSettings(candidates=12, length_reward=reward))
    assert found.canvas.segments[Y] == kept


def test_one_side_must_be_given_whole() -> None:
    check_given(Canvas.from_ids(SPECIALS, (A,), (), generate=Factorization.Y_GIVEN_X))
    check_given(Canvas.from_ids(SPECIALS, (), (A,), generate=Factorization.X_GIVEN_Y))
    for start in (
        Canvas.from_fragments(SPECIALS, [(A,), (B,)]),
        Canvas.from_ids(SPECIALS, (A,), (B,), generate=Factorization.JOINT),
        Canvas.from_ids(SPECIALS, (), (), generate=Factorization.Y_GIVEN_X),
    ):
        with pytest.raises(DecodingError, match="both_ways ranking needs"):
            decode(
                engine_of(random_model(vocab_size=40)),
                [start],
                DecodingSettings(candidates=2, ranking=Ranking.BOTH_WAYS),
            )
    with pytest.raises(DecodingError, match="set candidates above 1"):
        DecodingSettings(ranking=Ranking.BOTH_WAYS)
    with pytest.raises(DecodingError, match="length_reward needs more than one candidate"):
        DecodingSettings(length_reward=0.5)
    with pytest.raises(DecodingError, match="length_reward must be a finite number, not inf"):
        DecodingSettings(candidates=2, length_reward=math.inf)
    with pytest.raises(DecodingError, match="ranking must be one of"):
        DecodingSettings(candidates=2, ranking="luck")
