"""Candidates ranked by how they agree with what was given, beside the same worked out token by token."""

import math
from dataclasses import replace

import pytest
import torch
from insertion_models import END, SPECIALS, A, B, C, Says, TableModel, random_model

from kermit.canvas import Canvas, Factorization, Segment
from kermit.canvas_batch import CanvasBatch
from kermit.decoding import DecodingSettings, Sampling, decode
from kermit.decoding.both_ways import agreement, check_given
from kermit.errors import DecodingError
from kermit.modeling import KermitForInsertion

X, Y = Segment.X, Segment.Y
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
            scores = model.score_slots(CanvasBatch.from_canvases([canvas]))
        for place, token in enumerate(tokens):
            if place % 2 == parity:
                slot = canvas.slots(side)[sum(other % 2 != parity for other in range(place))]
                row = scores.slots.tolist().index(slot)
                total += float(scores.content[row].log_softmax(0)[token])
    return total / len(tokens)


@pytest.mark.parametrize("batch_size", [1, 64])
def test_every_token_is_asked_for_once_with_its_neighbours_there(batch_size: int) -> None:
    model = random_model(vocab_size=40, seed=3)
    found = agreement(model, [Canvas.from_ids(SPECIALS, *pair) for pair in PAIRS], batch_size)
    expected = [token_by_token(model, pair, X) + token_by_token(model, pair, Y) for pair in PAIRS]
    assert found == pytest.approx(expected, abs=1e-4)
    assert found[-1] == -math.inf


def test_the_candidate_is_kept_that_agrees_best_with_what_was_given() -> None:
    model = random_model(vocab_size=40, seed=2, scale=0.6)
    settings = DecodingSettings(max_tokens=8, candidates=8, sampling=Sampling(1.0))
    canvases = [Canvas.from_ids(SPECIALS, range(4, 6 + n), (), generate=Factorization.Y_GIVEN_X) for n in range(6)]
    found = decode(model, canvases, replace(settings, both_ways=True), seeds=range(6))
    by_itself = decode(model, canvases, settings, seeds=range(6))

    def rank(result: object) -> float:
        pair = result.canvas.segments
        return token_by_token(model, pair, X) + token_by_token(model, pair, Y)

    assert all(rank(one) >= rank(other) - 1e-4 for one, other in zip(found, by_itself, strict=True))
    assert any(one.canvas != other.canvas for one, other in zip(found, by_itself, strict=True))


def test_a_text_that_leaves_out_what_was_given_gives_way_to_one_that_does_not() -> None:
    # B alone is the likeliest translation of A C, but nothing then tells of C; B C does
    def says(canvas: Canvas) -> Says:
        x, y = canvas.segments
        if canvas.open_slots.isdisjoint(canvas.slots(X)):
            slots = {slot: {END: 1.0} for slot in canvas.open_slots}
            if B not in y:
                slots[canvas.slots(Y)[0]] = {B: 1.0}
            elif C not in y:
                slots[canvas.slots(Y)[-1]] = {END: 0.6, C: 0.4}
            return Says(slots)
        missing = [token for token in (A, C) if token not in x]
        told = {token: (1.0 if token == A or C in y else 0.01) for token in missing}
        rest = 1.0 - sum(told.values()) if len(told) == 1 else 0.0
        return Says({slot: told | ({END: rest} if rest else {}) for slot in canvas.open_slots})

    start = [Canvas.from_ids(SPECIALS, (A, C), (), generate=Factorization.Y_GIVEN_X)]
    (likeliest,) = decode(TableModel(says), start, DecodingSettings(candidates=12))
    (faithful,) = decode(TableModel(says), start, DecodingSettings(candidates=12, both_ways=True))
    assert likeliest.canvas.segments[Y] == (B,)
    assert faithful.canvas.segments[Y] == (B, C)


def test_one_side_must_be_given_whole() -> None:
    check_given(Canvas.from_ids(SPECIALS, (A,), (), generate=Factorization.Y_GIVEN_X))
    check_given(Canvas.from_ids(SPECIALS, (), (A,), generate=Factorization.X_GIVEN_Y))
    for start in (
        Canvas.from_fragments(SPECIALS, [(A,), (B,)]),
        Canvas.from_ids(SPECIALS, (A,), (B,), generate=Factorization.JOINT),
        Canvas.from_ids(SPECIALS, (), (), generate=Factorization.Y_GIVEN_X),
    ):
        with pytest.raises(DecodingError, match="both_ways ranks candidates by the side that was given"):
            decode(random_model(vocab_size=40), [start], DecodingSettings(candidates=2, both_ways=True))
    with pytest.raises(DecodingError, match="raise candidates, or leave it out"):
        DecodingSettings(both_ways=True)
