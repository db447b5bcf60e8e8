"""Parallel decoding ends without a last round where the model predicts that every slot is complete."""

import math

import pytest
from insertion_models import END, SPECIALS, A, B, C, Says, TableEngine

from kermit.canvas import Canvas, Factorization
from kermit.decoding import Constraints, Decoded, DecodingSettings, Finish, Sampling, Strategy, decode
from kermit.errors import DecodingError

SURE, COMPLETE = 0.99, 0.97
PARALLEL = DecodingSettings(strategy=Strategy.PARALLEL)


def speller(text: tuple[int, ...], completion: float = COMPLETE, **settings: object) -> TableEngine:
    """A model of one text that predicts the middle of each span, and completion where one token is missing."""

    def rule(canvas: Canvas) -> Says:
        content, complete = {}, {}
        present = canvas.segments[0]
        for slot in canvas.open_slots:
            start = text.index(present[slot - 2]) + 1 if slot > 1 else 0
            end = text.index(present[slot - 1]) if slot <= len(present) else len(text)
            span = text[start:end]
            content[slot] = {span[len(span) // 2]: SURE, END: 1 - SURE} if span else {END: SURE, A: 1 - SURE}
            complete[slot] = completion if len(span) == 1 else 1 - completion
        return Says(content, completion=complete)

    return TableEngine(rule, predicts_completion=True, vocab_size=64, **settings)  # type: ignore[arg-type]


def blank() -> Canvas:
    return Canvas.from_ids(SPECIALS, (), (), generate=Factorization.X)


def one(model: TableEngine, settings: DecodingSettings = PARALLEL, **more: object) -> Decoded:
    return decode(model, [blank()], settings, **more)[0]  # type: ignore[arg-type]


SEVEN, FIVE = tuple(range(10, 17)), tuple(range(20, 25))


def test_the_round_that_finds_nothing_more_is_not_asked() -> None:
    result = one(speller(SEVEN), trace=True)
    assert result.canvas.segments == (SEVEN, ())
    assert (result.rounds, result.tokens, result.finish) == (3, 7, Finish.FINISHED)  # 1 + 2 + 4
    assert result.trace is not None
    assert [len(insertions) for insertions in result.trace.rounds] == [1, 2, 4]
    # seven insertions, and four slots that are complete
    assert result.log_prob == pytest.approx(7 * math.log(SURE) + 4 * math.log(COMPLETE), abs=1e-5)


def test_slots_that_predict_end_of_slot_count_with_their_probability() -> None:
    result = one(speller(FIVE))
    # rounds insert 1, 2 and 2 tokens: the middle, both halves' later tokens, and what is left of them
    assert (result.canvas.segments, result.rounds) == ((FIVE, ()), 3)
    ends = 2 * math.log(SURE) + 2 * math.log(COMPLETE)
    assert result.log_prob == pytest.approx(5 * math.log(SURE) + ends, abs=1e-5)


@pytest.mark.parametrize("early_finish", [1.0, 0.86])  # (0.99 * 0.97) ** 4 is 0.85
def test_below_the_threshold_the_model_is_asked_again(early_finish: float) -> None:
    result = one(speller(SEVEN), DecodingSettings(strategy=Strategy.PARALLEL, early_finish=early_finish))
    assert (result.canvas.segments, result.rounds) == ((SEVEN, ()), 4)
    assert result.log_prob == pytest.approx(15 * math.log(SURE), abs=1e-5)


@pytest.mark.parametrize(("early_finish", "rounds"), [(0.85, 3), (0.4, 3), (0.86, 4)])
def test_the_threshold_is_the_probability_of_all_tokens_and_completions(early_finish: float, rounds: int) -> None:
    assert one(speller(SEVEN), DecodingSettings(strategy=Strategy.PARALLEL, early_finish=early_finish)).rounds == rounds


@pytest.mark.parametrize(("token", "completion"), [(0.99, 0.5), (0.55, 0.99)], ids=["completion", "token"])
def test_one_doubtful_slot_is_enough_to_ask_again(token: float, completion: float) -> None:
    def rule(canvas: Canvas) -> Says:
        if not canvas.segments[0]:
            return Says({1: {B: SURE, END: 1 - SURE}})
        if canvas.segments[0] == (B,):
            slots = {1: {A: SURE, END: 1 - SURE}, 2: {A: token, END: 1 - token}}
            return Says(slots, completion={1: 0.99, 2: completion})
        return Says({})

    assert one(TableEngine(rule, predicts_completion=True)).rounds == 3


def test_sampled_texts_and_candidates_end_early_too() -> None:
    settings = DecodingSettings(strategy=Strategy.PARALLEL, sampling=Sampling(top_k=1))
    assert one(speller(SEVEN), settings).rounds == 3
    candidates = one(
        speller(SEVEN), DecodingSettings(strategy=Strategy.PARALLEL, candidates=3, sampling=Sampling(top_k=1))
    )
    assert (candidates.canvas.segments, candidates.rounds) == ((SEVEN, ()), 3)


def test_a_text_without_room_for_a_token_is_cut_not_complete() -> None:
    result = one(speller(SEVEN), DecodingSettings(strategy=Strategy.PARALLEL, max_tokens=6))
    assert (result.tokens, result.finish) == (6, Finish.MAX_TOKENS)


def test_a_blank_that_needs_more_tokens_is_not_complete() -> None:
    def rule(canvas: Canvas) -> Says:
        said = {A: SURE, END: 1 - SURE} if len(canvas.segments[0]) < 2 else {END: SURE, C: 1 - SURE}
        slots = canvas.open_slots
        return Says(dict.fromkeys(slots, said), completion=dict.fromkeys(slots, COMPLETE))

    model = TableEngine(rule, predicts_completion=True)
    assert one(model).tokens == 1
    constraints = Constraints(min_tokens_per_blank=3)
    assert one(model, DecodingSettings(strategy=Strategy.PARALLEL, constraints=constraints)).tokens >= 3


def test_a_withdrawn_repeat_is_not_complete() -> None:
    def rule(canvas: Canvas) -> Says:
        slots = canvas.open_slots
        return Says({slot: {A: SURE, END: 1 - SURE} for slot in slots}, completion=dict.fromkeys(slots, COMPLETE))

    settings = DecodingSettings(strategy=Strategy.PARALLEL, early_finish=0.99, max_repeats=2)
    assert one(TableEngine(rule, predicts_completion=True), settings).finish is Finish.REPETITION


@pytest.mark.parametrize("value", [0.0, -0.5, 1.5, math.nan])
def test_the_threshold_is_a_probability(value: float) -> None:
    with pytest.raises(DecodingError, match="early_finish must be"):
        DecodingSettings(early_finish=value)


@pytest.mark.parametrize("strategy", [Strategy.SERIAL, Strategy.LEFT_TO_RIGHT])
def test_other_strategies_reject_the_threshold(strategy: Strategy) -> None:
    with pytest.raises(DecodingError, match="strategy parallel"):
        one(speller(SEVEN), DecodingSettings(strategy=strategy, early_finish=0.5))


def test_a_model_that_does_not_predict_completion_rejects_the_threshold() -> None:
    model = TableEngine(lambda _: Says({}))
    with pytest.raises(DecodingError, match="completion_weight"):
        one(model, DecodingSettings(strategy=Strategy.PARALLEL, early_finish=0.5))
    assert one(model).rounds == 1
