"""The cache of trained tokenizers and encoded rows, keyed by content."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    """Return `KERMIT_CACHE`, or `kermit` in the user's cache folder."""
    if chosen := os.environ.get("KERMIT_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "kermit"


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return a folder, after creating it if it does not exist: `make` fills a scratch folder that is then renamed.

    Several processes may create the same folder at once: the first to finish wins.
    """
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            make(scratch)
            try:
                scratch.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder
