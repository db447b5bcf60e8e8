"""Checkpoints that are whole or absent, without pickle.

A checkpoint is written into a hidden folder beside its place and renamed when it is complete, so a process that is
killed at any moment leaves either the old state or the new, never half of one. Tensors are safetensors, the rest is
JSON.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

_NAME = re.compile(r"checkpoint-(\d+)")


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """A scratch folder to write into, which takes the place of `folder` when all went well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = folder.parent / f".{folder.name}.partial"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    yield scratch
    mode = scratch.stat().st_mode & 0o666  # as the umask has it; safetensors lets no one but the owner read
    for path in scratch.rglob("*"):
        if path.is_file():
            path.chmod(mode)
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
    if folder.exists():
        old = folder.parent / f".{folder.name}.old"
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
        scratch.rename(folder)
        shutil.rmtree(old)
    else:
        scratch.rename(folder)


def list_checkpoints(output: Path) -> list[Path]:
    """The whole checkpoints in a training's output folder, oldest first."""
    found = [(int(match[1]), path) for path in output.glob("checkpoint-*") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def step_of(checkpoint: Path) -> int:
    """The step after which a checkpoint was written."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def remove_old(output: Path, keep: int, counts: Callable[[int], bool] = lambda step: True) -> None:
    """Remove checkpoints that are no longer needed, and what killed processes left half-written.

    Args:
        output: the training's output folder.
        keep: how many to keep of those that count; the last of all is kept beside them.
        counts: whether the checkpoint of a step does.
    """
    found = list_checkpoints(output)
    kept = {*found[-1:], *[path for path in found if counts(step_of(path))][-keep:]}
    for path in found:
        if path in kept:
            continue
        doomed = path.with_name(f".{path.name}.old")  # renamed first: a half-removed folder is no checkpoint
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
    for path in [*output.glob(".checkpoint-*.partial"), *output.glob(".checkpoint-*.old")]:
        shutil.rmtree(path, ignore_errors=True)


def restore_interrupted_swap(folder: Path) -> None:
    """Put back a folder whose replacement was killed between its two renames."""
    old = folder.parent / f".{folder.name}.old"
    if old.is_dir() and not folder.exists():
        old.rename(folder)


def save_state(state: dict[str, Any], folder: Path, name: str) -> None:
    """Write nested dicts and lists of tensors and plain values as `name.safetensors` and `name.json`."""
    tensors: dict[str, torch.Tensor] = {}
    (folder / f"{name}.json").write_text(json.dumps(_strip(state, tensors)), encoding="utf-8")
    save_file(tensors, folder / f"{name}.safetensors")


def load_state(folder: Path, name: str) -> Any:
    """Read what `save_state` wrote."""
    tensors = load_file(folder / f"{name}.safetensors")
    return _restore(json.loads((folder / f"{name}.json").read_text(encoding="utf-8")), tensors)


def _strip(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """The value with its tensors moved out; dicts become lists of pairs, since JSON's keys are strings only."""
    if isinstance(value, torch.Tensor):
        key = str(len(tensors))
        tensors[key] = value.detach().clone().contiguous()
        return {"tensor": key}
    if isinstance(value, dict):
        return {"dict": [[_strip(key, tensors), _strip(item, tensors)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_strip(item, tensors) for item in value]}
    if isinstance(value, list):
        return [_strip(item, tensors) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")


def _restore(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_restore(item, tensors) for item in value]
    if isinstance(value, dict):
        match value:
            case {"tensor": key}:
                return tensors[key]
            case {"dict": pairs}:
                return {_restore(key, tensors): _restore(item, tensors) for key, item in pairs}
            case {"tuple": items}:
                return tuple(_restore(item, tensors) for item in items)
    return value
