"""What a training step replaces where it runs on a processor and not on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from transformers import TrainingArguments

from kermit.training.attention import SingleAttention
from kermit.training.dropout import FastDropout


@contextmanager
def quick(entropy: Sequence[int], arguments: TrainingArguments, *, dropout: bool = True) -> Iterator[None]:
    """A context for a forward and a backward pass without gradient checkpointing.

    Args:
        entropy: what seeds dropout.
        arguments: the training's, which say whether it is in half precision.
        dropout: whether its masks come from random bytes.
    """
    with ExitStack() as stack:
        if dropout:
            stack.enter_context(FastDropout(entropy))
        if arguments.bf16 or arguments.fp16:
            stack.enter_context(SingleAttention())
        yield
