"""Cached context on every trunk: which tokens see which, fractional positions, and rejected trunks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from insertion_models import (
    BLANK,
    CACHED,
    CACHED_SPECIALS,
    CLS,
    MORE_TRUNKS,
    PAD,
    SEP,
    TRUNKS,
    A,
    B,
    C,
    SlotScores,
    blanks_of,
    cached_model,
    inputs_of,
    random_model,
    read,
    scores_of,
    trunk_config,
    try_without_a_trace,
)
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerFast

from kermit.canvas import Canvas, CanvasBatch, Factorization
from kermit.canvas.context import GIVEN, PADDING, ContextRows, generations_of, lay_out
from kermit.errors import ModelError
from kermit.modeling import EncoderConfig, KermitForInsertion, KermitModel
from kermit.modeling.tensors import RowTensors
from kermit.modeling.trunk import near, position_table, refuse_unfit_at_work
from kermit.objectives.generations import GenerationObjective
from kermit.objectives.orders import BalancedTreePrior
from kermit.objectives.training_canvases import Texts

TABLES = ["bert", "roberta", "xlm-roberta", "distilbert", "electra", "albert"]
SUPPORTED = [*TABLES, "modernbert", "eurobert", "kermit_encoder"]
REFUSED = {
    "mpnet": "with cached_context, it does not use the positions it is given",
    "deberta-v2": "cannot read rows of cached context",
}
# our own encoder has one implementation of attention
ATTENTIONS = [(family, way) for family in SUPPORTED[:-1] for way in ("sdpa", "eager")] + [("kermit_encoder", "sdpa")]
EVERY_ATTENTION = pytest.mark.parametrize(("family", "attention"), ATTENTIONS)
EVERY_TRUNK = pytest.mark.parametrize("family", SUPPORTED)


def model_of(family: str, attention: str = "sdpa") -> KermitForInsertion:
    if family == "kermit_encoder":
        return cached_model()
    model = random_model(family, vocab_size=BLANK + 1, **CACHED)
    model.set_attn_implementation(attention)
    assert model.trunk.config._attn_implementation == attention
    return model


def without_order(model: KermitForInsertion) -> KermitForInsertion:
    with torch.no_grad():
        model.kermit.order_embeddings.weight.zero_()
    return model


GIVEN_PLACES, FIRST, SECOND = slice(0, 4), slice(4, 7), slice(7, 10)


def rows_of_two_canvases(*, left_to_right: bool = False) -> ContextRows:
    """X is given; two blocks of Y have the same tokens and positions, some of them fractions."""
    times = [0] * 4 + [1, 2, 0] * 2 if left_to_right else [0] * 10
    return ContextRows(
        np.array([[CLS, A, B, SEP, C, A, SEP, C, A, SEP]]),
        np.array([[0] * 4 + [1] * 6]),
        np.array([[0.0, 1.0, 2.0, 3.0, 1.0, 1.75, 2.5, 1.0, 1.75, 2.5]], dtype=np.float32),
        np.array([[GIVEN] * 4 + [1] * 3 + [2] * 3]),
        np.array([times]),
        np.array([left_to_right]),
    )


def changes(model: KermitForInsertion, rows: ContextRows, name: str, place: int, value: float) -> Tensor:
    """(length,) how much the states of one row change with one of its entries."""
    changed = getattr(rows, name).copy()
    changed[0, place] = value
    return (read(model, replace(rows, **{name: changed})) - read(model, rows)).abs().amax(2)[0]


@torch.inference_mode()
def score(model: KermitForInsertion, *canvases: Canvas, **settings: Any) -> SlotScores:
    return scores_of(model, CanvasBatch.from_canvases(canvases, **settings))


def test_every_trunk_is_supported_or_rejected() -> None:
    assert {*SUPPORTED, *REFUSED} == {*TRUNKS, *MORE_TRUNKS, "kermit_encoder"}


@EVERY_ATTENTION
def test_given_tokens_and_other_canvases_do_not_see_what_is_inserted(family: str, attention: str) -> None:
    by_last = changes(model_of(family, attention), rows_of_two_canvases(), "token_ids", 5, B)
    assert float(by_last[GIVEN_PLACES].max()) < 1e-5
    assert float(by_last[SECOND].max()) < 1e-5
    assert float(by_last[FIRST].min()) > 1e-3


@EVERY_ATTENTION
def test_inserted_tokens_see_the_given_part(family: str, attention: str) -> None:
    by_given = changes(model_of(family, attention), rows_of_two_canvases(), "token_ids", 2, C)
    assert float(by_given.min()) > 1e-3


@EVERY_ATTENTION
def test_the_states_of_a_canvas_do_not_depend_on_its_place_in_the_row(family: str, attention: str) -> None:
    states = read(model_of(family, attention), rows_of_two_canvases())[0]
    assert torch.allclose(states[FIRST], states[SECOND], atol=1e-4)


@EVERY_ATTENTION
@pytest.mark.parametrize("position", [3.0, 2.0, 1.5])
def test_positions_and_fractions_of_them_matter(family: str, attention: str, position: float) -> None:
    by_position = changes(model_of(family, attention), rows_of_two_canvases(), "positions", 5, position)
    assert float(by_position[FIRST].max()) > 1e-3
    assert float(by_position[SECOND].max()) < 1e-5


@EVERY_ATTENTION
def test_left_to_right_no_token_sees_a_later_one(family: str, attention: str) -> None:
    model, rows = model_of(family, attention), rows_of_two_canvases(left_to_right=True)
    by_last, by_end = (changes(model, rows, "token_ids", place, B) for place in (5, 6))
    assert float(by_last[[4, 6]].max()) < 1e-5  # the end of the span comes first
    assert float(by_end[FIRST].min()) > 1e-3


@EVERY_ATTENTION
def test_a_row_of_several_canvases_has_the_states_of_rows_of_one_canvas_each(family: str, attention: str) -> None:
    model, rows = model_of(family, attention), rows_of_two_canvases()
    rows.token_ids[0, 8] = B
    whole = read(model, rows)[0]
    for block, other in ((1, 2), (2, 1)):
        chosen = (rows.blocks[0] != other).nonzero()[0]
        alone = ContextRows(*(value[:, chosen] for value in list(vars(rows).values())[:-1]), rows.left_to_right)
        assert torch.allclose(read(model, alone)[0], whole[chosen], atol=1e-4), block
    # and padding changes nothing
    gone = rows.blocks == 2
    rows = replace(rows, token_ids=np.where(gone, PAD, rows.token_ids))
    blocks = np.where(gone, PADDING, rows.blocks)
    padded = read(model, replace(rows, blocks=blocks))[0, :7]
    assert torch.allclose(padded, whole[:7], atol=1e-4)


@EVERY_ATTENTION
def test_with_nothing_given_it_is_the_model_without_cached_context(family: str, attention: str) -> None:
    """On a canvas that is longer than a sliding window, ModernBERT's here."""
    model = without_order(model_of(family, attention))
    x, y = (A, B, C, A, C) * 7, (C, B, B, A) * 6
    canvas = Canvas.from_ids(CACHED_SPECIALS, x, y, generate=Factorization.JOINT)
    batch = CanvasBatch.from_canvases([canvas], inserted=[[[True] * len(x), [True] * len(y)]])
    layout = lay_out(generations_of(batch), **blanks_of(model))
    assert bool((layout.rows.blocks == 1).all())
    with torch.inference_mode():
        planes = (batch.token_ids, batch.valid, batch.segment_ids)
        plain = model.kermit(*map(torch.as_tensor, planes)).last_hidden_state
        assert torch.allclose(read(model, layout.rows), plain, atol=1e-4)
        cached = scores_of(model, batch)
        model.config.cached_context = False
        full = scores_of(model, batch)
    assert cached.slots.tolist() == full.slots.tolist() == sorted(canvas.open_slots)
    assert torch.allclose(cached.content, full.content, atol=1e-3)
    assert torch.allclose(cached.location, full.location, atol=1e-3)


@EVERY_TRUNK
def test_slots_depend_on_insertions_elsewhere_and_not_on_other_texts_of_the_batch(family: str) -> None:
    model = model_of(family)
    canvases = [Canvas.from_ids(CACHED_SPECIALS, (A, B), y, generate=Factorization.Y_GIVEN_X) for y in [(C, C), (A, C)]]
    inserted = [[[False] * 2, [True] * 2]] * 2
    other = Canvas.from_ids(CACHED_SPECIALS, (A, B, C, A, B, B), (), generate=Factorization.Y_GIVEN_X)
    together = score(model, *canvases, other, inserted=[*inserted, [[False] * 6, []]])
    for row, canvas in enumerate(canvases):
        alone = score(model, canvas, inserted=inserted[:1])
        mine = together.rows == row
        assert torch.allclose(together.content[mine], alone.content, atol=1e-4)
    first, second = (together.content[together.rows == row][:, A:BLANK] for row in (0, 1))
    assert float((first - second).abs().amax(1).min()) > 1e-3  # the slot after the last token included
    assert bool((together.content[:, BLANK] == -torch.inf).all())


def is_idle(name: str) -> bool:
    """A key's bias shifts all scores of a query equally, and softmax ignores that."""
    return name.endswith(("key.bias", "k_lin.bias"))


@EVERY_TRUNK
def test_a_training_step_reaches_every_weight(family: str) -> None:
    model = model_of(family).train()
    work = [((A, B, C, A), (B, C)), ((C,), (A, A, A)), ((), (B,)), ((A, B), (C, C, B, A))]
    ways = [Factorization.Y_GIVEN_X, Factorization.JOINT, Factorization.JOINT, Factorization.X_GIVEN_Y]
    texts = Texts.of(CanvasBatch.from_segments(CACHED_SPECIALS, work * 4), ways * 4)
    order = np.arange(16) % 3 == 0
    objective = GenerationObjective(BalancedTreePrior(), infilling=0.5, unmarked=0.5)
    texts, rounds = objective.draw(texts, order, np.random.default_rng(1))
    targets = objective.build(texts, rounds, order, **blanks_of(model))
    assert bool((targets.layout.rows.positions % 1 != 0).any())
    loss = model(**inputs_of(targets)).loss
    assert bool(loss.isfinite())
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
        assert is_idle(name) or bool(parameter.grad.any()), name
    assert bool(model.kermit.order_embeddings.weight.grad.any(1).all())  # type: ignore[union-attr]


@pytest.mark.parametrize("family", TABLES)
def test_a_learned_table_of_positions_is_interpolated(family: str) -> None:
    """A token at 1.5 has the states of one at 1 in a table whose row 1 is the mean of rows 1 and 2."""
    model = model_of(family)
    rows = replace(rows_of_two_canvases(), positions=np.array([[0, 3, 5, 6, 1.5, 4, 7, 1.5, 4, 7]], dtype=np.float32))
    between = read(model, rows)
    table, first = position_table(model.trunk), model.kermit.position_offset
    assert table is not None
    with torch.no_grad():
        table.weight[first + 1] = table.weight[first + 1 : first + 3].mean(0)
    moved = np.where(rows.positions == 1.5, np.float32(1), rows.positions)
    assert torch.allclose(read(model, replace(rows, positions=moved)), between, atol=1e-5)


@pytest.mark.parametrize("family", TABLES)
def test_more_positions_than_the_table_has_are_an_error(family: str) -> None:
    model, rows = model_of(family), rows_of_two_canvases()
    room = model.kermit.max_positions
    assert room is not None
    last = rows.positions.copy()
    last[0, 3] = room - 1
    assert bool(read(model, replace(rows, positions=last)).isfinite().all())
    for position, needed in ((room - 0.5, room + 1), (room, room + 1), (room + 6.25, room + 8)):
        last[0, 3] = position
        with pytest.raises(ModelError, match=f"needs {needed} positions, .* has {room}; shorten"):
            read(model, replace(rows, positions=last))
    with pytest.raises(ModelError, match=f"needs {room + 4} positions"):
        score(model, Canvas.from_ids(CACHED_SPECIALS, (A,) * (room + 2), (), generate=Factorization.Y_GIVEN_X))


@EVERY_TRUNK
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_nearly_the_same(family: str, dtype: torch.dtype) -> None:
    model = model_of(family)
    canvas = Canvas.from_ids(CACHED_SPECIALS, (A, B, C), (B, A), generate=Factorization.Y_GIVEN_X)
    inserted = [[[False] * 3, [True] * 2]]
    full = score(model, canvas, inserted=inserted)
    half = score(model.to(dtype), canvas, inserted=inserted)
    finite = full.content.isfinite()
    assert torch.allclose(half.content[finite], full.content[finite], atol=0.2)
    assert read(model, rows_of_two_canvases()).dtype == dtype  # with fractions of positions


def near_of(rows: ContextRows, window: int) -> Tensor:
    """(length, length) what the tokens of one row see within a window."""
    tensors = RowTensors.of(rows)
    return near(tensors.segment_ids, tensors.positions, tensors.orders, tensors.mask, window)[0]


def test_a_sliding_window_is_measured_in_text_positions() -> None:
    """Y follows the given X, whose [SEP] has place 3, or what the canvas itself has of X."""
    rows = rows_of_two_canvases()
    near = near_of(rows, 2)
    assert near[4].nonzero().flatten().tolist() == [2, 3, 4, 5, 6]  # place 4 of 0, 1, 2, 3, 4, 4.75 and 5.5
    assert near[6].nonzero().flatten().tolist() == [4, 5, 6]
    assert near[0].nonzero().flatten().tolist() == [0, 1, 2]
    assert near[9].nonzero().flatten().tolist() == [7, 8, 9]
    canvas = np.array([[CLS, A, SEP, B, SEP, CLS, SEP, B, SEP]])
    blocks, zeros = np.array([[1] * 5 + [2] * 4]), np.zeros_like(canvas)
    segments, positions = np.array([[0, 0, 0, 1, 1, 0, 0, 1, 1]]), np.array([[0, 1, 2, 1, 2, 0, 1, 1, 2]])
    rows = ContextRows(canvas, segments, positions.astype(np.float32), blocks, zeros, zeros[:, 0] > 0)
    near = near_of(rows, 1)
    places = torch.tensor([0, 1, 2, 3, 4, 20, 21, 22, 23])
    assert torch.equal(near, (places[:, None] - places).abs() <= 1)


def tokenizer_of(*specials: str) -> PreTrainedTokenizerFast:
    words = [f"[{name.upper()}]" for name in specials] + ["one", "two", "three"]
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {f"{name}_token": f"[{name.upper()}]" for name in specials}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def encoder_of(family: str, rows: int) -> PreTrainedModel:
    if family == "kermit_encoder":
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
        return AutoModel.from_config(EncoderConfig(vocab_size=rows, **sizes))
    return AutoModel.from_config(trunk_config(family, vocab_size=rows))


@EVERY_TRUNK
def test_a_warm_start_marks_blanks_with_the_mask_token_and_reads_given_text_as_the_encoder_does(family: str) -> None:
    tokenizer = tokenizer_of("pad", "cls", "sep", "unk", "mask")
    encoder = encoder_of(family, len(tokenizer)).eval()
    model = KermitForInsertion.from_encoder(encoder, tokenizer, cached_context=True, slot_vector="both").eval()
    assert model.config.blank_token_id == tokenizer.mask_token_id == 4
    assert model.config.vocab_size == 9  # end-of-slot is new
    assert model.specials.others == {4}
    assert not model.kermit.order_embeddings.weight.any()
    ids = (5, 6, 7, 6)
    whole = CanvasBatch.from_canvases([Canvas(model.specials, (ids,))])
    with torch.inference_mode():
        expected = encoder(torch.tensor([[1, *ids, 2]])).last_hidden_state
        found = read(model, lay_out(generations_of(whole), **blanks_of(model)).rows)
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("rows", [7, 30])
def test_a_warm_start_without_a_mask_token_adds_one(rows: int) -> None:
    tokenizer = tokenizer_of("pad", "cls", "sep", "unk")
    model = KermitForInsertion.from_encoder(
        encoder_of("bert", rows), tokenizer, cached_context=True, slot_vector="both"
    )
    assert tokenizer.mask_token == "[MASK]"
    assert sorted({model.config.end_of_slot_token_id, model.config.blank_token_id}) == [7, 8]
    assert len(tokenizer) == 9
    assert model.config.vocab_size == model.get_input_embeddings().num_embeddings == max(rows, 9)
    assert model.specials.others == {tokenizer.mask_token_id, *range(9, rows)}
    blanked = Canvas(model.specials, ((4, 5, 6),), frozenset({2}))
    content = score(model.eval(), blanked).content
    assert bool((content[:, tokenizer.mask_token_id] == -torch.inf).all())
    assert bool(content[:, 4:7].isfinite().all())


@pytest.mark.parametrize(("family", "reason"), REFUSED.items())
def test_a_trunk_that_cannot_read_rows_is_rejected_with_the_reason(family: str, reason: str) -> None:
    tokenizer = tokenizer_of("pad", "cls", "sep", "unk", "mask")
    with pytest.raises(ModelError, match=rf"cannot be a trunk: .*{reason}.* or set cached_context: false"):
        KermitForInsertion.from_encoder(
            encoder_of(family, len(tokenizer)), tokenizer, cached_context=True, slot_vector="both"
        )
    KermitForInsertion.from_encoder(encoder_of(family, len(tokenizer)), tokenizer)


MASK, POSITIONS = "its tokens see others that the mask hides", "it does not use the positions it is given"
BROKEN: dict[str, tuple[str, Callable[[RowTensors], RowTensors]]] = {
    "given tokens see inserted ones": (MASK, lambda rows: replace(rows, mask=torch.ones_like(rows.mask))),
    "canvases see each other": (MASK, lambda rows: replace(rows, mask=rows.mask | (rows.orders > 0)[:, :, None])),
    "later tokens are seen from left to right": (
        MASK,
        lambda rows: replace(rows, mask=rows.mask | (rows.mask.mT & (rows.orders > 0)[:, :, None])),
    ),
    "part of the canvas is not seen": (
        "its inserted tokens do not see the whole canvas",
        lambda rows: replace(
            rows, mask=rows.mask & ((rows.orders == 0)[:, None] | torch.eye(rows.mask.shape[1], dtype=torch.bool))
        ),
    ),
    "places in the row": (
        POSITIONS,
        lambda rows: replace(rows, positions=torch.arange(rows.positions.shape[1]).expand_as(rows.positions).float()),
    ),
    "no positions": (POSITIONS, lambda rows: replace(rows, positions=0 * rows.positions)),
    "no fractions": (POSITIONS, lambda rows: replace(rows, positions=rows.positions.floor())),
    "nothing given": (
        "it encodes a canvas with nothing given differently",
        lambda rows: replace(rows, positions=2 * rows.positions),
    ),
}


@pytest.mark.parametrize("family", ["bert", "modernbert", "kermit_encoder"])
@pytest.mark.parametrize(("reason", "change"), BROKEN.values(), ids=list(BROKEN))
def test_every_fault_is_found(
    family: str, reason: str, change: Callable[[RowTensors], RowTensors], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(family)
    correctly = KermitModel.read
    monkeypatch.setattr(KermitModel, "read", lambda self, rows: correctly(self, change(rows)))
    with pytest.raises(ModelError, match=f"with cached_context, {reason}"):
        refuse_unfit_at_work(model.kermit)


def test_testing_a_trunk_with_cached_context_has_no_side_effects() -> None:
    model = random_model("bert", vocab_size=BLANK + 1, **CACHED).train()
    model.kermit.encoder.encoder.eval()
    assert bool(model.kermit.order_embeddings.weight.any())
    try_without_a_trace(model)
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
