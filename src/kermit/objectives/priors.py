"""Order priors by name, for recipes, the command line and requests.

To add a prior, write a subclass of `kermit.OrderPrior`, call `register_prior` in its module, and list the
module in the recipe's `imports`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kermit.registry import Registry

if TYPE_CHECKING:
    from kermit.objectives.orders import OrderPrior


class PriorName(StrEnum):
    """The built-in priors."""

    UNIFORM = "uniform"
    BALANCED_TREE = "balanced_tree"
    LEFT_TO_RIGHT = "left_to_right"


PRIORS: Registry[Callable[..., OrderPrior]] = Registry(
    "prior",
    {
        PriorName.UNIFORM.value: "kermit.objectives.orders:UniformPrior",
        PriorName.BALANCED_TREE.value: "kermit.objectives.orders:BalancedTreePrior",
        PriorName.LEFT_TO_RIGHT.value: "kermit.objectives.orders:LeftToRightPrior",
    },
)


def register_prior(name: str, make: Callable[..., OrderPrior]) -> None:
    """Register a prior as a value of `objective.prior`; `make` is called with `objective.prior_settings`."""
    PRIORS.add(name, make)


def make_prior(name: str, *, temperature: float = 1.0, **settings: Any) -> OrderPrior:
    """Make a prior by name; only the balanced tree takes the temperature."""
    own = {"temperature": temperature} if name == PriorName.BALANCED_TREE else {}
    return PRIORS.get(name)(**own, **settings)
