import math
from typing import Any

import pytest
import torch
from torch import nn

from kermit.training.optimizers import JointOptimizer, build_optimizer, build_schedule, rate_at
from kermit.training.settings import OptimizerSettings, ScheduleSettings


def schedule(**settings: Any) -> ScheduleSettings:
    return ScheduleSettings(**{"max_steps": 100, "warmup_steps": 10, **settings})


@pytest.mark.parametrize(
    ("name", "step", "rate"),
    [
        ("constant", 0, 1 / 11),
        ("constant", 9, 10 / 11),
        ("constant", 10, 1.0),
        ("constant", 100, 1.0),
        ("inverse_sqrt", 10, 1.0),
        ("inverse_sqrt", 40, 0.5),
        ("linear", 55, 0.55),
        ("linear", 100, 0.1),
        ("cosine", 55, 0.55),
        ("cosine", 100, 0.1),
    ],
)
def test_the_learning_rate_equals_values_worked_out_by_hand(name: str, step: int, rate: float) -> None:
    ending = {"final": 0.1} if name in ("linear", "cosine") else {}
    assert rate_at(step, schedule(name=name, **ending)) == pytest.approx(rate)


def test_a_cooldown_ends_any_schedule_linearly() -> None:
    cooled = schedule(name="constant", cooldown_steps=20)
    assert [rate_at(step, cooled) for step in (80, 85, 90, 100)] == pytest.approx([1.0, 0.75, 0.5, 0.0])
    inverse = schedule(name="inverse_sqrt", cooldown_steps=20)
    assert rate_at(90, inverse) == pytest.approx(math.sqrt(10 / 80) / 2)
    partly = schedule(name="constant", cooldown_steps=20, final=0.2)
    assert [rate_at(step, partly) for step in (80, 90, 100)] == pytest.approx([1.0, 0.6, 0.2])


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 5))


def test_only_matrices_decay() -> None:
    network = model()
    optimizer = build_optimizer(network, OptimizerSettings(weight_decay=0.5))
    decayed = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert decayed == {id(parameter) for parameter in network.parameters() if parameter.ndim == 2}


def test_muon_takes_the_layers_matrices_and_adamw_the_rest() -> None:
    network = model()
    optimizer = build_optimizer(network, OptimizerSettings(name="muon"))
    assert isinstance(optimizer, JointOptimizer)
    muon, adamw = optimizer.parts
    assert {id(p) for group in muon.param_groups for p in group["params"]} == {
        id(network[1].weight),
        id(network[3].weight),
    }
    count = sum(len(group["params"]) for group in [*muon.param_groups, *adamw.param_groups])
    assert count == len(list(network.parameters()))


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_saved_and_loaded_optimiser_continues_as_if_never_stopped(name: str, tmp_path: Any) -> None:
    rates = {"learning_rate": 0.1} | ({"muon_learning_rate": 0.1} if name == "muon" else {})
    settings = OptimizerSettings(name=name, **rates)

    def run(network: nn.Module, optimizer: Any, course: Any, steps: int) -> None:
        for _ in range(steps):
            network(torch.tensor([[1, 2], [3, 0]])).square().sum().backward()
            optimizer.step()
            course.step()
            optimizer.zero_grad()

    whole, first, second = model(), model(), model()
    for network, steps in ((whole, 6), (first, 3)):
        optimizer = build_optimizer(network, settings)
        course = build_schedule(optimizer, schedule(warmup_steps=3))
        run(network, optimizer, course, steps)
    torch.save([optimizer.state_dict(), course.state_dict()], tmp_path / "state.pt")
    second.load_state_dict(first.state_dict())
    optimizer = build_optimizer(second, settings)
    course = build_schedule(optimizer, schedule(warmup_steps=3))
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    optimizer.load_state_dict(saved[0])
    course.load_state_dict(saved[1])
    run(second, optimizer, course, 3)
    for expected, found in zip(whole.parameters(), second.parameters(), strict=True):
        assert torch.equal(expected, found)


def test_a_cooldown_that_starts_during_warmup_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"cooldown_steps: 91 .* 10 warmup_steps .* 100"):
        ScheduleSettings(name="constant", max_steps=100, warmup_steps=10, cooldown_steps=91)
