"""Held-out tokens: how well a pretrained model of any family recovers tokens that it does not see.

Every model is evaluated on the same tokens of the validation text, each drawn with probability 0.15 from a fixed seed,
so that they depend only on the text, its packing and the tokenizer. What each model sees:

- KERMIT sees the text without these tokens. Each slot with missing tokens predicts its best token, end-of-slot
  excluded; its tokens count as recovered if the prediction is one of them.
- A masked language model sees `[MASK]` in place of each of them, all at once, and predicts the best token there. Unlike
  KERMIT, it knows how many tokens are missing.
- A causal language model sees everything before a token, dropped tokens included, and nothing after it.

`accuracy` is over all these tokens. `accuracy_single` is over those whose neighbours were not dropped, where KERMIT
also has exactly one token to find: the strictest comparison. `end_precision` and `end_recall` exist only for KERMIT:
the share of slots predicted as end-of-slot that are empty, and the share of empty slots predicted as end-of-slot.
Losses are each objective's own and not comparable between families.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from kermit.canvas import SpecialTokens
from kermit.canvas.arrays import Booleans
from kermit.families.base import HeldOutBatch, complete_texts
from kermit.objectives.dropping import sample_dropped

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from kermit.data.encoding import Row
    from kermit.families.base import PretrainingFamily

HELD_OUT_SEED = 0
DROP_PROBABILITY = 0.15
_ROWS = 8  # rows per batch: the logits of all their slots are in memory


def held_out_batches(specials: SpecialTokens, rows: Sequence[Row]) -> Iterator[HeldOutBatch]:
    """Yield batches of rows of similar length, with the tokens to drop from them."""
    generator = np.random.default_rng(HELD_OUT_SEED)
    ordered = sorted(rows, key=lambda row: len(row["x"]) + len(row["y"]))
    for start in range(0, len(ordered), _ROWS):
        block = ordered[start : start + _ROWS]
        texts = complete_texts(specials, block)
        shape = (len(block), texts.present.shape[1])
        dropped = sample_dropped(shape, DROP_PROBABILITY, generator) & texts.generated
        yield HeldOutBatch(texts, dropped)


@torch.inference_mode()
def judge(
    family: PretrainingFamily, model: PreTrainedModel, specials: SpecialTokens, rows: Sequence[Row]
) -> dict[str, float]:
    """Return the metrics of a model on held-out rows; those that do not apply to its family are absent."""
    tallies: dict[str, list[int]] = {}

    def count(name: str, right: Booleans, among: Booleans) -> None:
        tally = tallies.setdefault(name, [0, 0])
        tally[0] += int((right & among).sum())
        tally[1] += int(among.sum())

    for batch in held_out_batches(specials, rows):
        found = family.recover(model, batch)
        count("accuracy", found.correct, batch.dropped)
        count("accuracy_single", found.correct, batch.single)
        if found.said_end is not None and found.empty is not None:
            count("end_precision", found.empty, found.said_end)
            count("end_recall", found.said_end, found.empty)
    return {name: round(right / among, 5) for name, (right, among) in tallies.items() if among}
