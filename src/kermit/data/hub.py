"""Datasets of the Hugging Face Hub by name, or of a folder in their layout."""

from __future__ import annotations

from typing import Any

from kermit.errors import DataError


def load_hub(name: str, config: str | None, split: str) -> Any:
    """Return a dataset, downloaded if need be and memory-mapped."""
    import datasets

    try:
        return datasets.load_dataset(name, config, split=split)
    except Exception as error:
        raise DataError(f"the dataset {name!r} cannot be loaded: {error}") from error


def field_of(record: Any, name: str) -> str:
    """Return the text in a field of a record; dots lead into nested fields."""
    for key in name.split("."):
        record = record[key]
    if not isinstance(record, str):
        raise TypeError(f"{name!r} is a {type(record).__name__}, not a text")
    return record
