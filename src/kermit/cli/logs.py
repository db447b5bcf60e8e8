"""How much the commands say while they work: their own progress, and of the libraries beneath only what is wrong."""

from __future__ import annotations

import logging
import os
import sys


def is_main_process() -> bool:
    """Whether this is the only process, or the first of those that a launcher such as torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0


def set_up(*, debug: bool = False) -> None:
    """Log to stderr, so that stdout is for results alone."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    level = logging.DEBUG if debug else logging.INFO
    logging.getLogger("kermit").setLevel(level if is_main_process() else logging.WARNING)
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # of loading and saving weights, which is a moment; the verbs have their own
