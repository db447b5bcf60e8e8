"""Signatures, checksums, manifests that resume or reject, and atomic writes.

A score carries a signature of everything that determined it. Files that take long to make have a manifest beside them:
work resumes with the same settings and is refused with others. Nothing is written in place: a file or folder gets its
name once it is complete. This module imports neither torch nor transformers.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kermit import __version__
from kermit.errors import DataError

_MODEL_FILES = ("*.safetensors", "*.bin", "*.gguf", "config.json", "tokenizer.json")
_UNSET = "not set"


def signature(parts: Mapping[str, object], version: str = __version__) -> str:
    """Format the settings behind a score on one line: ``kermit|key:value|...|version:0.1.0``."""
    return "|".join(["kermit", *(f"{key}:{value}" for key, value in parts.items()), f"version:{version}"])


def listed(settings: Mapping[str, object]) -> str:
    """Format settings as one part of a signature: ``key=value,key=value``."""
    return ",".join(f"{key}={value}" for key, value in settings.items())


def model_checksum(model: Path) -> str:
    """Return a short SHA-256 of a model: a single file, or a folder's weights, configuration and tokenizer."""
    files = [model] if model.is_file() else sorted(path for name in _MODEL_FILES for path in model.glob(name))
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:12]


def differences(before: Mapping[str, Any], now: Mapping[str, Any], within: str = "") -> dict[str, tuple[Any, Any]]:
    """Compare nested settings; return the old and the new value of each key that differs, by dotted name."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in sorted({*before, *now}):
        was, is_ = before.get(key, _UNSET), now.get(key, _UNSET)
        if isinstance(was, dict) and isinstance(is_, dict):
            found |= differences(was, is_, f"{within}{key}.")
        elif was != is_:
            found[f"{within}{key}"] = was, is_
    return found


@dataclass(frozen=True)
class Manifest:
    """A JSON file that records the settings that the files next to it were written with.

    Args:
        settings: the settings that determine the files, as plain data.
        results: names of entries that are recorded beside the settings and not compared.
    """

    path: Path
    settings: Mapping[str, Any]
    results: Sequence[str] = ()

    def made(self, what: str) -> dict[str, Any]:
        """Read what was recorded with the files, empty if nothing was; raise a DataError if their settings differ."""
        if not self.path.exists():
            return {}
        try:
            noted = dict(json.loads(self.path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise DataError(f"{self.path} is not a manifest of {what}; choose another output folder") from error
        wanted = json.loads(json.dumps(self.settings))
        changed = differences({key: value for key, value in noted.items() if key not in self.results}, wanted)
        if changed:
            changes = "; ".join(f"{key} was {was}, now {is_}" for key, (was, is_) in changed.items())
            raise DataError(
                f"{self.path.parent} holds {what} made with different settings ({changes}; see {self.path.name});"
                " choose another output folder, or delete them"
            )
        return noted

    def write(self, **results: Any) -> None:
        """Record the settings and the results."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, {**self.settings, **results})


def partial(path: Path) -> Path:
    """Return the temporary name of a file or folder that is not yet complete."""
    return path.with_name(f"{path.name}.part")


def write_whole(file: Path, content: str) -> None:
    """Write a text file atomically."""
    partial(file).write_text(content, encoding="utf-8")
    partial(file).rename(file)


def write_json(file: Path, record: Mapping[str, Any]) -> None:
    """Write an indented JSON file atomically."""
    write_whole(file, json.dumps(record, indent=2) + "\n")


def apply_umask(folder: Path) -> None:
    """Give the files in a new folder the folder's mode; safetensors makes files that only their owner can read."""
    mode = folder.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """Yield a scratch folder that replaces `folder` on success; a killed process leaves the old one or the new one."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = partial(folder)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    yield scratch
    apply_umask(scratch)
    for path in scratch.rglob("*"):
        if path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
    if folder.exists():
        old = _replaced(folder)
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
        scratch.rename(folder)
        shutil.rmtree(old)
    else:
        scratch.rename(folder)


def restore_interrupted_swap(folder: Path) -> None:
    """Put back a folder whose replacement was killed between the two renames of `written_whole`."""
    old = _replaced(folder)
    if old.is_dir() and not folder.exists():
        old.rename(folder)


def remove_whole(folder: Path) -> None:
    """Remove a folder; a killed process leaves all of it or nothing under its name."""
    doomed = _replaced(folder)
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove what killed processes left half-written or half-removed, for folders whose names match `pattern`."""
    for suffix in (".part", ".old"):
        for path in folder.glob(f"{pattern}{suffix}"):
            shutil.rmtree(path, ignore_errors=True)


def is_complete(path: Path) -> bool:
    """Return whether a folder's name is final, not the temporary one of a folder being written or replaced."""
    return path.suffix not in (".part", ".old")


def _replaced(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.old")
