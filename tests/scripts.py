"""Import the repository's scripts as modules, so that tests can call them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


def load_script(place: str) -> ModuleType:
    """A script by its path in the repository, such as examples/toy_pairs.py."""
    name = Path(place).stem
    spec = importlib.util.spec_from_file_location(name, ROOT / place)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
