"""Slots that look at the text before they are read out.

A slot has no state of its own in the trunk: its vector is made of its neighbours' states, whose first business is to be
the tokens that they are. Here the vectors of slots, as queries, attend to the hidden states of their whole canvas once,
so that what is missing can be fetched from where it stands.
"""

from __future__ import annotations

from torch import Tensor, nn

from kermit.errors import ModelError
from kermit.slots import places_in_rows


class SlotAttention(nn.Module):
    """Attention of slot vectors to the hidden states of their canvases, added to them.

    Args:
        width: of the slot vectors.
        hidden_size: of the hidden states.
        heads: of the attention; they divide the width.
    """

    def __init__(self, width: int, hidden_size: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ModelError(f"slot_attention_heads: a width of {width} cannot be divided among {heads}")
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(hidden_size, width)
        self.value = nn.Linear(hidden_size, width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, vectors: Tensor, hidden: Tensor, slots: Tensor, valid: Tensor | None) -> Tensor:
        """New slot vectors.

        Args:
            vectors: (slots, width).
            hidden: (batch, length, hidden).
            slots: (slots,) as row * length + slot, ascending.
            valid: (batch, length) False or 0 at padding; None where there is none.

        Returns:
            (slots, width).
        """
        rows = slots // hidden.shape[1]
        place, most = places_in_rows(rows, len(hidden))
        asked = self.query(vectors)
        query = asked.new_zeros(len(hidden), most, asked.shape[1]).index_put((rows, place), asked)
        mask = None if valid is None else valid.bool()[:, None, None, :]
        looked = nn.functional.scaled_dot_product_attention(
            self._parted(query), self._parted(self.key(hidden)), self._parted(self.value(hidden)), attn_mask=mask
        )
        fetched: Tensor = self.out(looked.transpose(1, 2).flatten(2)[rows, place])
        return self.norm(vectors + fetched)  # type: ignore[no-any-return]

    def _parted(self, states: Tensor) -> Tensor:
        """(batch, heads, states, width of a head) of (batch, states, width)."""
        return states.view(*states.shape[:2], self.heads, states.shape[2] // self.heads).transpose(1, 2)
