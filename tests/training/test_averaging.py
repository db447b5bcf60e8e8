from pathlib import Path

import pytest
import torch
from torch import nn

from kermit.training.averaging import MovingAverage


def test_the_moving_average_equals_the_recurrence_worked_out_by_hand() -> None:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(0.0)
        average = MovingAverage(model, 0.9)
        expected = 0.0
        for step, value in enumerate([1.0, 2.0, 4.0], start=1):
            model.weight.fill_(value)
            average.update(step)
            decay = min(0.9, (1 + step) / (10 + step))
            expected = decay * expected + (1 - decay) * value
    with average.applied():
        assert model.weight.item() == pytest.approx(expected)
    assert model.weight.item() == 4.0


def test_original_weights_are_restored_even_after_an_error() -> None:
    model = nn.Linear(2, 2)
    average = MovingAverage(model, 0.5)
    own = model.weight.detach().clone()
    with pytest.raises(RuntimeError), average.applied():
        raise RuntimeError
    assert torch.equal(model.weight, own)


def test_saving_and_loading_preserves_the_average(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    average = MovingAverage(model, 0.9)
    with torch.no_grad():
        model.weight.add_(1.0)
    average.update(5)
    average.save(tmp_path / "average.safetensors")
    other = MovingAverage(model, 0.9)
    other.load(tmp_path / "average.safetensors")
    with average.applied():
        expected = model.weight.detach().clone()
    with other.applied():
        assert torch.equal(model.weight, expected)
