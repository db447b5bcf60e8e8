"""Order priors by name, as recipes, the command line and requests give them.

To add a prior of your own, write a class (`kermit.objectives.OrderPrior`), call `register_prior` in its module, and
name the module in the recipe's `imports`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kermit.registry import Registry

if TYPE_CHECKING:
    from kermit.objectives.orders import OrderPrior


class PriorName(StrEnum):
    """The priors of the package."""

    UNIFORM = "uniform"
    BALANCED_TREE = "balanced_tree"
    LEFT_TO_RIGHT = "left_to_right"


_PRIORS: Registry[Callable[..., OrderPrior]] = Registry(
    "prior",
    {
        PriorName.UNIFORM.value: "kermit.objectives.orders:UniformPrior",
        PriorName.BALANCED_TREE.value: "kermit.objectives.orders:BalancedTreePrior",
        PriorName.LEFT_TO_RIGHT.value: "kermit.objectives.orders:LeftToRightPrior",
    },
)


def prior_names() -> list[str]:
    """List every prior that a recipe can name."""
    return _PRIORS.names()


def register_prior(name: str, make: Callable[..., OrderPrior]) -> None:
    """Make a prior known by a name; it replaces one of the same name.

    Args:
        name: as recipes give it in `objective.prior`.
        make: the class, or what makes an instance; it gets `objective.prior_settings` as keyword arguments.
    """
    _PRIORS.add(name, make)


def make_prior(name: str, *, temperature: float = 1.0, **settings: Any) -> OrderPrior:
    """Make a prior.

    Args:
        name: its name.
        temperature: of the balanced tree; other priors have none.
        settings: keyword arguments for the prior.
    """
    own = {"temperature": temperature} if name == PriorName.BALANCED_TREE else {}
    return _PRIORS.get(name)(**own, **settings)
