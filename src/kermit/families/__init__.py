"""Families of models, one file each: KERMIT, and what the paper compares it with.

A recipe names a family by `model.family`; a saved model belongs to the family with the `model_type` of its config. To
add a family, write a class with the methods of `kermit.families.base.Family` and call `register`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from kermit.errors import ModelError
from kermit.families.base import ChosenDecoding, Facade, Family, TranslationFamily
from kermit.registry import Registry

_FAMILIES: Registry[Family] = Registry(
    "family",
    {
        "transformer": "kermit.families.transformer:TRANSFORMER",
        "kermit": "kermit.families.kermit:KERMIT",
        "insertion_transformer": "kermit.families.insertion_transformer:INSERTION_TRANSFORMER",
        "masked_lm": "kermit.families.masked_lm:MASKED_LM",
        "causal_lm": "kermit.families.causal_lm:CAUSAL_LM",
    },
)
_OF_MODEL_TYPE = {"marian": "transformer", "kermit": "kermit", "insertion_transformer": "insertion_transformer"}


def family_names() -> list[str]:
    """List every family that a recipe can name."""
    return _FAMILIES.names()


def register(family: Family) -> None:
    """Make a family known by its name; it replaces one of the same name."""
    _FAMILIES.add(family.name, family)


def get_family(name: str) -> Family:
    """Return the family of that name."""
    return _FAMILIES.get(name)


def family_of_model_type(model_type: str) -> Family:
    """Return the family whose saved models have this `model_type` in their config."""
    if model_type in _OF_MODEL_TYPE:
        return get_family(_OF_MODEL_TYPE[model_type])
    for family in _FAMILIES.loaded():
        if family.model_type == model_type:
            return family
    raise ModelError(f"models of type {model_type!r} cannot translate; known types: {', '.join(_OF_MODEL_TYPE)}")


def load_facade(name: str | Path | None = None, *, device: Any = None, dtype: Any = None) -> Facade:
    """Load a model that translates, of any family.

    Args:
        name: any name that `kermit.loading.find_model` knows; the bundled model by default.
        device: where to compute; a GPU if there is one by default.
        dtype: of the weights and the arithmetic; float32 by default. Half precision is faster where the hardware has
            instructions for it, but rounding may then make a text depend on its batch.
    """
    from kermit.data.tokenizer import load_tokenizer
    from kermit.loading import find_model, in_precision, on_device, read_config, reading

    folder = find_model(name)
    model_type = str(read_config(folder).get("model_type", "?"))
    try:
        family = cast("TranslationFamily", family_of_model_type(model_type))
    except ModelError as error:
        raise ModelError(f"{folder}: {error}") from error
    with reading(folder):
        model = on_device(in_precision(family.load(folder), dtype), device)
    return family.facade(model, load_tokenizer(folder))


def decoding_of(facade: Facade, choices: Mapping[str, Any]) -> ChosenDecoding:
    """Check decoding choices for a model, and complete them by its defaults.

    Raises:
        DecodingError: unknown name, or an invalid value.
    """
    config = facade.model.config
    return cast("TranslationFamily", family_of_model_type(config.model_type)).decoding(config, choices)
