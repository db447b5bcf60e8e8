"""Enum members can be given by name, and unknown names are errors."""

import numpy as np
import pytest
import torch
from insertion_models import SPECIALS, A, B, C, cached_model, engine_of, inputs_of, random_model

from kermit.canvas import Canvas, CanvasBatch, Factorization, Termination
from kermit.data.plain import Fault, OnBad, Report
from kermit.decoding import DecodingSettings, Strategy, decode
from kermit.decoding.likelihood import bounds, exact_log_likelihood
from kermit.errors import CanvasError, DataError, DecodingError, KermitError
from kermit.objectives.objective import KeptSampling, SlotObjective, SlotShare
from kermit.objectives.orders import UniformPrior
from kermit.objectives.training_canvases import Texts
from kermit.rendering import Layout, ReadableTrace

PAIR = [[[A, B], [C]]]


def texts() -> Texts:
    return Texts.of(CanvasBatch.from_segments(SPECIALS, [((A, B, C, A, B), ())]), ["x"])


def test_a_strategy_given_by_name_decodes_the_same() -> None:
    model = cached_model(seed=3)
    canvas = Canvas.from_ids(model.specials, (), (), generate=Factorization.JOINT)
    for strategy in Strategy:
        named, given = (
            decode(engine_of(model), [canvas], DecodingSettings(strategy=how, max_tokens=6, max_rounds=4))
            for how in (strategy.value, strategy)
        )
        assert named == given
    assert DecodingSettings(strategy="parallel").strategy is Strategy.PARALLEL


@pytest.mark.parametrize("termination", list(Termination))
@pytest.mark.parametrize("share", list(SlotShare))
@pytest.mark.parametrize("kept", list(KeptSampling))
def test_an_objective_given_by_names_has_the_same_targets(
    termination: Termination, share: SlotShare, kept: KeptSampling
) -> None:
    prior, complete = UniformPrior(), texts()
    for wanted, named in ((kept, kept.value), ({kept: 1.0}, {kept.value: 1.0})):
        objectives = (
            SlotObjective(prior, kept=wanted, termination=termination, share=share),
            SlotObjective(prior, kept=named, termination=termination.value, share=share.value),
        )
        asked = [objective.sample(complete, np.random.default_rng(4)) for objective in objectives]
        one, other = (inputs_of(made) for made in asked)
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_factorization_can_be_given_by_name() -> None:
    model = random_model(seed=3)
    for way in Factorization:
        pair = [[[] if side in way.absent else tokens for side, tokens in enumerate(PAIR[0])]]
        assert exact_log_likelihood(engine_of(model), pair, way.value) == exact_log_likelihood(
            engine_of(model), pair, way
        )
        assert bounds(engine_of(model), pair, way.value) == bounds(engine_of(model), pair, way)
        assert Canvas.from_ids(SPECIALS, (), (), generate=way.value) == Canvas.from_ids(SPECIALS, (), (), generate=way)


def test_a_layout_can_be_given_by_name() -> None:
    [decoded] = decode(
        engine_of(random_model(seed=3)), [Canvas.from_ids(SPECIALS, (A,), (), generate=Factorization.X)], trace=True
    )
    assert decoded.trace is not None
    trace = ReadableTrace(decoded.trace, str, ("x", "y"))
    for layout in Layout:
        assert trace.svg(layout.value) == trace.svg(layout)
        assert trace.to_json(layout.value) == trace.to_json(layout)
        assert trace.html(layout.value) == trace.html(layout)


def test_on_bad_can_be_given_by_name() -> None:
    assert Report("skip").on_bad is OnBad.SKIP
    with pytest.raises(DataError):
        Report("error").bad(Fault.EMPTY, "a:1")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: DecodingSettings(strategy="paralel"),
            DecodingError,
            "strategy .* serial, parallel, left_to_right, not 'paralel'",
        ),
        (lambda: DecodingSettings(strategy="paralel"), DecodingError, "did you mean 'parallel'"),
        (lambda: SlotObjective(UniformPrior(), termination="slots"), KermitError, "termination .* slot, sequence"),
        (lambda: SlotObjective(UniformPrior(), share="all"), KermitError, "share .* canvas, text"),
        (lambda: SlotObjective(UniformPrior(), kept="none"), KermitError, "kept .* uniform, prior, rounds"),
        (lambda: SlotObjective(UniformPrior(), kept={"none": 1}), KermitError, "kept .* uniform, prior, rounds"),
        (
            lambda: exact_log_likelihood(engine_of(random_model()), PAIR, "z"),
            KermitError,
            "factorization .* joint, y_given_x",
        ),
        (lambda: bounds(engine_of(random_model()), PAIR, "z"), KermitError, "factorization .* joint, y_given_x"),
        (lambda: Canvas.from_ids(SPECIALS, generate="z"), CanvasError, "generate .* joint, y_given_x"),
        (lambda: Report("no"), DataError, "on_bad .* error, skip"),
    ],
)
def test_an_unknown_name_is_an_error_that_lists_the_valid_ones(
    make: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()  # type: ignore[operator]
