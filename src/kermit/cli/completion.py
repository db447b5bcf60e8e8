"""Shell completion: languages of the chosen model, decoding settings, and keys of a recipe.

It runs on every Tab, so nothing is downloaded and no model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from kermit.errors import KermitError


def languages(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the languages of the model."""
    from kermit.loading import bundled_model, find_model, read_config

    name = context.params.get("model") or context.params.get("teacher")
    try:
        folder = find_model(name) if name and Path(name).is_dir() else None if name else bundled_model()
        config = {} if folder is None else read_config(folder)
    except KermitError:
        return []
    known = config.get("languages") or {"x": "x", "y": "y"}
    return [code for code in known.values() if code.startswith(incomplete)]


def decoding_settings(incomplete: str) -> list[str]:
    """Complete the names of decoding settings, and the values of settings with a fixed set of them."""
    from dataclasses import fields

    from kermit.decoding import Ranking, Strategy
    from kermit.decoding.flat_settings import DecodingChoices

    values: Mapping[str, Any] = {"strategy": Strategy, "ranking": Ranking}
    names = [field.name for field in fields(DecodingChoices) if field.name != "seed"]
    found = [f"{name}={value}" for name in names for value in values.get(name, [""])]
    return [one for one in found if one.startswith(incomplete)]


def variant_kinds(incomplete: str) -> list[str]:
    """Complete the kinds of variants that `kermit augment` makes."""
    from kermit.data.variants import DEFAULTS

    return [f"{kind}=" for kind in DEFAULTS if kind.startswith(incomplete)]


def recipe_keys(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the keys that a recipe sets."""
    import yaml

    given = [context.params.get("recipe"), *context.args]  # arguments after an incomplete option are not parsed yet
    try:
        content = yaml.safe_load(Path(next(filter(None, given))).read_text(encoding="utf-8"))
    except (StopIteration, OSError, ValueError, yaml.YAMLError):
        return []
    return [f"{key}=" for key in _dotted(content) if key.startswith(incomplete)]


def _dotted(content: object, within: str = "") -> Iterator[str]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _dotted(value, f"{within}.{key}" if within else str(key))
    elif within:
        yield within
