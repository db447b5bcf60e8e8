"""Which tokens a text loses in pretraining (the paper's section 4.2): all with the same chance, alone or in runs.

Masked language models hide the tokens that are drawn here, KERMIT leaves them out. This module knows no model.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sample_dropped(
    shape: tuple[int, int], probability: float, generator: torch.Generator, *, span_length: float = 1.0
) -> Tensor:
    """Drop every token with the same probability, in runs of a geometric length.

    Each token does one of three things: it begins a run, it does as the token before it, or it is kept. The chances
    are such that a run goes on for `span_length` tokens on average before it is let go (runs may touch, and then look
    like one), and that every token, the first of a row included, is dropped with the probability asked for. A span
    length of 1 drops each token on its own.

    Args:
        shape: (rows, tokens).
        probability: of each token.
        generator: the source of randomness, on the CPU.
        span_length: the mean length of a run, 1 or more.

    Returns:
        (rows, tokens) bool, on the CPU.
    """
    if span_length < 1:
        raise ValueError(f"the mean length of a span must be 1 or more, not {span_length}")
    follow = 1 - 1 / span_length  # the chance of a token that begins no run to do as the one before it
    begin = probability * (1 - follow) / (1 - probability * follow)  # solves p = begin + (1 - begin) * follow * p
    noise = torch.rand(shape, generator=generator)
    begins = noise < begin
    lets_go = noise >= begin + (1 - begin) * follow
    begins[:, :1] = noise[:, :1] < probability  # nothing is before the first: it is as in the midst of a text
    lets_go[:, :1] = ~begins[:, :1]
    place = torch.arange(shape[1]).expand(shape)
    last_begun, last_let_go = (place.where(event, -1).cummax(1).values for event in (begins, lets_go))
    return last_begun > last_let_go
