"""Masked language models: n masks in the gap, filled one by one in a beam search (the paper's section 4.3).

The input is ``[CLS] passage(1/2) [SEP] passage(2/2) question cloze(left) [MASK]*n cloze(right) [SEP]``. Each step fills
the most certain mask of every element of the beam, the one with the lowest entropy. There is one search for each n from
1 to 4, or to the length of the gap if it is longer. The answer with the highest sum of log-probabilities wins; elements
of the beam that are no better than the best answer so far are dropped, as sums can only decrease.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from kermit.errors import DecodingError, ModelError
from kermit.families.language_model import run, segment_inputs
from kermit.tasks.cloze.layout import ClozeLayout
from kermit.tasks.cloze.system import FRAME, ClozeAnswer, ClozeSystem, spelled

MOST_MASKS = 4
"""The largest number of masks to try, unless the gap is longer."""


@dataclass(frozen=True)
class Filled:
    """The best filling (layouts, n) with its score and cost (layouts,); an abandoned search scores the floor."""

    tokens: Tensor
    scores: Tensor
    forward_passes: Tensor
    sequences: Tensor


@dataclass(frozen=True)
class _Inputs:
    """(rows, length) token ids, validity and segments, and the positions of the masks (rows, n)."""

    token_ids: Tensor
    valid: Tensor
    segment_ids: Tensor
    gap: Tensor


class MaskedLMSystem(ClozeSystem):
    """A masked language model that fills gaps."""

    name = "masked-lm"

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, *, beams: int = 5, oracle_length: bool = False
    ) -> None:
        if beams < 1:
            raise DecodingError(f"beams must be at least 1, not {beams}")
        frame = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id, tokenizer.mask_token_id)
        if None in frame:
            raise ModelError(
                "the tokenizer of a masked language model needs a [CLS], a [SEP], a padding and a [MASK] token"
            )
        super().__init__(model, tokenizer, oracle_length=oracle_length)
        self.beams = beams

    @property
    def settings(self) -> Mapping[str, object]:
        """The settings that determine answers, besides the weights."""
        return {"beams": self.beams, "most_masks": MOST_MASKS, "oracle_length": self.oracle_length}

    def fits(self, layout: ClozeLayout) -> bool:
        """Return whether there is room for the largest number of masks to try."""
        return self.limit is None or len(layout) + self._lengths(layout)[-1] + FRAME <= self.limit

    @torch.inference_mode()
    def answer(self, layouts: Sequence[ClozeLayout]) -> list[ClozeAnswer]:
        """Search with every number of masks, and return the best answers."""
        best = [ClozeAnswer("", 0, 0, 0, -torch.inf) for _ in layouts]
        for length in range(1, 1 + max(self._lengths(layout)[-1] for layout in layouts)):
            tried = [number for number, layout in enumerate(layouts) if length in self._lengths(layout)]
            if not tried:
                continue
            found = self.fill([layouts[number] for number in tried], length, [best[number].score for number in tried])
            for row, number in enumerate(tried):
                before, score = best[number], float(found.scores[row])
                text, tokens = before.text, before.tokens
                if score > before.score:
                    text = spelled(self.tokenizer, found.tokens[row].tolist(), layouts[number].passage)
                    tokens = length
                passes = before.forward_passes + int(found.forward_passes[row])
                sequences = before.sequences + int(found.sequences[row])
                best[number] = ClozeAnswer(text, tokens, passes, sequences, max(score, before.score))
        return best

    @torch.inference_mode()
    def fill(self, layouts: Sequence[ClozeLayout], length: int, floors: Sequence[float] | None = None) -> Filled:
        """Fill `length` masks in each gap by beam search; drop fillings that are no better than a layout's floor."""
        inputs = self.inputs(layouts, length)
        rows, device = len(layouts), self.model.device
        tokens = torch.full((rows, 1, length), self.tokenizer.mask_token_id, device=device)
        filled = torch.zeros_like(tokens, dtype=torch.bool)
        scores = torch.zeros(rows, 1, device=device)
        floor = torch.tensor([-torch.inf] * rows if floors is None else list(floors), device=device)[:, None]
        kept_whole = torch.tensor([not layout.joined for layout in layouts], device=device)[:, None, None]
        passes = torch.zeros(rows, dtype=torch.long, device=device)
        sequences = torch.zeros_like(passes)
        for _ in range(length):
            hopeful = scores > floor
            if not hopeful.any():
                break
            passes += hopeful.any(1)
            sequences += hopeful.sum(1)
            position, log_probs = self._surest(inputs, tokens, filled, hopeful)
            glued = (position == 0)[..., None] & kept_whole & self.continues
            total = scores[..., None] + log_probs.masked_fill(self.never | glued, -torch.inf)
            scores, chosen = total.flatten(1).topk(min(self.beams, total[0].numel()))
            parent, token = chosen // total.shape[2], chosen % total.shape[2]
            here = position.gather(1, parent)[..., None]
            parent = parent[..., None].expand(-1, -1, length)
            tokens = tokens.gather(1, parent).scatter(2, here, token[..., None])
            filled = filled.gather(1, parent).scatter(2, here, True)
        return Filled(tokens[:, 0], scores[:, 0], passes, sequences)

    def inputs(self, layouts: Sequence[ClozeLayout], length: int) -> _Inputs:
        """Build model inputs with masks in the gaps, padded to one length."""
        cls, sep, mask = (self.tokenizer.cls_token_id, self.tokenizer.sep_token_id, self.tokenizer.mask_token_id)
        rows, segments, starts = [], [], []
        for layout in layouts:
            x = [cls, *layout.first, sep]
            y = [*layout.before, *[mask] * length, *layout.after, sep]
            rows.append(torch.tensor(x + y))
            segments.append(torch.tensor([0] * len(x) + [1] * len(y)))
            starts.append(len(x) + len(layout.before))
        token_ids = pad_sequence(rows, batch_first=True, padding_value=self.tokenizer.pad_token_id)
        valid = torch.arange(token_ids.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
        gap = torch.tensor(starts)[:, None] + torch.arange(length)
        device = self.model.device
        return _Inputs(
            token_ids.to(device), valid.to(device), pad_sequence(segments, batch_first=True).to(device), gap.to(device)
        )

    def _surest(self, inputs: _Inputs, tokens: Tensor, filled: Tensor, hopeful: Tensor) -> tuple[Tensor, Tensor]:
        """Find the most certain mask of every hopeful element (rows, beams) of the beam.

        Returns:
            (rows, beams) its index, and (rows, beams, vocabulary) the log-probabilities there, -inf for other elements.
        """
        rows, beams = hopeful.shape
        part = hopeful.flatten().nonzero().flatten()
        position = torch.zeros_like(hopeful.flatten(), dtype=torch.long)
        log_probs = torch.full((rows * beams, len(self.never)), -torch.inf, device=tokens.device)
        owner = part // beams
        gap = inputs.gap[owner]
        token_ids = inputs.token_ids[owner].scatter(1, gap, tokens.flatten(0, 1)[part])
        logits = self._logits(token_ids, inputs.valid[owner], inputs.segment_ids[owner], gap)
        log_p = logits.float().log_softmax(2)
        entropy = torch.special.entr(log_p.exp()).sum(2)
        position[part] = entropy.masked_fill(filled.flatten(0, 1)[part], torch.inf).argmin(1)
        log_probs[part] = log_p[torch.arange(len(part), device=part.device), position[part]]
        return position.view(rows, beams), log_probs.view(rows, beams, -1)

    def _logits(self, token_ids: Tensor, valid: Tensor, segment_ids: Tensor, gap: Tensor) -> Tensor:
        """Return (rows, n, vocabulary) logits at the gap; if the head is known, no others are computed."""
        segments = segment_inputs(self.model, segment_ids)
        head = self.model.get_output_embeddings()
        if head is None:
            return _at(self.model(input_ids=token_ids, attention_mask=valid.long(), **segments).logits, gap)
        logits: Tensor = head(_at(run(self.model, token_ids, valid, **segments), gap))
        return logits

    def _lengths(self, layout: ClozeLayout) -> range:
        """Return the numbers of masks to try."""
        if self.oracle_length:
            return range(layout.gap_length, layout.gap_length + 1)
        return range(1, max(MOST_MASKS, layout.gap_length) + 1)


def _at(values: Tensor, positions: Tensor) -> Tensor:
    """Gather (rows, n, width) from (rows, length, width)."""
    return values.gather(1, positions[..., None].expand(-1, -1, values.shape[2]))
