"""Verbosity: the log of the commands, and only warnings from libraries."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass

import typer


@dataclass
class Spoken:
    """Verbosity flags: show tracebacks and a more detailed log, or hide progress and log."""

    debug: bool = False
    quiet: bool = False


spoken = Spoken()
"""Flags of the running command; one per process."""


def hear(context: typer.Context, option: typer.CallbackParam, value: bool) -> None:
    """Store `--debug` or `--quiet`, which may come before or after the verb, and log accordingly."""
    before = context.parent is not None and getattr(spoken, str(option.name))
    setattr(spoken, str(option.name), value or before)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # transformers' bars too; the verbs have their own
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")  # stdout holds only results
    shown = logging.DEBUG if spoken.debug else logging.INFO
    logging.getLogger("kermit").setLevel(shown if is_main_process() and not spoken.quiet else logging.WARNING)


def is_main_process() -> bool:
    """Return whether this is the only process, or the first of those started by a launcher such as torchrun."""
    return int(os.environ.get("RANK", "0")) == 0
