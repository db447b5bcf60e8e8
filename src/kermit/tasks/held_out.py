"""Held-out drops: how well a pretrained model of any kind recovers tokens that it is not shown.

Every model is judged at the same places of the validation text: tokens drawn with probability 0.15 each, from a fixed
seed, so that they depend on the text, its packing and the tokenizer alone. What is comparable:

- KERMIT sees the text without these tokens. A slot that misses some is asked for its best token, end-of-slot left out;
  its tokens count as recovered if that is one of them.
- A masked language model sees `[MASK]` at each of them, all at once, and is asked for the best token there. It is told
  how many are missing from each place, which KERMIT is not.
- A causal language model sees all that stands before a token, other dropped ones too, and nothing of what comes after.

`accuracy` is over all these tokens. `accuracy_single` is over those between two that were not dropped, where KERMIT too
has one token to find: the strictest comparison. `end_precision` and `end_recall` are KERMIT's alone: of the slots that
say end-of-slot how many are empty, and of the empty ones how many say so. Losses are each objective's own and are not
comparable between families.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from kermit.canvas import CanvasBatch, Factorization, SpecialTokens
from kermit.canvas.arrays import Booleans, Integers
from kermit.modeling.next_sentence import NOT_ASKED
from kermit.objectives.dropping import sample_dropped
from kermit.objectives.texts import Texts
from kermit.training.families import Family

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from kermit.data.encoding import Row

HELD_OUT_SEED = 0
DROP_PROBABILITY = 0.15
_ROWS = 8  # at a time: the logits of all slots of so many canvases are held


@dataclass(frozen=True)
class HeldOutBatch:
    """Complete texts and what is dropped from them.

    Args:
        texts: the complete texts; their content is all generated.
        dropped: (batch, tokens) bool.
        follows: (batch,) whether y continues x: 1, 0, or `NOT_ASKED`.
    """

    texts: Texts
    dropped: Booleans
    follows: Integers

    @property
    def single(self) -> Booleans:
        """(batch, tokens) bool: the dropped tokens with a neighbour on either side that is not."""
        beside = np.pad(self.dropped, ((0, 0), (1, 1)))
        return self.dropped & ~beside[:, :-2] & ~beside[:, 2:]


@dataclass(frozen=True)
class Recovered:
    """What a model made of a batch.

    Args:
        correct: (batch, tokens) bool, whether a dropped token was recovered; False elsewhere.
        said_end: (slots,) bool, which slots say end-of-slot; None for models without slots.
        empty: (slots,) bool, which of them miss nothing.
        follows: (batch,) bool, whether y is taken to continue x; None for models without that head.
    """

    correct: Booleans
    said_end: Booleans | None = None
    empty: Booleans | None = None
    follows: Booleans | None = None


class PretrainingFamily(Family, Protocol):
    """A family whose models can be asked for held-out tokens."""

    def recover(self, model: PreTrainedModel, held_out: HeldOutBatch) -> Recovered:
        """What the model, in evaluation mode, makes of a batch."""
        ...


def complete_texts(specials: SpecialTokens, rows: Sequence[Row]) -> Texts:
    """Packed rows as complete texts, all of whose content is generated; a row without y has one segment."""
    segments = [(row["x"], row["y"]) if row["y"] else (row["x"],) for row in rows]
    batch = CanvasBatch.from_segments(specials, segments)
    return Texts.of(batch, [Factorization.JOINT] * len(rows))


def labels_of(rows: Sequence[Row]) -> Integers:
    """(rows,) whether y continues x: 1, 0, or `NOT_ASKED`."""
    return np.array([int(row["follows"]) if "follows" in row else NOT_ASKED for row in rows])


def held_out_batches(specials: SpecialTokens, rows: Sequence[Row]) -> Iterator[HeldOutBatch]:
    """Rows in batches of like length, with what is dropped from them."""
    generator = np.random.default_rng(HELD_OUT_SEED)
    ordered = sorted(rows, key=lambda row: len(row["x"]) + len(row["y"]))
    for start in range(0, len(ordered), _ROWS):
        block = ordered[start : start + _ROWS]
        texts = complete_texts(specials, block)
        shape = (len(block), texts.present.shape[1])
        dropped = sample_dropped(shape, DROP_PROBABILITY, generator) & texts.generated
        yield HeldOutBatch(texts, dropped, labels_of(block))


@torch.inference_mode()
def judge(
    family: PretrainingFamily, model: PreTrainedModel, specials: SpecialTokens, rows: Sequence[Row]
) -> dict[str, float]:
    """The metrics of a model on held-out rows; those that its family does not have are absent."""
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
        if found.follows is not None:
            count("next_sentence_accuracy", found.follows == (batch.follows == 1), batch.follows != NOT_ASKED)
    return {name: round(right / among, 5) for name, (right, among) in tallies.items() if among}
