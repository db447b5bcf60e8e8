"""Attention in float32 within a computation in bfloat16: what it computes, and that gradients pass."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from kermit.training.attention import SingleAttention


@pytest.fixture
def states() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 3, 9, 8).bfloat16().requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("boolean", [True, False])
@pytest.mark.parametrize("autocast", [True, False])
def test_it_is_that_of_float32_in_the_format_that_was_asked(
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


def test_everything_else_is_left_as_it_is(states: list[torch.Tensor]) -> None:
    with SingleAttention():
        product = states[0] @ states[1].mT
    assert product.dtype is torch.bfloat16
    assert torch.equal(product, states[0] @ states[1].mT)
