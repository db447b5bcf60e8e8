"""Slots that say again what stands in their canvas.

The tokens of a canvas stand in the softmax of each of its slots once more, beside those of the vocabulary: a token is
inserted as a word, or as a copy of any of its places (CopyNet, Gu et al., 2016). What a place is worth to a slot is how
alike are the neighbours of the two, and how well the token that stands there answers what the slot asks for. So names
that a passage has can be filled in, however rare they are, as soon as it is known where to look.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

NEVER = -1e4
"""The score of what is not copied: finite, so that gradients of a canvas without anything to copy are."""


class Copying(nn.Module):
    """Scores of the tokens of canvases as copies.

    Args:
        hidden_size: of the hidden states.
        width: of the vectors that are compared.
    """

    def __init__(self, hidden_size: int, width: int) -> None:
        super().__init__()
        self.around = nn.Linear(2 * hidden_size, width)
        self.ask = nn.Linear(2 * hidden_size, width)
        self.answer = nn.Linear(hidden_size, width)
        self.bias = nn.Parameter(torch.zeros(()))
        self.scale = width**-0.5

    def forward(self, hidden: Tensor, slots: Tensor, copied: Tensor) -> Tensor:
        """Score every token of a slot's canvas.

        Args:
            hidden: (batch, length, hidden).
            slots: (slots,) as row * length + slot, ascending.
            copied: (batch, length) bool, what may be copied.

        Returns:
            (slots, length) logits in float32, `NEVER` at what may not be.
        """
        flat = hidden.flatten(0, 1)
        beside = torch.cat([flat[slots - 1], flat[slots]], 1)
        asking = torch.cat([self.around(beside), self.ask(beside)], 1)
        neighbours = torch.cat([hidden.roll(1, 1), hidden.roll(-1, 1)], 2)  # what rolls over is a frame, never copied
        answering = torch.cat([self.around(neighbours), self.answer(hidden)], 2)
        rows = slots // hidden.shape[1]
        counts = rows.bincount(minlength=len(hidden))
        place = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]  # within its canvas
        asked = asking.new_zeros(len(hidden), int(counts.max()), asking.shape[1]).index_put((rows, place), asking)
        scores: Tensor = (asked @ answering.transpose(1, 2)).float()[rows, place] * self.scale + self.bias
        return scores.masked_fill(~copied[rows], NEVER)


def add_copies(logits: Tensor, scores: Tensor, token_ids: Tensor) -> Tensor:
    """Logits of tokens that can also be copied.

    Args:
        logits: (slots, vocab) in float32.
        scores: (slots, length) of the tokens of each slot's canvas as copies.
        token_ids: (slots, length) these tokens.

    Returns:
        (slots, vocab) log of the sum of a token's exponentials.
    """
    peak = scores.amax(1, keepdim=True)
    mass = torch.zeros_like(logits).scatter_add(1, token_ids, (scores - peak).exp().where(scores > NEVER, 0))
    copied = mass > 0
    return torch.where(copied, torch.logaddexp(logits, mass.where(copied, 1).log() + peak), logits)


def copy_masses(
    scores: Tensor, token_ids: Tensor, target_slots: Tensor, target_tokens: Tensor
) -> tuple[Tensor, Tensor]:
    """What copies add to each slot's softmax, and to its targets.

    Args:
        scores: (slots, length) of the tokens of each slot's canvas as copies.
        token_ids: (slots, length) these tokens.
        target_slots: (targets,).
        target_tokens: (targets,).

    Returns:
        (slots,) and (targets,), logarithms; about `NEVER` where nothing can be copied.
    """
    same = token_ids[target_slots] == target_tokens[:, None]
    return scores.logsumexp(1), scores[target_slots].masked_fill(~same, NEVER).logsumexp(1)
