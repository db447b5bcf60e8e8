"""Reporting rounds to a caller, and abandoning texts."""

from collections.abc import Mapping

import pytest
from insertion_models import SPECIALS, A, Says, TableEngine, engine_of, random_model

from kermit.canvas import Canvas, Factorization
from kermit.decoding import DecodingSettings, Finish, Sampling, Strategy, Trace, decode

EAGER = TableEngine(lambda canvas: Says({slot: {A: 1.0} for slot in canvas.open_slots}))
SERIAL = DecodingSettings(strategy=Strategy.SERIAL, max_tokens=6)


def starts(count: int) -> list[Canvas]:
    """Canvases of 0, 1, 2, ... given tokens."""
    return [Canvas.from_ids(SPECIALS, (A,) * given, (), generate=Factorization.Y_GIVEN_X) for given in range(count)]


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_the_reported_traces_equal_those_of_the_results(batch_size: int) -> None:
    model, told = random_model(vocab_size=40, seed=2), dict[int, list[Trace]]()

    def listen(traces: Mapping[int, Trace]) -> None:
        for number, trace in traces.items():
            told.setdefault(number, []).append(trace)

    settings = DecodingSettings(sampling=Sampling(), max_tokens=8)
    canvases = starts(5)[::-1]
    results = decode(engine_of(model), canvases, settings, trace=True, batch_size=batch_size, on_round=listen)
    for number, result in enumerate(results):
        assert result.trace is not None
        assert told[number][-1] == result.trace
        assert [trace.rounds for trace in told[number]] == [
            result.trace.rounds[:n] for n in range(1, result.rounds + 1)
        ]
        assert all(trace.start == canvases[number] for trace in told[number])


def test_reporting_rounds_does_not_add_a_trace_to_the_result() -> None:
    assert decode(EAGER, starts(1), SERIAL, on_round=lambda traces: None)[0].trace is None


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_an_abandoned_text_ends_and_the_others_continue_unaffected(batch_size: int) -> None:
    model = random_model(vocab_size=40, seed=2)
    settings = DecodingSettings(strategy=Strategy.SERIAL, sampling=Sampling(), max_tokens=8, termination_penalty=50.0)
    canvases = starts(4)[::-1]
    undisturbed = decode(engine_of(model), canvases, settings, batch_size=batch_size)

    def after_three(traces: Mapping[int, Trace]) -> set[int]:
        return {number for number, trace in traces.items() if number in (1, 3) and len(trace.rounds) == 3}

    results = decode(engine_of(model), canvases, settings, batch_size=batch_size, on_round=after_three)
    for number in (0, 2):
        assert results[number].canvas == undisturbed[number].canvas
        assert results[number].rounds == undisturbed[number].rounds
    for number in (1, 3):
        assert (results[number].finish, results[number].rounds, results[number].tokens) == (Finish.ABANDONED, 3, 3)


def test_a_finished_text_is_not_abandoned() -> None:
    finished = TableEngine(lambda canvas: Says({}))
    (result,) = decode(finished, starts(1), on_round=lambda traces: list(traces))
    assert result.finish is Finish.FINISHED
