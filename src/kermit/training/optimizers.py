"""The optimisers and learning-rate schedules of recipes.

Weight decay applies only to matrices. Muon (orthogonalised momentum) updates the matrices inside the layers; AdamW
updates embeddings, norms and biases; the two act as one optimiser.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from kermit.training.muon import Muon
from kermit.training.settings import OptimizerSettings, Precision, ScheduleSettings


def build_optimizer(
    model: nn.Module, settings: OptimizerSettings, precision: Precision = Precision.FLOAT32
) -> torch.optim.Optimizer:
    """Build the recipe's optimiser for a model's trainable parameters; Muon follows the precision bfloat16."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    hidden, matrices, vectors = [], [], []
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.ndim < 2:
            vectors.append(parameter)
        elif parameter.ndim == 2 and id(parameter) not in embeddings:
            hidden.append(parameter)
        else:
            matrices.append(parameter)
    use_muon = settings.name == "muon" and bool(hidden)
    decayed = matrices if use_muon else [*matrices, *hidden]
    groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
    )
    if not use_muon:
        return adamw
    muon = Muon(
        hidden,
        lr=settings.muon_learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        orthogonalise_in=torch.bfloat16 if precision is Precision.BFLOAT16 else None,
    )
    return JointOptimizer([muon, adamw])


class JointOptimizer(torch.optim.Optimizer):
    """Several optimisers over disjoint parameters that act as one."""

    def __init__(self, parts: list[torch.optim.Optimizer]) -> None:
        self.parts = parts
        super().__init__(
            [parameter for part in parts for group in part.param_groups for parameter in group["params"]], {}
        )
        self.param_groups = [group for part in parts for group in part.param_groups]
        self.defaults = dict(parts[-1].defaults)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Step every part."""
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every part."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of every part."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [group for part in self.parts for group in part.param_groups]


def rate_at(step: int, schedule: ScheduleSettings) -> float:
    """Return the learning rate after `step` updates, as a fraction of the peak."""
    warmup, last = schedule.warmup_steps, schedule.max_steps
    if step < warmup:
        return (step + 1) / (warmup + 1)
    cooldown_start = last - schedule.cooldown_steps
    if schedule.cooldown_steps and step > cooldown_start:
        left = max(last - step, 0) / schedule.cooldown_steps
        return rate_at(cooldown_start, schedule) * (schedule.final + (1 - schedule.final) * left)
    done = min((step - warmup) / max(last - warmup, 1), 1.0)
    match schedule.name:
        case "inverse_sqrt":
            return math.sqrt(max(warmup, 1) / max(step, 1))
        case "cosine":
            return schedule.final + (1 - schedule.final) * 0.5 * (1 + math.cos(math.pi * done))
        case "linear":
            return schedule.final + (1 - schedule.final) * (1 - done)
        case "constant":
            return 1.0


def build_schedule(optimizer: torch.optim.Optimizer, schedule: ScheduleSettings) -> torch.optim.lr_scheduler.LambdaLR:
    """Build torch's scheduler for a schedule."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, schedule))
