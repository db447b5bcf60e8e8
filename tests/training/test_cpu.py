"""Dropout from random bytes, and attention in float32 within a computation in bfloat16."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from kermit.training.cpu import FastDropout, SingleAttention


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_kept_values_are_scaled_so_that_the_mean_stays(p: float) -> None:
    values = torch.ones(400, 500)
    with FastDropout([1]):
        dropped = functional.dropout(values, p)
    kept = dropped[dropped != 0]
    assert kept.unique().numel() == 1
    assert abs(len(kept) / values.numel() - (1 - p)) < 0.004
    assert abs(dropped.mean().item() - 1.0) < 0.01


def test_gradients_pass_where_values_passed() -> None:
    values = torch.randn(50, 3, requires_grad=True)
    with FastDropout([1]):
        dropped = functional.dropout(values, 0.4)
    dropped.sum().backward()
    assert torch.equal(values.grad * values, dropped)


def test_it_applies_to_modules_and_functions_and_follows_the_mode() -> None:
    module = nn.Sequential(nn.Dropout(0.5))
    ones = torch.ones(1000)
    with FastDropout([4]):
        first = module(ones)
    with FastDropout([4]):
        again = functional.dropout(ones, 0.5)
    assert torch.equal(first, again)
    with FastDropout([4]):
        assert torch.equal(module.eval()(ones), ones)
        assert torch.equal(functional.dropout(ones, 0.0), ones)


def test_the_mask_depends_only_on_the_entropy() -> None:
    def draw(*entropy: int) -> torch.Tensor:
        with FastDropout(entropy):
            return torch.cat([functional.dropout(torch.ones(333), 0.5), functional.dropout(torch.ones(7), 0.5)])

    torch.manual_seed(1)
    first = draw(1, 2)
    torch.manual_seed(2)
    assert torch.equal(first, draw(1, 2))
    assert not torch.equal(first, draw(1, 3))


def test_torch_is_restored_outside_the_context() -> None:
    with FastDropout([1]):
        pass
    torch.manual_seed(0)
    first = functional.dropout(torch.ones(100), 0.5)
    torch.manual_seed(0)
    assert torch.equal(first, functional.dropout(torch.ones(100), 0.5))


@pytest.fixture
def states() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 3, 9, 8).bfloat16().requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("boolean", [True, False])
@pytest.mark.parametrize("autocast", [True, False])
def test_attention_equals_float32_in_the_requested_format(
    states: list[torch.Tensor], boolean: bool, autocast: bool
) -> None:
    seen = torch.rand(2, 1, 9, 9) > 0.3
    seen[..., 0] = True
    mask = seen if boolean else torch.zeros_like(seen, dtype=torch.bfloat16).masked_fill(~seen, -torch.inf)
    with SingleAttention(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        query, key, value = states
        found = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.5)
        by_name = scaled_dot_product_attention(query=query, key=key, value=value, attn_mask=mask, scale=0.5)
    expected = scaled_dot_product_attention(*(state.float() for state in states), attn_mask=seen, scale=0.5)
    assert found.dtype is torch.bfloat16
    assert torch.equal(found, by_name)
    assert torch.equal(found, expected.bfloat16())
    found.float().square().sum().backward()
    assert all(state.grad is not None and state.grad.abs().sum() > 0 for state in states)


def test_everything_else_is_unchanged(states: list[torch.Tensor]) -> None:
    with SingleAttention():
        product = states[0] @ states[1].mT
    assert product.dtype is torch.bfloat16
    assert torch.equal(product, states[0] @ states[1].mT)
