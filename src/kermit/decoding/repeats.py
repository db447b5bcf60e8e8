"""Runs of one token: what would make them longer than they may be.

A weak model says a token again and again where it does not know what to say. A slot may not insert the token of a run
that is as long as allowed already, and of several insertions that together make too long a run the last are withdrawn.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kermit.canvas_batch import NOTHING, CanvasBatch
from kermit.slots import SlotScores


def allowed_runs(batch: CanvasBatch, most: int) -> Tensor:
    """How long a run may be: as long as the longest that the canvas holds already, but at least `most`; (batch,)."""
    ending, _ = _runs(batch)
    return ending.masked_fill(~_content(batch), 0).amax(1).clamp(min=most)


def bar_repeats(content: Tensor, scores: SlotScores, batch: CanvasBatch, allowed: Tensor) -> None:
    """Bar, in place, the tokens beside a slot whose run is as long as it may be.

    Args:
        content: (slots, vocab) log-probabilities of the token to insert.
        scores: what the model says of the slots.
        batch: the canvases.
        allowed: (batch,).
    """
    rows, right = scores.rows, scores.slots
    left = right - 1
    ending, beginning = _runs(batch)
    tokens = batch.token_ids
    same = tokens[rows, left] == tokens[rows, right]
    before, after = ending[rows, left], beginning[rows, right]
    for token, length in (
        (tokens[rows, left], before + after * same),
        (tokens[rows, right], after + before * same),
    ):
        full = (length >= allowed[rows]).nonzero().flatten()
        content[full, token[full]] = -torch.inf


def withdraw_repeats(tokens: Tensor, scores: SlotScores, batch: CanvasBatch, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Withdraw the insertions that together make a run longer than it may be, the rightmost first.

    Args:
        tokens: (slots,) the token to insert, or `NOTHING`.
        scores: what the model says of the slots.
        batch: the canvases.
        allowed: (batch,).

    Returns:
        The tokens that are left, (slots,), and the texts that had some withdrawn, (batch,) bool.
    """
    grid = torch.full_like(batch.token_ids, NOTHING)
    grid[scores.rows, scores.slots] = tokens
    after, (old,) = batch.insert(grid, [(batch.valid, False)])
    new = after.valid & ~old
    _, beginning = _runs(after)
    ending, _ = _runs(after)
    excess = (ending + beginning - 1) - allowed[:, None]
    # new tokens of a run from its right end on
    starts = after.valid & (beginning == 1)  # the last of each run
    from_right = new.flip(1).cumsum(1).flip(1)
    behind = torch.nn.functional.pad(from_right[:, 1:], (0, 1))
    at_end = behind.where(starts, -1).flip(1).cummax(1).values.flip(1)
    gone = new & (excess > 0) & (from_right - at_end <= excess)
    withdrawn = gone[new]  # row by row, as the slots are
    taken = (tokens != NOTHING).nonzero().flatten()
    left = tokens.index_fill(0, taken[withdrawn], NOTHING)
    return left, gone.any(1)


def _content(batch: CanvasBatch) -> Tensor:
    specials = batch.specials
    return batch.valid & (batch.token_ids != specials.cls_id) & (batch.token_ids != specials.sep_id)


def _runs(batch: CanvasBatch) -> tuple[Tensor, Tensor]:
    """For each token, how many of its run end at it and how many begin at it; both (batch, length)."""
    tokens = batch.token_ids
    index = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    changes = torch.ones_like(batch.valid)
    changes[:, 1:] = tokens[:, 1:] != tokens[:, :-1]
    first = index.where(changes, 0).cummax(1).values
    last_of_run = torch.ones_like(changes)
    last_of_run[:, :-1] = changes[:, 1:]
    last = index.where(last_of_run, tokens.shape[1]).flip(1).cummin(1).values.flip(1)
    return index - first + 1, last - index + 1
