"""An exported model: it agrees with torch, caches what it has read, and describes itself."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from exported import CACHED, MODELS, OWN, engine_of, model_of, onnx_of, own_model, torch_of, traced_model
from insertion_models import MORE_TRUNKS, TRUNKS

from kermit.engines.comparison import compare, sample_rows
from kermit.engines.engine import Asked, Rows
from kermit.engines.onnx_engine import OnnxEngine
from kermit.engines.torch_engine import TorchEngine
from kermit.errors import ModelError

EVERY_MODEL = pytest.mark.parametrize("name", MODELS)
NONE = np.zeros(0, dtype=np.int64)


def rows_of(name: str, *, batch: int = 3, order: int = 1, seed: int = 0) -> Rows:
    return sample_rows(torch_of(name).info, seed, batch=batch, length=8, order=order)


def slots_of(rows: Rows, **wanted: object) -> Asked:
    """The slots left of every token of Y in the first row, which has no padding."""
    right = np.arange(9, 16)
    return Asked(right - 1, right, **wanted)  # type: ignore[arg-type]


def part(rows: Rows, start: int, stop: int, past: object = None) -> Rows:
    planes = (rows.token_ids, rows.segment_ids, rows.positions, rows.orders)
    return Rows(*(plane[:, start:stop] for plane in planes), rows.mask[:, start:stop, :stop], past)  # type: ignore[arg-type]


@EVERY_MODEL
def test_it_agrees_with_the_torch_model(name: str) -> None:
    difference = compare(onnx_of(name), torch_of(name))
    assert difference.largest < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted({*TRUNKS, *MORE_TRUNKS}))
@pytest.mark.parametrize("settings", [{}, CACHED], ids=["full", "cached"])
def test_every_trunk_agrees_with_torch(family: str, settings: dict[str, object]) -> None:
    if settings and family in ("mpnet", "deberta-v2"):
        pytest.skip("refused with cached context")
    model = traced_model(family, **settings)
    assert compare(engine_of(model), TorchEngine(model)).largest < 1e-4


@EVERY_MODEL
def test_requested_tokens_have_the_log_probs_of_the_full_distribution(name: str) -> None:
    rows, wanted = rows_of(name), np.array([4, 5, 6, 3, 41, 40, 4])
    for engine in (onnx_of(name), torch_of(name)):
        answer = engine.ask(rows, slots_of(rows, full=True, wanted=wanted, keep=False))
        assert answer.wanted.tolist() == answer.content[np.arange(7), wanted].tolist()
        assert answer.cache is None
        assert engine.ask(rows, slots_of(rows)).wanted is None


@EVERY_MODEL
def test_its_best_tokens_are_those_of_the_model(name: str) -> None:
    rows = rows_of(name)
    ours, theirs = (engine.ask(rows, slots_of(rows, top=5)) for engine in (onnx_of(name), torch_of(name)))
    assert ours.tokens.tolist() == theirs.tokens.tolist()
    assert ours.content is None


@EVERY_MODEL
def test_its_completions_are_those_of_the_model(name: str) -> None:
    rows = rows_of(name)
    ours, theirs = (engine.ask(rows, slots_of(rows)).completion for engine in (onnx_of(name), torch_of(name)))
    if name == "own apart":
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
        assert (ours < 0).all()
    else:
        assert ours is theirs is None


@EVERY_MODEL
def test_int8_is_close_to_float32(name: str) -> None:
    difference = compare(onnx_of(name, "int8"), torch_of(name))
    assert difference.best < 0.05
    rows = rows_of(name)
    ours, theirs = (engine.ask(rows, slots_of(rows)) for engine in (onnx_of(name, "int8"), torch_of(name)))
    assert float((ours.tokens == theirs.tokens).mean()) > 0.8


@EVERY_MODEL
def test_it_reports_the_models_info(name: str) -> None:
    assert onnx_of(name).info == torch_of(name).info
    assert onnx_of(name).caches is torch_of(name).caches is (name in ("own cached", "own apart"))


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("name", ["own cached", "own apart", "bert cached"])
def test_the_predictions_for_a_text_do_not_depend_on_its_batch(name: str, precision: str) -> None:
    engine, rows = onnx_of(name, precision), rows_of(name, batch=5)
    planes = (rows.token_ids, rows.segment_ids, rows.positions, rows.orders, rows.mask)
    together = engine.ask(rows, slots_of(rows, full=True))
    alone = engine.ask(Rows(*(plane[:1] for plane in planes)), slots_of(rows, full=True))
    np.testing.assert_allclose(alone.content, together.content, atol=1e-6)


@pytest.mark.parametrize("vocab_size", [41, 42, 64])  # a prime, blocks of 6 or 7, and of 8
def test_the_best_tokens_are_the_best_without_end_of_slot_however_many(vocab_size: int) -> None:
    engine = engine_of(own_model(vocab_size))
    rows = sample_rows(engine.info, 0, batch=2, length=8)
    end = engine.info.specials.end_of_slot_id
    for top in (1, 3, vocab_size - 1):
        answer = engine.ask(rows, slots_of(rows, top=top, full=True))
        assert answer.content is not None
        content = answer.content.copy()
        np.testing.assert_array_equal(answer.end, content[:, end])
        content[:, end] = -np.inf
        best = np.argsort(-content, axis=1, kind="stable")[:, :top]
        possible = np.isfinite(np.take_along_axis(content, best, 1))
        np.testing.assert_array_equal(answer.tokens[possible], best[possible])
        np.testing.assert_array_equal(answer.log_probs, np.take_along_axis(content, best, 1))


def test_ties_are_broken_by_the_smaller_id() -> None:
    model = own_model(42)
    with torch.no_grad():
        model.get_input_embeddings().weight.zero_()  # so that only the bias counts
        model.head.bias[[12, 30, 31, 40]] = 1.0
        model.head.bias[35] = 2.0
    engine = engine_of(model)
    rows = sample_rows(engine.info, 0, batch=1, length=8)
    assert engine.ask(rows, slots_of(rows, top=6)).tokens[0].tolist() == [35, 12, 30, 31, 40, 4]


def test_inserted_tokens_can_be_read_one_by_one() -> None:
    engine, rows = onnx_of("own cached"), rows_of("own cached", order=2)
    whole = engine.ask(rows, slots_of(rows, full=True))
    answer = engine.ask(part(rows, 0, 8), Asked(NONE, NONE))
    for place in range(8, 16):
        asked = slots_of(rows, full=True) if place == 15 else Asked(NONE, NONE)
        answer = engine.ask(part(rows, place, place + 1, answer.cache), asked)
        assert answer.cache is not None
        assert answer.cache.length == place + 1
    np.testing.assert_allclose(answer.content, whole.content, atol=1e-5)


def test_rows_of_a_cache_can_be_chosen_and_repeated() -> None:
    engine, rows = onnx_of("own cached"), rows_of("own cached")
    chosen = np.array([2, 0, 2])
    again = Rows(*(getattr(rows, name)[chosen] for name in ("token_ids", "segment_ids", "positions", "orders", "mask")))
    expected = engine.hidden(again)[:, 8:]
    cache = engine.ask(part(rows, 0, 8), Asked(NONE, NONE)).cache
    assert cache is not None
    found = engine.hidden(part(again, 8, 16, cache.select(chosen)))
    real = again.token_ids[:, 8:] != engine.info.specials.pad_id
    np.testing.assert_allclose(found[real], expected[real], atol=1e-5)


def test_a_truncated_cache_equals_one_of_fewer_tokens() -> None:
    engine, rows = onnx_of("own cached"), rows_of("own cached")
    short, long = (engine.ask(part(rows, 0, stop), Asked(NONE, NONE)).cache for stop in (8, 16))
    assert short is not None
    assert long is not None
    assert (short.length, long.length, long.first(8).length) == (8, 16, 8)
    expected, found = (engine.hidden(part(rows, 8, 16, past)) for past in (short, long.first(8)))
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("name", OWN)
def test_rows_can_be_read_without_predicting_slots(name: str, precision: str) -> None:
    answer = onnx_of(name, precision).ask(rows_of(name), Asked(NONE, NONE, top=2, full=True))
    assert answer.tokens.shape == answer.log_probs.shape == (0, 2)
    assert answer.end.shape == answer.location.shape == (0,)
    assert answer.content is not None
    assert answer.content.shape == (0, model_of(name).config.vocab_size)


def test_with_sequence_termination_there_is_a_stop_logit_and_no_end_of_slot() -> None:
    rows = rows_of("roberta")
    answer = onnx_of("roberta").ask(rows, slots_of(rows))
    assert answer.stop is not None
    assert answer.stop.shape == (3,)
    assert np.isneginf(answer.end).all()
    assert onnx_of("own").ask(rows, slots_of(rows)).stop is None


def test_positions_beyond_the_table_are_rejected() -> None:
    rows = rows_of("bert cached", batch=1)
    fits, beyond = (replace(rows, positions=rows.positions * 0 + highest) for highest in (63.0, 63.5))
    assert np.isfinite(onnx_of("bert cached").hidden(fits)).all()
    with pytest.raises(ModelError, match=r"needs 65 positions, .* has 64"):
        onnx_of("bert cached").hidden(beyond)


def test_a_file_that_is_not_a_model_is_rejected() -> None:
    with pytest.raises(ModelError, match="cannot be loaded"):
        OnnxEngine.of(b"no model", {})
