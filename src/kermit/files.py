"""Files that are whole or absent: written aside and renamed, so that a process that is killed leaves no half of one."""

from __future__ import annotations

from pathlib import Path


def partial(file: Path) -> Path:
    """Where a file is written until it is whole: hidden, beside its place."""
    return file.with_name(f".{file.name}.partial")


def write_whole(file: Path, content: str) -> None:
    """Write a text, which takes the place of what was there when all of it is written."""
    partial(file).write_text(content, encoding="utf-8")
    partial(file).rename(file)
