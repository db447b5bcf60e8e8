import pytest
import torch
from torch import nn
from torch.nn import functional

from kermit.training.dropout import FastDropout


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


def test_it_reaches_modules_and_functions_and_follows_the_mode() -> None:
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


def test_the_mask_depends_on_the_entropy_alone() -> None:
    def draw(*entropy: int) -> torch.Tensor:
        with FastDropout(entropy):
            return torch.cat([functional.dropout(torch.ones(333), 0.5), functional.dropout(torch.ones(7), 0.5)])

    torch.manual_seed(1)
    first = draw(1, 2)
    torch.manual_seed(2)
    assert torch.equal(first, draw(1, 2))
    assert not torch.equal(first, draw(1, 3))


def test_torch_is_itself_again_outside() -> None:
    with FastDropout([1]):
        pass
    torch.manual_seed(0)
    first = functional.dropout(torch.ones(100), 0.5)
    torch.manual_seed(0)
    assert torch.equal(first, functional.dropout(torch.ones(100), 0.5))
