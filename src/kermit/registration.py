"""Telling transformers of KERMIT's models once both are imported, in whichever order.

transformers' Auto classes know a model after `kermit.modeling` was imported, which takes seconds, as torch comes with
it. So ``import kermit`` imports it at once only where transformers is there already, and otherwise as soon as it has
come. Who never asks for transformers, as ``kermit --help``, does not wait for it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_AWAITED, _MODELS = "transformers", "kermit.modeling"


def register_models() -> None:
    """Import the models now if transformers is there, and else right after it."""
    if _AWAITED in sys.modules:
        importlib.import_module(_MODELS)
    else:
        sys.meta_path.insert(0, _Watch())


class _Watch(MetaPathFinder):
    """Sees transformers come, and lets the models follow; finds nothing itself."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """What the other finders have for transformers, to be followed by the models; nothing for other modules."""
        if name != _AWAITED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                importlib.import_module(_MODELS)

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec
