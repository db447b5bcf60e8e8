"""Families of models, one file each: KERMIT and the models that the paper compares it with.

A recipe selects a family by `model.family`; a saved model belongs to the family with the `model_type` of its config. To
add a family, write a class with the methods of `kermit.families.base.Family` and call `register`.
"""

from __future__ import annotations

from kermit.errors import ModelError
from kermit.families.base import Family
from kermit.registry import Registry

FAMILIES: Registry[Family] = Registry(
    "family",
    {
        "transformer": "kermit.families.transformer:TRANSFORMER",
        "kermit": "kermit.families.kermit:KERMIT",
        "insertion_transformer": "kermit.families.insertion_transformer:INSERTION_TRANSFORMER",
        "masked_lm": "kermit.families.masked_lm:MASKED_LM",
        "causal_lm": "kermit.families.causal_lm:CAUSAL_LM",
    },
)
_OF_MODEL_TYPE = {"marian": "transformer", "kermit": "kermit"}


def register(family: Family) -> None:
    """Register a family under its name, replacing any family of that name."""
    FAMILIES.add(family.name, family)


def family_of_model_type(model_type: str) -> Family:
    """Return the family whose saved models have this `model_type` in their config."""
    if model_type in _OF_MODEL_TYPE:
        return FAMILIES.get(_OF_MODEL_TYPE[model_type])
    for family in FAMILIES.loaded():
        if family.model_type == model_type:
            return family
    raise ModelError(f"models of type {model_type!r} cannot translate; known types: {', '.join(_OF_MODEL_TYPE)}")
