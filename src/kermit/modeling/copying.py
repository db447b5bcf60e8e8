"""Slots that can copy tokens of their canvas.

The softmax of a slot covers the vocabulary and, in addition, every token position of its canvas: a token is inserted
from the vocabulary or as a copy of one of its occurrences (CopyNet, Gu et al., 2016). The score of an occurrence
compares the neighbours of the slot with those of the occurrence, and the slot's query with the token there. Rare names
in a passage can so be filled in once the model has found where they are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

NEVER = -1e4
"""The score of tokens that cannot be copied; finite, so that gradients stay finite if a canvas has nothing to copy."""


class Copying(nn.Module):
    """Scores each token of a canvas as a copy."""

    def __init__(self, hidden_size: int, width: int) -> None:
        super().__init__()
        self.around = nn.Linear(2 * hidden_size, width)
        self.ask = nn.Linear(2 * hidden_size, width)
        self.answer = nn.Linear(hidden_size, width)
        self.bias = nn.Parameter(torch.zeros(()))
        self.scale = width**-0.5

    def forward(self, hidden: Tensor, slots: Tensor, copied: Tensor) -> Tensor:
        """Score every token of a slot's canvas: (slots, length) logits in float32, `NEVER` where it may not be copied.

        `slots` are row * length + slot, ascending; `copied` is (batch, length) bool.
        """
        flat = hidden.flatten(0, 1)
        beside = torch.cat([flat[slots - 1], flat[slots]], 1)
        asking = torch.cat([self.around(beside), self.ask(beside)], 1)
        # roll wraps around only at tokens that frame a canvas, which are never copied
        neighbours = torch.cat([hidden.roll(1, 1), hidden.roll(-1, 1)], 2)
        answering = torch.cat([self.around(neighbours), self.answer(hidden)], 2)
        rows = slots // hidden.shape[1]
        counts = rows.bincount(minlength=len(hidden))
        place = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]  # within its canvas
        asked = asking.new_zeros(len(hidden), int(counts.max()), asking.shape[1]).index_put((rows, place), asking)
        scores: Tensor = (asked @ answering.transpose(1, 2)).float()[rows, place] * self.scale + self.bias
        return scores.masked_fill(~copied[rows], NEVER)


def add_copies(logits: Tensor, scores: Tensor, token_ids: Tensor) -> Tensor:
    """Return (slots, vocab) the logsumexp of a token's own logit and the scores (slots, length) of its copies."""
    peak = scores.amax(1, keepdim=True)
    mass = torch.zeros_like(logits).scatter_add(1, token_ids, (scores - peak).exp().where(scores > NEVER, 0))
    copied = mass > 0
    return torch.where(copied, torch.logaddexp(logits, mass.where(copied, 1).log() + peak), logits)


def copy_masses(
    scores: Tensor, token_ids: Tensor, target_slots: Tensor, target_tokens: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the log of what copies contribute to each slot's softmax, (slots,), and to its targets, (targets,).

    It is about `NEVER` where nothing can be copied.
    """
    same = token_ids[target_slots] == target_tokens[:, None]
    return scores.logsumexp(1), scores[target_slots].masked_fill(~same, NEVER).logsumexp(1)
