"""How much the commands say while they work: their own progress, and of the libraries beneath only what is wrong."""

from __future__ import annotations

import logging
import os
import sys


def set_up(*, debug: bool = False) -> None:
    """Log to stderr, so that stdout is for results alone."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    logging.getLogger("kermit").setLevel(logging.DEBUG if debug else logging.INFO)
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # of loading and saving weights, which is a moment; the verbs have their own
