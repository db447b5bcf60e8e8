"""Objects by name, imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Generic, TypeVar

from kermit.errors import ModelError

_T = TypeVar("_T")


class Registry(Generic[_T]):
    """Objects by name; `places` holds the module and attribute of each, as `package.module:NAME`."""

    def __init__(self, kind: str, places: Mapping[str, str]) -> None:
        self._kind = kind
        self._places = dict(places)
        self._loaded: dict[str, _T] = {}

    def names(self) -> list[str]:
        """List all names."""
        return sorted({*self._places, *self._loaded})

    def add(self, name: str, item: _T) -> None:
        """Register an object; it replaces one of the same name."""
        self._loaded[name] = item

    def get(self, name: str) -> _T:
        """Return the object of that name."""
        if name not in self._loaded:
            if name not in self._places:
                raise ModelError(f"unknown {self._kind} {name!r}; known: {', '.join(self.names())}")
            module, _, attribute = self._places[name].partition(":")
            self._loaded[name] = getattr(importlib.import_module(module), attribute)
        return self._loaded[name]

    def loaded(self) -> list[_T]:
        """List the objects used or added so far."""
        return list(self._loaded.values())
