"""The objectives of insertion models by name, and the recipe's section `objective`.

To add an objective, write a subclass of `kermit.objectives.objective.Objective`, call `register_objective` in its
module, and list the module in the recipe's `imports`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, field_validator, model_validator

from kermit.canvas import Termination
from kermit.errors import nearest
from kermit.objectives.generations import MISSING, REMOVED, GenerationObjective, Removal
from kermit.objectives.objective import KeptSampling, Objective, SlotShare
from kermit.objectives.orders import OrderPrior
from kermit.objectives.priors import PRIORS, PriorName, make_prior
from kermit.registry import Registry
from kermit.validated_settings import Fraction, NotNegative, Settings, Share


class ObjectiveName(StrEnum):
    """The built-in objectives: the slot loss, the lower bound of section 3.1, and all rounds of a generation."""

    SLOT = "slot"
    LOWER_BOUND = "lower_bound"
    GENERATION = "generation"


_OBJECTIVES: Registry[Callable[..., Objective]] = Registry(
    "objective",
    {
        ObjectiveName.SLOT.value: "kermit.objectives.objective:SlotObjective",
        ObjectiveName.LOWER_BOUND.value: "kermit.objectives.objective:LowerBoundObjective",
    },
)


def register_objective(name: str, make: Callable[..., Objective]) -> None:
    """Register an objective under a name, the value of `objective.name` in recipes.

    `make` is called with the prior, the other arguments of `SlotObjective` as keyword arguments from the recipe, and
    `objective.settings` as further keyword arguments.
    """
    _OBJECTIVES.add(name, make)


KeptMix = Annotated[
    dict[KeptSampling, PositiveFloat],
    BeforeValidator(lambda value: {value: 1.0} if isinstance(value, str) else value),
    Field(min_length=1),
]


RemovalMix = Annotated[
    dict[Removal, PositiveFloat],
    BeforeValidator(lambda value: {value: 1.0} if isinstance(value, str) else value),
    Field(min_length=1),
]


_OF_BOTH = ("location_weight", "empty_slot_weight", "common_ids")
_OF_SLOT_LOSS = ("kept", "drop_probability", "span_length", "share", "empty_slot_rate")
_OF_GENERATIONS = ("completion_weight", "infilling", "removed", "missing", "unmarked", "staggered")
_WITHOUT_EFFECT: dict[str, tuple[str, ...]] = {
    ObjectiveName.SLOT: _OF_GENERATIONS,
    ObjectiveName.LOWER_BOUND: (*_OF_SLOT_LOSS, *_OF_BOTH, *_OF_GENERATIONS),
    ObjectiveName.GENERATION: _OF_SLOT_LOSS,
}
"""The settings that a built-in objective does not use; custom ones may use all."""


class ObjectiveSettings(Settings):
    """The loss: see `kermit.objectives`; `kept` is one way of keeping tokens, or a mix.

    `settings` and `prior_settings` are passed to custom objectives and priors.
    """

    name: str = ObjectiveName.SLOT.value
    settings: dict[str, Any] = {}  # noqa: RUF012
    prior: str = PriorName.BALANCED_TREE.value
    prior_settings: dict[str, Any] = {}  # noqa: RUF012
    temperature: PositiveFloat = 1.0
    kept: KeptMix = {KeptSampling.UNIFORM: 1.0}  # noqa: RUF012
    drop_probability: Fraction = 0.15
    span_length: Annotated[float, Field(ge=1.0)] = 1.0
    common_ids: NonNegativeInt = 0
    share: SlotShare = SlotShare.CANVAS
    location_weight: NotNegative = 1.0
    empty_slot_rate: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    empty_slot_weight: NotNegative = 1.0
    completion_weight: NotNegative = 0.0
    infilling: Fraction = 0.0
    removed: RemovalMix = dict(REMOVED)  # noqa: RUF012
    missing: tuple[Fraction, Fraction] = MISSING
    unmarked: Fraction = 0.0
    staggered: Fraction = 0.0
    label_smoothing: Share = 0.0

    @field_validator("prior")
    @classmethod
    def _known_prior(cls, name: str) -> str:
        return _known(name, PRIORS.names())

    @field_validator("name")
    @classmethod
    def _known_objective(cls, name: str) -> str:
        return name if name == ObjectiveName.GENERATION else _known(name, _OBJECTIVES.names())

    @field_validator("missing")
    @classmethod
    def _ascending(cls, shares: tuple[float, float]) -> tuple[float, float]:
        if shares[0] > shares[1]:
            raise ValueError(f"the first share must not exceed the second: {list(shares)}")
        return shares

    @model_validator(mode="after")
    def _nothing_in_vain(self) -> ObjectiveSettings:
        ways, name = (self.removed, "removed") if self.name == ObjectiveName.GENERATION else (self.kept, "kept")
        if self.common_ids and "repeated" not in ways:
            raise ValueError(f"common_ids applies only to repeated runs; add repeated to {name}, or leave it out")
        if self.prior != PriorName.BALANCED_TREE and self.changed("temperature"):
            raise ValueError("temperature applies only to the prior balanced_tree; other priors have prior_settings")
        for name in self.changed(*_WITHOUT_EFFECT.get(self.name, ())):
            raise ValueError(f"{name} has no effect on the objective {self.name}; leave it out")
        return self

    def for_validation(self) -> ObjectiveSettings:
        """Return the settings without random omission of empty slots."""
        whole = dict(self) | {"empty_slot_rate": 1.0}
        return type(self).model_construct(self.model_fields_set, **whole)

    @cached_property
    def order_prior(self) -> OrderPrior:
        """The order prior, created once."""
        return make_prior(self.prior, temperature=self.temperature, **self.prior_settings)

    def build(self, termination: Termination) -> Objective:
        """Create the objective for single canvases."""
        make = _OBJECTIVES.get(self.name)
        if self.name == ObjectiveName.LOWER_BOUND:
            return make(self.order_prior, **self.settings)
        chosen = {name: getattr(self, name) for name in (*_OF_SLOT_LOSS, *_OF_BOTH)}
        chosen["kept"] = self.kept if len(self.kept) > 1 else next(iter(self.kept))
        return make(self.order_prior, termination=termination, **chosen, **self.settings)

    @property
    def generation(self) -> GenerationObjective:
        """The objective for whole generations."""
        chosen = {name: getattr(self, name) for name in (*_OF_BOTH, *_OF_GENERATIONS)}
        return GenerationObjective(self.order_prior, **chosen)


def _known(name: str, known: list[str]) -> str:
    if name not in known:
        raise ValueError(f"must be one of {', '.join(known)}{nearest(name, known)}")
    return str(name)
