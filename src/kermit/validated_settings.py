"""Validated settings: the base class of recipe sections, and the number types that they use."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat

from kermit.canvas import Factorization

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
FactorizationMix = dict[Factorization, PositiveFloat]
OrderMix = Annotated[dict[str, PositiveFloat], Field(min_length=1)]


class Settings(BaseModel):
    """Base of every section of a recipe: unknown keys are errors, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def changed(self, *names: str) -> list[str]:
        """Return the named settings that differ from their defaults."""
        return [name for name in names if getattr(self, name) != type(self).model_fields[name].default]

    def for_validation(self) -> Settings:
        """Return the settings without the randomness that only training needs, such as that of an objective."""
        return self


class FamilySettings(Settings):
    """Base of a family's `model` section; `family` names the family."""

    family: str
