"""Things that a recipe names: known by where they are, and imported when first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Generic, TypeVar

from kermit.errors import ModelError

T = TypeVar("T")


class Registry(Generic[T]):
    """Objects by name.

    Args:
        kind: what they are, for messages.
        places: the module and attribute of each, as `package.module:NAME`.
    """

    def __init__(self, kind: str, places: Mapping[str, str]) -> None:
        self._kind = kind
        self._places = dict(places)
        self._loaded: dict[str, T] = {}

    def names(self) -> list[str]:
        """Every name that is known."""
        return sorted({*self._places, *self._loaded})

    def add(self, name: str, item: T) -> None:
        """Make an object known by a name, in place of one that had it."""
        self._loaded[name] = item

    def get(self, name: str) -> T:
        """The object of that name."""
        if name not in self._loaded:
            if name not in self._places:
                raise ModelError(f"there is no {self._kind} {name!r}; there are {', '.join(self.names())}")
            module, _, attribute = self._places[name].partition(":")
            self._loaded[name] = getattr(importlib.import_module(module), attribute)
        return self._loaded[name]

    def loaded(self) -> list[T]:
        """Those that were asked for or added so far."""
        return list(self._loaded.values())
