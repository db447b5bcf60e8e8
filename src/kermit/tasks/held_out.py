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

import torch
from torch import Tensor

from kermit.canvas import Factorization, SpecialTokens
from kermit.canvas_batch import CanvasBatch
from kermit.dropping import sample_dropped
from kermit.modeling.next_sentence import NOT_ASKED
from kermit.texts import Texts
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
    dropped: Tensor
    follows: Tensor

    @property
    def single(self) -> Tensor:
        """(batch, tokens) bool: the dropped tokens with a neighbour on either side that is not."""
        beside = torch.nn.functional.pad(self.dropped, (1, 1))
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

    correct: Tensor
    said_end: Tensor | None = None
    empty: Tensor | None = None
    follows: Tensor | None = None


class PretrainingFamily(Family, Protocol):
    """A family whose models can be asked for held-out tokens."""

    def recover(self, model: PreTrainedModel, held_out: HeldOutBatch) -> Recovered:
        """What the model, in evaluation mode, makes of a batch that is on its device."""
        ...


def complete_texts(specials: SpecialTokens, rows: Sequence[Row], device: torch.device | str = "cpu") -> Texts:
    """Packed rows as complete texts, all of whose content is generated; a row without y has one segment."""
    segments = [(row["x"], row["y"]) if row["y"] else (row["x"],) for row in rows]
    batch = CanvasBatch.from_segments(specials, segments).to(device)
    return Texts.of(batch, [Factorization.JOINT] * len(rows))


def labels_of(rows: Sequence[Row]) -> Tensor:
    """(rows,) whether y continues x: 1, 0, or `NOT_ASKED`."""
    return torch.tensor([int(row["follows"]) if "follows" in row else NOT_ASKED for row in rows])


def held_out_batches(
    specials: SpecialTokens, rows: Sequence[Row], device: torch.device | str
) -> Iterator[HeldOutBatch]:
    """Rows in batches of like length, with what is dropped from them."""
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    ordered = sorted(rows, key=lambda row: len(row["x"]) + len(row["y"]))
    for start in range(0, len(ordered), _ROWS):
        block = ordered[start : start + _ROWS]
        texts = complete_texts(specials, block, device)
        shape = (len(block), texts.present.shape[1])
        dropped = sample_dropped(shape, DROP_PROBABILITY, generator).to(device) & texts.generated
        yield HeldOutBatch(texts, dropped, labels_of(block).to(device))


@torch.inference_mode()
def judge(
    family: PretrainingFamily, model: PreTrainedModel, specials: SpecialTokens, rows: Sequence[Row]
) -> dict[str, float]:
    """The metrics of a model on held-out rows; those that its family does not have are absent."""
    tallies: dict[str, list[int]] = {}

    def count(name: str, right: Tensor, among: Tensor) -> None:
        tally = tallies.setdefault(name, [0, 0])
        tally[0] += int((right & among).sum())
        tally[1] += int(among.sum())

    for batch in held_out_batches(specials, rows, model.device):
        found = family.recover(model, batch)
        count("accuracy", found.correct, batch.dropped)
        count("accuracy_single", found.correct, batch.single)
        if found.said_end is not None and found.empty is not None:
            count("end_precision", found.empty, found.said_end)
            count("end_recall", found.said_end, found.empty)
        if found.follows is not None:
            count("next_sentence_accuracy", found.follows == (batch.follows == 1), batch.follows != NOT_ASKED)
    return {name: round(right / among, 5) for name, (right, among) in tallies.items() if among}
