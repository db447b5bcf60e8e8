"""How much the commands say while they work: their own progress, and of the libraries beneath only what is wrong."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass

import typer


@dataclass
class Spoken:
    """What the command line says of how much to say.

    Args:
        debug: whether to show the traceback of an error, and more of the log.
        quiet: whether to show neither progress nor log.
    """

    debug: bool = False
    quiet: bool = False


spoken = Spoken()
"""Of the command that runs; there is one a process, or one after the other in tests."""


def hear(context: typer.Context, option: typer.CallbackParam, value: bool) -> None:
    """Take down `--debug` and `--quiet`, which may stand before the verb or behind it."""
    before = context.parent is not None and getattr(spoken, str(option.name))
    setattr(spoken, str(option.name), value or before)


def is_main_process() -> bool:
    """Whether this is the only process, or the first of those that a launcher such as torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0


def set_up() -> None:
    """Log to stderr, so that stdout is for results alone."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    level = logging.DEBUG if spoken.debug else logging.INFO
    if spoken.quiet or not is_main_process():
        level = logging.WARNING
    logging.getLogger("kermit").setLevel(level)
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # of loading and saving weights, which is a moment; the verbs have their own
