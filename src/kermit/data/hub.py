"""Texts from datasets of the Hugging Face Hub, by name, or from a local folder in the same layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kermit.data.plain import Fault, Report
from kermit.errors import DataError, Place


def load_hub(name: str, config: str | None, split: str) -> Any:
    """Load a memory-mapped dataset, downloading it if needed."""
    import datasets

    try:
        return datasets.load_dataset(name, config, split=split)
    except Exception as error:
        raise DataError(f"cannot load the dataset {name!r}: {error}; check its name, config and split") from error


def read_hub(
    name: str, config: str | None, split: str, fields: Sequence[str | None], report: Report
) -> Iterator[tuple[Place, list[str | None]]]:
    """Read the texts in the given fields of every record, with its place; a field that is None gives None."""
    for index, record in enumerate(load_hub(name, config, split)):
        place = Place(f"{name}[{split}]", index)
        try:
            texts = [None if field is None else field_of(record, field) for field in fields]
        except KeyError as error:
            key = "field" if len(fields) == 1 else "fields"
            raise DataError(f"the dataset has no text field {error}; set `{key}`", place=place) from error
        except TypeError as error:
            report.bad(Fault.MALFORMED, place, str(error))
            continue
        yield place, texts


def field_of(record: Any, name: str) -> str:
    """Return the text in a field of a record; dots separate nested fields."""
    for key in name.split("."):
        record = record[key]
    if not isinstance(record, str):
        raise TypeError(f"{name!r} is a {type(record).__name__}, not a text")
    return record
