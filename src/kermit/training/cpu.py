"""Faster training steps on a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from transformers import TrainingArguments

from kermit.training.attention import SingleAttention
from kermit.training.dropout import FastDropout


@contextmanager
def fast_on_cpu(entropy: Sequence[int], arguments: TrainingArguments, *, dropout: bool = True) -> Iterator[None]:
    """A context for a forward and a backward pass without gradient checkpointing.

    Args:
        entropy: seeds dropout.
        arguments: of the training, with its precision.
        dropout: whether to draw dropout masks from random bytes.
    """
    with ExitStack() as stack:
        if dropout:
            stack.enter_context(FastDropout(entropy))
        if arguments.bf16 or arguments.fp16:
            stack.enter_context(SingleAttention())
        yield
