"""Decoding with hand-written probability tables: rounds, limits, finish reasons, log-probabilities, and the trace."""

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from insertion_models import END, SPECIALS, A, B, C, Says, TableEngine, engine_of, random_model

from kermit.canvas import Canvas, Factorization, Segment, Termination
from kermit.decoding import Constraints, Decoded, DecodingSettings, Finish, Sampling, Strategy, decode
from kermit.errors import DecodingError

SERIAL = DecodingSettings(strategy=Strategy.SERIAL)
SURE = 0.9


def blank(*segments: tuple[int, ...], way: Factorization = Factorization.X) -> Canvas:
    return Canvas.from_ids(SPECIALS, *(segments or ((), ())), generate=way)


def speller(*targets: Sequence[int], **settings: object) -> TableEngine:
    """A model that memorised texts and predicts the middle of each missing span with probability 0.9."""

    def rule(canvas: Canvas) -> Says:
        row = canvas.token_ids
        content: dict[int, dict[int, float]] = {}
        for slot in canvas.open_slots:
            side = canvas.segment_ids[slot]
            target = (
                next(t for t in targets if set(canvas.segments[side]) <= set(t))
                if canvas.segments[side]
                else (
                    targets[len(canvas.segments[1 - side]) % len(targets)] if len(canvas.segments) > 1 else targets[0]
                )
            )
            first = canvas.slots(Segment(side))[0]
            start = 0 if slot == first else target.index(row[slot - 1]) + 1
            end = len(target) if row[slot] == SPECIALS.sep_id else target.index(row[slot])
            span = target[start:end]
            content[slot] = {span[len(span) // 2]: SURE, END: 1 - SURE} if span else {END: SURE, A: 1 - SURE}
        return Says(content)

    return TableEngine(rule, vocab_size=64, **settings)  # type: ignore[arg-type]


def always(content: dict[int, float], **settings: object) -> TableEngine:
    """A model that predicts the same for every slot."""
    return TableEngine(lambda canvas: Says(dict.fromkeys(canvas.open_slots, content)), **settings)  # type: ignore[arg-type]


def one(model: TableEngine, canvas: Canvas, settings: DecodingSettings | None = None, **more: object) -> Decoded:
    return decode(engine_of(model), [canvas], settings, **more)[0]  # type: ignore[arg-type]


SEVEN = tuple(range(10, 17))


def test_parallel_decoding_builds_a_balanced_tree_in_logarithmic_rounds() -> None:
    result = one(speller(SEVEN), blank(), trace=True)
    assert result.canvas.segments == (SEVEN, ())
    assert (result.rounds, result.tokens, result.finish) == (4, 7, Finish.FINISHED)  # 1 + 2 + 4, and one to see the end
    assert result.trace is not None
    assert [len(insertions) for insertions in result.trace.rounds] == [1, 2, 4, 0]
    # seven insertions and, in the last round, eight slots that predict end-of-slot
    assert result.log_prob == pytest.approx(15 * math.log(SURE), abs=1e-5)


def test_serial_decoding_inserts_one_token_per_round() -> None:
    result = one(speller(SEVEN), blank(), SERIAL)
    assert result.canvas.segments == (SEVEN, ())
    assert (result.rounds, result.tokens, result.finish) == (8, 7, Finish.FINISHED)
    # a canvas of k tokens has k + 1 equal slots: 1/1 ... 1/7 for the locations; the end is 8 times 1/8 times 0.9
    assert result.log_prob == pytest.approx(8 * math.log(SURE) - math.lgamma(8), abs=1e-5)


def test_serial_decoding_takes_the_best_token_and_slot_together() -> None:
    def rule(canvas: Canvas) -> Says:
        if len(canvas.segments[0]) == 2:
            return Says({})
        # 0.7 * 0.6 at slot 1, 0.3 * 0.9 at slot 2: the more certain token is not at the more likely slot
        return Says({1: {A: 0.6, END: 0.4}, 2: {B: 0.9, END: 0.1}}, {1: 0.7, 2: 0.3})

    result = one(TableEngine(rule), blank((C,), ()), SERIAL, trace=True)
    assert result.canvas.segments[0] == (A, C)
    assert result.trace is not None
    (insertion,) = result.trace.rounds[0]
    assert (insertion.slot, insertion.token_id) == (1, A)
    assert insertion.log_prob == pytest.approx(math.log(0.7 * 0.6), abs=1e-6)


def test_the_temperature_applies_to_locations_too() -> None:
    def rule(canvas: Canvas) -> Says:
        return Says({1: {A: 1.0}, 2: {A: 1.0}}, {1: 0.4, 2: 0.6})

    def drawn(temperature: float) -> list[int]:
        settings = DecodingSettings(strategy=Strategy.SERIAL, sampling=Sampling(temperature), max_rounds=1)
        results = decode(TableEngine(rule), [blank((B,), ())] * 40, settings)
        return [result.canvas.segments[0].index(A) for result in results]

    assert drawn(0.02) == [1] * 40
    assert 8 < sum(drawn(1.0)) < 40


def test_a_canvas_without_open_slots_is_finished_at_once() -> None:
    model = always({A: 1.0})
    result = one(model, Canvas.from_ids(SPECIALS, (A, B)))
    assert (result.rounds, result.tokens, result.finish, result.log_prob) == (0, 0, Finish.FINISHED, 0.0)
    assert model.batches == []


@pytest.mark.parametrize("strategy", list(Strategy))
def test_max_rounds_ends_a_decode(strategy: Strategy) -> None:
    result = one(always({A: 1.0}), blank(), DecodingSettings(strategy=strategy, max_rounds=3))
    assert (result.rounds, result.finish) == (3, Finish.MAX_ROUNDS)
    assert result.tokens == (1 + 2 + 4 if strategy is Strategy.PARALLEL else 3)


def test_a_text_that_ends_in_the_last_allowed_round_is_finished() -> None:
    assert one(speller(SEVEN), blank(), DecodingSettings(max_rounds=4)).finish is Finish.FINISHED
    assert one(speller(SEVEN), blank(), DecodingSettings(max_rounds=3)).finish is Finish.MAX_ROUNDS


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("sampling", [None, Sampling()])
@pytest.mark.parametrize("most", [1, 5, 6])
def test_max_tokens_ends_a_decode(strategy: Strategy, sampling: Sampling | None, most: int) -> None:
    result = one(always({A: 1.0}), blank(), DecodingSettings(strategy=strategy, sampling=sampling, max_tokens=most))
    assert (result.tokens, result.finish) == (most, Finish.MAX_TOKENS)
    assert result.canvas.segments == ((A,) * most, ())


@pytest.mark.parametrize("sampling", [None, Sampling()])
@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_text_of_exactly_max_tokens_is_finished(strategy: Strategy, sampling: Sampling | None) -> None:
    def rule(canvas: Canvas) -> Says:
        return Says({} if canvas.segments[0] else {1: {A: 1.0}})

    settings = DecodingSettings(strategy=strategy, sampling=sampling, max_tokens=1)
    result = one(TableEngine(rule), blank(), settings)
    assert (result.tokens, result.finish, result.rounds) == (1, Finish.FINISHED, 2)
    assert result.log_prob == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("sampling", [None, Sampling()])
def test_a_text_of_exactly_max_tokens_that_stops_is_finished(sampling: Sampling | None) -> None:
    def rule(canvas: Canvas) -> Says:
        sure = {slot: {A: 1.0} for slot in canvas.open_slots}
        return Says(sure, stop=0.9999999 if canvas.segments[0] else 0.0)

    settings = DecodingSettings(strategy=Strategy.SERIAL, sampling=sampling, max_tokens=1)
    result = one(TableEngine(rule, termination=Termination.SEQUENCE), blank(), settings)
    assert (result.tokens, result.finish) == (1, Finish.FINISHED)


def test_limited_room_goes_to_the_most_certain_insertions() -> None:
    def rule(canvas: Canvas) -> Says:
        chances = {1: 0.6, 2: 0.9, 3: 0.7}
        return Says({slot: {A: chances[slot], END: 1 - chances[slot]} for slot in canvas.open_slots if slot in chances})

    result = one(TableEngine(rule), blank((B, C), ()), DecodingSettings(max_tokens=2, max_rounds=1))
    assert result.canvas.segments[0] == (B, A, C, A)
    assert result.log_prob == pytest.approx(math.log(0.9) + math.log(0.7), abs=1e-5)


def test_the_models_length_is_a_limit_too() -> None:
    for limits in ({"max_segment_length": 4}, {"max_length": 4 + 3}):
        result = one(always({A: 1.0}, **limits), blank((B,), ()))
        assert (len(result.canvas.segments[0]), result.tokens, result.finish) == (4, 3, Finish.MAX_TOKENS)


@pytest.mark.parametrize(("limits", "takes"), [({"max_segment_length": 3}, 4), ({"max_length": 6}, 7)])
def test_a_canvas_too_long_for_the_model_is_an_error(limits: dict[str, int], takes: int) -> None:
    model = always({END: 1.0}, **limits)
    limit = next(iter(limits.values()))
    with pytest.raises(DecodingError, match=f"^text 1: {takes} tokens, .* {limit}; shorten"):
        decode(engine_of(model), [blank(), blank((A,) * 4, ())])


def test_parallel_decoding_with_sequence_termination_is_an_error() -> None:
    model = always({A: 1.0}, termination=Termination.SEQUENCE)
    with pytest.raises(DecodingError, match=r"parallel decoding needs slot termination.*serially"):
        decode(engine_of(model), [blank()], DecodingSettings(Strategy.PARALLEL))


def test_the_number_of_seeds_must_equal_the_number_of_canvases() -> None:
    with pytest.raises(DecodingError, match="1 seeds for 2 canvases"):
        decode(always({END: 1.0}), [blank(), blank()], seeds=[1])


def test_sequence_termination_stops_when_stopping_beats_every_insertion() -> None:
    def rule(canvas: Canvas) -> Says:
        content = {slot: {A: 0.75, B: 0.25} for slot in canvas.open_slots}
        return Says(content, stop=[0.1, 0.5][len(canvas.segments[0])])

    model = TableEngine(rule, termination=Termination.SEQUENCE)
    result = one(model, blank(), SERIAL)
    # 0.9 * 0.75 beats 0.1; then 0.5 / 2 * 0.75 does not beat 0.5
    assert (result.canvas.segments[0], result.rounds, result.finish) == ((A,), 2, Finish.FINISHED)
    assert result.log_prob == pytest.approx(math.log(0.9 * 0.75) + math.log(0.5), abs=1e-5)
    # with 2 subtracted from stopping, e^-2 * 0.5 = 0.07 no longer beats 0.19
    penalised = one(model, blank(), DecodingSettings(strategy=Strategy.SERIAL, termination_penalty=2.0, max_rounds=2))
    assert penalised.tokens == 2


@pytest.mark.parametrize("strategy", list(Strategy))
def test_the_termination_penalty_is_subtracted_from_end_of_slot(strategy: Strategy) -> None:
    def rule(canvas: Canvas) -> Says:
        return Says({} if canvas.segments[0] else {1: {A: 0.4, END: 0.6}})

    model = TableEngine(rule)
    plain = one(model, blank(), DecodingSettings(strategy=strategy))
    assert (plain.tokens, plain.log_prob) == (0, pytest.approx(math.log(0.6), abs=1e-6))
    # 0.6 / 2 is below 0.4; what is reported is the model's own probability
    penalised = one(model, blank(), DecodingSettings(strategy=strategy, termination_penalty=math.log(2)))
    assert (penalised.tokens, penalised.log_prob) == (1, pytest.approx(math.log(0.4), abs=1e-6))


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("sampling", [None, Sampling(temperature=3.0)])
def test_forbidden_tokens_are_never_inserted(strategy: Strategy, sampling: Sampling | None) -> None:
    settings = DecodingSettings(
        strategy=strategy, sampling=sampling, max_tokens=20, constraints=Constraints(never=frozenset({A}))
    )
    results = decode(always({A: 0.6, B: 0.2, C: 0.1, END: 0.1}), [blank()] * 20, settings)
    assert all(A not in result.canvas.segments[0] for result in results)
    assert any(result.tokens for result in results)


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("sampling", [None, Sampling()])
def test_if_every_token_is_forbidden_nothing_is_inserted_despite_the_minimum(
    strategy: Strategy, sampling: Sampling | None
) -> None:
    constraints = Constraints(never=frozenset({A, B}), min_tokens_per_blank=1)
    settings = DecodingSettings(strategy=strategy, sampling=sampling, constraints=constraints)
    for result in decode(always({A: 0.5, B: 0.3, END: 0.2}), [blank()] * 5, settings):
        assert (result.canvas.segments, result.tokens) == (((), ()), 0)


def fragments(*parts: list[int]) -> Canvas:
    return Canvas.from_fragments(SPECIALS, parts)


def in_blanks(result: Decoded) -> list[int]:
    """The number of tokens inserted into each blank, between the given 10, 11, 12, ..."""
    counts = [0]
    for inserted in result.inserted[0]:
        if inserted:
            counts[-1] += 1
        else:
            counts.append(0)
    return counts


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("sampling", [None, Sampling()])
def test_every_blank_gets_at_least_the_minimum(strategy: Strategy, sampling: Sampling | None) -> None:
    settings = DecodingSettings(strategy=strategy, sampling=sampling, constraints=Constraints(min_tokens_per_blank=2))
    shy = always({A: 0.001, END: 0.999}, vocab_size=64)
    results = decode(shy, [fragments([], [10], [11, 12], [])] * 8, settings)
    for result in results:
        assert result.finish is Finish.FINISHED
        counts = in_blanks(result)
        assert counts[2] == 0  # between 11 and 12 there is no blank
        assert all(2 <= count <= 3 for count in (counts[0], counts[1], counts[3]))
        assert [t for t in result.canvas.segments[0] if t >= 10] == [10, 11, 12]


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("sampling", [None, Sampling()])
def test_no_blank_gets_more_than_the_maximum(strategy: Strategy, sampling: Sampling | None) -> None:
    settings = DecodingSettings(strategy=strategy, sampling=sampling, constraints=Constraints(max_tokens_per_blank=3))
    eager = always({A: 0.999, END: 0.001}, vocab_size=64)
    for result in decode(eager, [fragments([], [10], [11])] * 4, settings):
        assert in_blanks(result) == [3, 3, 0]
        assert result.finish is Finish.MAX_TOKENS


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_full_blank_that_predicts_more_tokens_is_not_finished(strategy: Strategy) -> None:
    def rule(canvas: Canvas) -> Says:
        return Says({slot: {A: 1.0} for slot in canvas.open_slots if 10 not in canvas.segments[0][: slot - 1]})

    settings = DecodingSettings(strategy=strategy, constraints=Constraints(max_tokens_per_blank=1))
    result = one(TableEngine(rule, vocab_size=64), fragments([], [10], []), settings)
    assert (result.canvas.segments, result.finish) == (((A, 10),), Finish.MAX_TOKENS)


def test_the_minimum_is_limited_by_the_available_room() -> None:
    settings = DecodingSettings(max_tokens=3, constraints=Constraints(min_tokens_per_blank=2))
    result = one(always({A: 0.1, END: 0.9}, vocab_size=64), fragments([10], [11], [12]), settings)
    assert (result.tokens, result.finish) == (3, Finish.MAX_TOKENS)


def test_only_the_minimum_is_forced() -> None:
    settings = DecodingSettings(constraints=Constraints(min_tokens_per_blank=3))
    result = one(always({A: 0.3, B: 0.2, END: 0.5}, vocab_size=64), fragments([10], [11]), settings)
    assert result.canvas.segments == ((10, A, A, A, 11),)
    assert result.rounds == 4
    # three forced insertions with the model's own probability, and four slots that predict end-of-slot
    assert result.log_prob == pytest.approx(3 * math.log(0.3) + 4 * math.log(0.5), abs=1e-5)


def test_words_that_a_blank_does_not_touch_are_not_continued() -> None:
    continues = np.zeros(64, dtype=bool)
    continues[A] = True
    constraints = Constraints(continues_word=continues)
    model = always({A: 0.6, B: 0.3, END: 0.1}, vocab_size=64)
    settings = DecodingSettings(max_rounds=1, constraints=constraints)
    assert one(model, fragments([10], [11]), settings).canvas.segments == ((10, B, 11),)
    # a blank that touches its word may continue it, and so may what comes after an inserted word
    joined = Canvas(SPECIALS, ((10, 11),), frozenset({2}), frozenset({2}))
    assert one(model, joined, settings).canvas.segments == ((10, A, 11),)
    two_rounds = DecodingSettings(max_rounds=2, constraints=constraints)
    assert one(model, fragments([10], [11]), two_rounds).canvas.segments == ((10, B, B, A, 11),)


def test_finished_texts_leave_the_batch() -> None:
    targets = [tuple(range(10, 10 + n)) for n in (0, 1, 3)] + [tuple(range(20, 27))]
    starts = [Canvas.from_ids(SPECIALS, (), (t[0],), generate=Factorization.Y) for t in targets[1:]]
    starts.append(Canvas.from_ids(SPECIALS, (), (20, 21, 22, 23, 24, 25, 26), generate=Factorization.Y))
    model = speller(*targets[1:])
    progress: list[int] = []
    results = decode(engine_of(model), starts, on_progress=progress.append)
    assert [result.canvas.segments[1] for result in results] == [(10,), (10,), targets[3], targets[3]]
    assert [result.rounds for result in results] == [1, 1, 4, 1]  # 20 given: 1 + 2 + 3 tokens follow it
    assert model.batches == [4, 1, 1, 1]
    assert progress == [3, 1]


def test_results_are_in_the_order_of_the_canvases_whatever_the_batches() -> None:
    targets = [tuple(range(10 * n, 10 * n + n)) for n in range(1, 6)]
    starts = [Canvas.from_ids(SPECIALS, (), t[:1], generate=Factorization.Y) for t in reversed(targets)]
    for batch_size in (1, 2, 5):
        results = decode(speller(*targets), starts, batch_size=batch_size)
        assert [result.canvas.segments[1] for result in results] == targets[::-1]


def test_given_and_inserted_tokens_are_distinguished() -> None:
    result = one(speller(SEVEN), Canvas.from_ids(SPECIALS, (12, 14), (5,), generate=Factorization.X_GIVEN_Y))
    assert result.canvas.segments == (SEVEN, (5,))
    assert result.inserted == ((True, True, False, True, False, True, True), (False,))


def test_the_trace_leads_from_the_first_canvas_to_the_last() -> None:
    start = Canvas.from_ids(SPECIALS, (12,), (5,), generate=Factorization.X_GIVEN_Y)
    result = one(speller(SEVEN), start, trace=True)
    assert result.trace is not None
    canvases = result.trace.canvases()
    assert canvases[0] == start
    assert canvases[-1] == result.canvas
    assert [canvas.segments[0] for canvas in canvases[:3]] == [(12,), (11, 12, 15), (10, 11, 12, 14, 15, 16)]
    tokens = result.trace.tokens()
    assert [token.token_id for token in tokens] == list(result.canvas.token_ids)
    assert [token.segment for token in tokens] == list(result.canvas.segment_ids)
    assert [token.round for token in tokens] == [0, 2, 1, 0, 3, 2, 1, 2, 0, 0, 0]
    assert tokens[3].log_prob is None
    assert tokens[2].log_prob == pytest.approx(math.log(SURE), abs=1e-6)


def test_the_trace_as_json_names_the_tokens() -> None:
    result = one(speller((10,)), blank(), trace=True)
    assert result.trace is not None
    entry = {"slot": 1, "token_id": 10, "text": "<10>", "log_prob": round(math.log(SURE), 4)}
    assert result.trace.to_json(lambda token: f"<{token}>") == {
        "start": [[], []],
        "start_text": [[], []],
        "rounds": [[entry], []],
    }
    given = one(
        speller((10, 11)), Canvas.from_ids(SPECIALS, (10,), (12,), generate=Factorization.X_GIVEN_Y), trace=True
    )
    assert given.trace is not None
    assert given.trace.to_json(lambda token: f"<{token}>")["start_text"] == [["<10>"], ["<12>"]]
    assert "start_text" not in given.trace.to_json()


def test_there_is_no_trace_by_default() -> None:
    assert one(speller(SEVEN), blank()).trace is None


SETTINGS = {
    "parallel": DecodingSettings(max_tokens=12),
    "serial": DecodingSettings(strategy=Strategy.SERIAL, max_tokens=6),
    "parallel sampled": DecodingSettings(sampling=Sampling(1.2, top_k=20, top_p=0.95), max_tokens=12),
    "serial sampled": DecodingSettings(strategy=Strategy.SERIAL, sampling=Sampling(), max_tokens=6),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_one_by_one_in_batches_of_seven_and_all_together_give_the_same_tokens(name: str) -> None:
    model = random_model(vocab_size=40, seed=2)
    draw = random.Random(0)
    number = 200 if name == "parallel" else 60
    starts = [
        Canvas.from_ids(
            SPECIALS, draw.choices(range(4, 40), k=draw.randint(0, 9)), (), generate=Factorization.Y_GIVEN_X
        )
        for _ in range(number)
    ]
    settings = SETTINGS[name]
    one_by_one, sevens, together = (
        [(r.canvas, r.rounds, r.finish) for r in decode(engine_of(model), starts, settings, batch_size=size)]
        for size in (1, 7, number)
    )
    assert one_by_one == sevens == together
    assert len({canvas.segments[1] for canvas, _, _ in together}) > number // 10


def test_draws_depend_on_the_seed() -> None:
    model = random_model(vocab_size=40, seed=2)
    settings = DecodingSettings(sampling=Sampling(), max_tokens=8)
    start = Canvas.from_ids(SPECIALS, (), (), generate=Factorization.JOINT)

    def draw(seeds: list[int]) -> list[tuple[tuple[int, ...], ...]]:
        return [
            result.canvas.segments for result in decode(engine_of(model), [start] * len(seeds), settings, seeds=seeds)
        ]

    found = draw([5, 6, 5, -1])
    assert found[0] == found[2]
    assert found == draw([5, 6, 5, -1])
    assert len(set(draw(list(range(20))))) > 10


def test_a_huge_limit_equals_no_limit() -> None:
    endless = 10**30
    constraints = Constraints(max_tokens_per_blank=endless)
    found = one(speller(SEVEN), blank(), DecodingSettings(max_tokens=endless, constraints=constraints))
    assert found.canvas.segments[0] == SEVEN
    demanding = DecodingSettings(max_tokens=9, constraints=Constraints(min_tokens_per_blank=endless))
    assert one(always({END: 0.9, A: 0.1}), blank(), demanding).tokens == 9
