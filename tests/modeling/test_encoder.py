"""Our own trunk alone: padding, the cache, positions, saving and exporting."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel

from kermit.canvas.context import GIVEN, PADDING, ContextRows
from kermit.modeling import Encoder, EncoderConfig

SHAPE: dict[str, Any] = {
    "vocab_size": 11,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.3,
}


def encoder(**settings: Any) -> Encoder:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Encoder(EncoderConfig(**SHAPE | settings)).eval()


def tokens(*shape: int) -> Tensor:
    return torch.randint(3, SHAPE["vocab_size"], shape, generator=torch.Generator().manual_seed(1))


def mask_of(blocks: list[int], times: list[int] | None = None) -> Tensor:
    """Which tokens see which in one row of cached context; only blocks and times matter."""
    numbers = np.array([blocks])
    ordered = np.array([times is not None])
    rows = ContextRows(numbers, numbers, numbers, numbers, np.array([times or [0] * len(blocks)]), ordered)
    return torch.as_tensor(rows.mask)[:, None]


@torch.inference_mode()
def states(model: Encoder, *arguments: Any, **settings: Any) -> Tensor:
    found = model(*arguments, **settings).last_hidden_state
    assert found is not None
    return found


def test_a_padded_batch_has_the_states_of_its_rows_one_by_one_and_zeros() -> None:
    model, ids = encoder(), tokens(3, 6)
    valid = torch.arange(6) < torch.tensor([6, 2, 4])[:, None]
    together = states(model, ids, valid.long())
    for row, length in enumerate((6, 2, 4)):
        alone = states(model, ids[row : row + 1, :length])
        assert torch.allclose(together[row, :length], alone[0], atol=1e-5)
        assert not together[row, length:].any()


@pytest.mark.parametrize("given_layers", [0, 2])
def test_rows_of_different_lengths_have_the_states_and_gradients_of_their_rows_one_by_one(given_layers: int) -> None:
    model, lengths = encoder(given_layers=given_layers), [30, 3, 12, 60, 1, 13, 31]
    ids, blocks = tokens(len(lengths), max(lengths)), torch.full((len(lengths), max(lengths)), PADDING)
    for row, length in enumerate(lengths):
        given = length // 2 * (row != 2)  # nothing is given in one row
        blocks[row, :length] = torch.tensor([GIVEN] * given + [1 + place % 2 for place in range(length - given)])
    mask = torch.cat([mask_of(row) for row in blocks.tolist()])

    def read(rows: slice, length: int) -> Tensor:
        here = blocks[rows, :length]
        planes = {"valid": here != PADDING, "given": here == GIVEN}
        found = model(ids[rows, :length], mask[rows, :, :length, :length], **planes).last_hidden_state
        return found[here != PADDING]

    def gradients(found: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(found.square().sum(), list(model.parameters())))

    together = read(slice(None), max(lengths))
    alone = torch.cat([read(slice(row, row + 1), length) for row, length in enumerate(lengths)])
    assert torch.allclose(together, alone, atol=1e-5)
    for one, other in zip(gradients(together), gradients(alone), strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-3)


def test_the_contents_and_place_of_padding_do_not_matter() -> None:
    model, ids = encoder(), tokens(1, 5)
    mask, positions = mask_of([GIVEN, GIVEN, 1, 1, 2]), torch.tensor([[0.0, 1.0, 0.5, 0.75, 0.5]])
    alone = states(model, ids, mask, positions)
    # the same row with two padded places in between, of other tokens
    wider, kept = tokens(1, 7), torch.tensor([0, 1, 3, 4, 6])
    wider[:, kept], places = ids, torch.full((1, 7), 9.0)
    places[:, kept] = positions
    mask = mask_of([GIVEN, GIVEN, PADDING, 1, 1, PADDING, 2])
    found = states(model, wider, mask, places, valid=torch.isin(torch.arange(7), kept)[None])
    assert torch.allclose(found[:, kept], alone, atol=1e-5)


@pytest.mark.parametrize("times", [None, [0, 0, 0, 0, 0, 1, 2]], ids=["whole", "left to right"])
def test_tokens_read_later_with_the_cache_have_the_states_of_all_read_at_once(times: list[int] | None) -> None:
    model, ids = encoder(), tokens(2, 7)
    mask = mask_of([GIVEN] * 4 + [1] * 3, times)
    positions = torch.tensor([[0.0, 1.0, 2.0, 3.0, 1.0, 1.5, 2.0]]).expand(2, -1)
    whole = states(model, ids, mask.expand(2, -1, -1, -1), positions)
    with torch.inference_mode():
        given = model(ids[:, :4], position_ids=positions[:, :4], use_cache=True)
        later = model(
            ids[:, 4:], mask[:, :, 4:].expand(2, -1, -1, -1), positions[:, 4:], past=given.cache, use_cache=True
        )
    assert torch.allclose(given.last_hidden_state, whole[:, :4], atol=1e-5)
    assert torch.allclose(later.last_hidden_state, whole[:, 4:], atol=1e-5)
    assert len(later.cache) == 3
    assert later.cache[0][0].shape == later.cache[0][1].shape == (2, 2, 7, 8)


def test_tokens_read_after_a_padded_cache_do_not_see_the_padding() -> None:
    model, ids = encoder(), tokens(2, 6)
    valid = torch.tensor([[True] * 4, [True] * 2 + [False] * 2])
    seen = torch.cat([valid, torch.ones(2, 2, dtype=torch.bool)], 1)[:, None, None]
    positions = torch.tensor([[1.0, 2.0]]).expand(2, -1)
    with torch.inference_mode():
        given = model(ids[:, :4], valid, use_cache=True)
        later = model(ids[:, 4:], seen, positions, past=given.cache).last_hidden_state
        alone = model(ids[1:, :2], use_cache=True)
        expected = model(ids[1:, 4:], position_ids=positions[1:], past=alone.cache).last_hidden_state
    assert torch.allclose(later[1:], expected, atol=1e-5)


@pytest.mark.parametrize("shift", [1.0, 0.3, 40.0])
def test_positions_are_relative(shift: float) -> None:
    model, ids = encoder(), tokens(2, 6)
    positions = torch.tensor([[0.0, 1.0, 1.5, 1.75, 2.0, 3.0]]).expand(2, -1)
    here = states(model, ids, position_ids=positions)
    assert torch.allclose(states(model, ids, position_ids=positions + shift), here, atol=1e-4)
    assert not torch.allclose(states(model, ids, position_ids=1.25 * positions), here, atol=1e-2)


def test_positions_count_from_zero_by_default() -> None:
    model, ids = encoder(), tokens(2, 6)
    positions = torch.arange(6).expand(2, -1)
    assert torch.equal(states(model, ids), states(model, ids, position_ids=positions))


def test_saved_and_loaded_weights_are_the_same(tmp_path: Path) -> None:
    model, ids = encoder(), tokens(2, 6)
    model.save_pretrained(tmp_path)
    for again in (Encoder.from_pretrained(tmp_path), AutoModel.from_pretrained(tmp_path)):
        assert isinstance(again, Encoder)
        assert {name: getattr(again.config, name) for name in SHAPE} == SHAPE
        assert again.state_dict().keys() == model.state_dict().keys()
        assert all(torch.equal(again.state_dict()[name], weight) for name, weight in model.state_dict().items())
        assert torch.equal(states(again.eval(), ids), states(model, ids))


@pytest.mark.parametrize(("width", "heads"), [(16, 3), (6, 2), (16, 16)])
def test_a_head_without_an_even_width_is_an_error_that_says_what_fits(width: int, heads: int) -> None:
    with pytest.raises(ValueError, match=rf"hidden_size must be a multiple of .* \({2 * heads}\), not {width}"):
        EncoderConfig(**SHAPE | {"hidden_size": width, "num_attention_heads": heads})


def test_new_weights_that_add_to_the_states_are_smaller_in_deeper_models() -> None:
    model = encoder(hidden_size=64, num_hidden_layers=8, initializer_range=None)
    layer = model.layers[0]
    for weight, std in ((layer.up.weight, 1 / 8), (layer.down.weight, 1 / 32), (layer.attention.out.weight, 1 / 32)):
        assert float(weight.detach().std()) == pytest.approx(std, rel=0.1)
    assert bool((layer.mlp_norm.weight == 1).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_nearly_the_same(dtype: torch.dtype) -> None:
    model, ids = encoder(), tokens(2, 6)
    valid = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    full = states(model, ids, valid)
    half = states(model.to(dtype), ids, valid)
    assert half.dtype == dtype
    assert torch.allclose(half.float(), full, atol=0.1)


@pytest.mark.slow
class _Exported(nn.Module):
    """Reads tokens after those of a cache, as an engine does, and returns states, keys and values as a flat tuple."""

    def __init__(self, model: Encoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor, positions: Tensor, past: list[Tensor]) -> tuple[Tensor, ...]:
        """States, then the keys and values of every layer."""
        pairs = tuple(zip(past[::2], past[1::2], strict=True))
        found = self.model(ids, mask, positions, past=pairs, use_cache=True)
        return found.last_hidden_state, *(part for pair in found.cache for part in pair)


@pytest.mark.slow
def test_it_exports_to_onnx_with_its_cache(tmp_path: Path) -> None:
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package, reason=f"exporting needs {package}")
    onnxruntime = pytest.importorskip("onnxruntime", reason="running what was exported needs onnxruntime")
    model = encoder()

    def inputs(batch: int, given: int, new: int) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        with torch.inference_mode():
            cache = model(tokens(batch, given), use_cache=True).cache
        assert cache is not None
        mask = torch.ones(batch, 1, new, given + new, dtype=torch.bool)
        mask[:, :, 0, -1] = False
        positions = torch.arange(new).expand(batch, -1) / 2 + 1
        return tokens(batch, new), mask, positions, [part.clone() for pair in cache for part in pair]

    batch, given, new, keys = (torch.export.Dim.DYNAMIC,) * 4
    shapes = ({0: batch, 1: new}, {0: batch, 2: new, 3: keys}, {0: batch, 1: new}, [{0: batch, 2: given}] * 6)
    path = tmp_path / "encoder.onnx"
    torch.onnx.export(_Exported(model).eval(), inputs(2, 4, 3), path, dynamic_shapes=shapes, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(os.fspath(path), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    for sizes in ((2, 4, 3), (3, 6, 2)):
        ids, mask, positions, past = inputs(*sizes)
        with torch.inference_mode():
            expected = _Exported(model)(ids, mask, positions, past)
        fed = dict(zip(names, (part.numpy() for part in (ids, mask, positions, *past)), strict=True))
        for wanted, found in zip(expected, session.run(None, fed), strict=True):
            assert torch.allclose(torch.from_numpy(found), wanted, atol=1e-4)


def test_given_tokens_pass_the_first_layers_and_inserted_ones_the_others() -> None:
    model = encoder(num_hidden_layers=5, given_layers=2)
    ids, blocks = tokens(1, 7), [0, 0, 0, 1, 1, 2, 2]
    mask, given = mask_of(blocks), torch.tensor([blocks]) == GIVEN
    whole = states(model, ids, mask, given=given)
    first = encoder(num_hidden_layers=2)
    first.load_state_dict(model.state_dict(), strict=False)
    assert torch.allclose(whole[:, :3], states(first, ids[:, :3]), atol=1e-6)
    for number in range(5):  # each layer affects only its own tokens, and the tokens that attend to them
        changed = encoder(num_hidden_layers=5, given_layers=2)
        with torch.no_grad():
            changed.layers[number].down.weight.mul_(2)
        moved = (states(changed, ids, mask, given=given) - whole).abs().amax(2)[0] > 1e-6
        assert moved.tolist() == ([True] * 7 if number < 2 else [False] * 3 + [True] * 4)


def test_all_tokens_are_given_by_default() -> None:
    model, ids = encoder(given_layers=1), tokens(2, 5)
    assert torch.equal(states(model, ids), states(model, ids, given=torch.ones_like(ids, dtype=torch.bool)))


def test_inserted_tokens_read_after_a_cache_have_the_same_states() -> None:
    model = encoder(num_hidden_layers=4, given_layers=2)
    ids, blocks = tokens(2, 6), [0, 0, 0, 0, 1, 1]
    mask = mask_of(blocks).expand(2, -1, -1, -1)
    valid = torch.tensor([[True] * 6, [True, True, True, False, True, False]])
    mask = mask & valid[:, None, None, :] | torch.eye(6, dtype=torch.bool)
    given = (torch.tensor([blocks]) == GIVEN).expand(2, -1)
    positions = torch.arange(6).expand(2, 6)
    whole = states(model, ids, mask, positions, valid=valid, given=given)
    with torch.inference_mode():
        read = model(
            ids[:, :4], mask[:, :, :4, :4], positions[:, :4], valid=valid[:, :4], given=given[:, :4], use_cache=True
        )
        assert len(read.cache) == 2
        after = model(
            ids[:, 4:], mask[:, :, 4:], positions[:, 4:], valid=valid[:, 4:], given=given[:, 4:], past=read.cache
        )
    assert torch.allclose(read.last_hidden_state, whole[:, :4], atol=1e-6)
    assert torch.allclose(after.last_hidden_state, whole[:, 4:], atol=1e-6)


@pytest.mark.parametrize("given_layers", [-1, 3])
def test_at_least_one_layer_is_left_for_inserted_tokens(given_layers: int) -> None:
    with pytest.raises(ValueError, match="given_layers must be from 0 to num_hidden_layers - 1 \\(2\\)"):
        encoder(given_layers=given_layers)
