"""Checkpoints: folders named by their step, each either complete or absent."""

from __future__ import annotations

import re
from pathlib import Path

from kermit.provenance import remove_leftovers, remove_whole

_NAME = re.compile(r"checkpoint-(\d+)")


def list_checkpoints(output: Path) -> list[Path]:
    """List the complete checkpoints in a training's output folder, oldest first."""
    found = [(int(match[1]), path) for path in output.glob("checkpoint-*") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def step_of(checkpoint: Path) -> int:
    """Return the step after which a checkpoint was written."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def remove_old(output: Path, keep: int) -> None:
    """Remove all checkpoints but the last `keep`, and partial ones left by killed processes."""
    for path in list_checkpoints(output)[:-keep]:
        remove_whole(path)
    remove_leftovers(output, "checkpoint-*")
