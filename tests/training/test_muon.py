"""Muon compared with torch's version, which orthogonalises in bfloat16, and with a singular value decomposition."""

import pytest
import torch
from torch.optim import _muon as torch_muon

from kermit.training.muon import Muon, orthogonalised


@pytest.mark.parametrize("shape", [(3, 48, 48), (2, 96, 24), (2, 24, 96), (1, 1, 8)])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e6])
def test_singular_vectors_stay_and_singular_values_come_near_one(shape: tuple[int, ...], scale: float) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(shape) * scale
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    found = left.mT @ orthogonalised(matrices) @ right.mT
    diagonal = found.diagonal(dim1=1, dim2=2)
    assert (found - torch.diag_embed(diagonal)).abs().max() < 1e-2
    assert ((diagonal - 1).abs()[values > 0.02 * values[:, :1]] < 0.35).all()


def test_a_matrix_of_zeros_stays_zero() -> None:
    assert torch.equal(orthogonalised(torch.zeros(1, 4, 6)), torch.zeros(1, 4, 6))


def torch_orthogonalised(matrices: torch.Tensor) -> torch.Tensor:
    """As in torch, one matrix at a time."""
    coefficients = (torch_muon.DEFAULT_A, torch_muon.DEFAULT_B, torch_muon.DEFAULT_C)
    found = [torch_muon._zeropower_via_newtonschulz(matrix, coefficients, 5, 1e-7) for matrix in matrices]
    return torch.stack(found).float()


def test_steps_equal_those_of_torch_except_for_orthogonalisation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kermit.training.muon.orthogonalised", torch_orthogonalised)
    generator = torch.Generator().manual_seed(1)
    start = [torch.randn(6, 4, generator=generator), torch.randn(4, 4, generator=generator)]
    ours, theirs = ([torch.nn.Parameter(weight.clone()) for weight in start] for _ in range(2))
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}
    optimizers = [Muon(ours, **settings), torch.optim.Muon(theirs, adjust_lr_fn="match_rms_adamw", **settings)]
    for _ in range(3):
        gradients = [torch.randn(weight.shape, generator=generator) for weight in start]
        for parameters, optimizer in zip((ours, theirs), optimizers, strict=True):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-3, rtol=0)


def test_steps_in_bfloat16_are_nearly_those_in_float32() -> None:
    generator = torch.Generator().manual_seed(2)
    start, gradient = torch.randn(24, 16, generator=generator), torch.randn(24, 16, generator=generator)
    found = []
    for form in (None, torch.bfloat16):
        weight = torch.nn.Parameter(start.clone())
        weight.grad = gradient.clone()
        Muon([weight], lr=0.1, momentum=0.9, weight_decay=0.0, orthogonalise_in=form).step()
        found.append(weight.detach() - start)
    exact, half = found
    assert half.dtype is torch.float32
    assert not torch.equal(exact, half)
    assert torch.nn.functional.cosine_similarity(exact.flatten(), half.flatten(), dim=0) > 0.99


def test_a_matrix_without_gradient_does_not_change() -> None:
    used, unused = torch.nn.Parameter(torch.eye(3)), torch.nn.Parameter(torch.eye(3))
    used.grad = torch.ones(3, 3)
    Muon([used, unused], lr=0.1, momentum=0.9, weight_decay=0.5).step()
    torch.testing.assert_close(unused.detach(), torch.eye(3))
    assert not torch.equal(used, torch.eye(3))
