"""The masked language model's way: n masks in the gap, filled one by one in a beam search (the paper's section 4.3).

The input is ``[CLS] passage(1/2) [SEP] passage(2/2) question cloze(left) [MASK]*n cloze(right) [SEP]``. Every element
of the beam fills its surest mask next, the one whose distribution has the lowest entropy. There is a search for each n
from 1 to 4, or to the length of the gap where that is more, and the answer with the highest score is taken. The score
is the sum of the log-probabilities of the tokens, each when it was filled in. Sums of more tokens are lower, so short
answers are preferred, which is what the paper reports of BERT.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from kermit.data.tokenizer import decode_ids, encode_texts
from kermit.errors import DecodingError, ModelError
from kermit.modeling.taps import withheld_from
from kermit.tasks.cloze.instances import ClozeInstance
from kermit.tasks.cloze.layout import Layout, lay_out
from kermit.tasks.cloze.system import CALL_TOKENS, ClozeAnswer, continuing_tokens, never_generated, position_limit

MOST_MASKS = 4
"""How many masks are tried at least."""

_FRAME = 3


@dataclass(frozen=True)
class Filled:
    """The best filling of n masks for each layout.

    Args:
        tokens: (layouts, n).
        scores: (layouts,) the summed log-probabilities.
    """

    tokens: Tensor
    scores: Tensor


@dataclass(frozen=True)
class _Inputs:
    """Rows of token ids with n masks in each gap.

    Args:
        token_ids: (rows, length).
        valid: (rows, length) bool.
        segment_ids: (rows, length).
        gap: (rows, n) where the masks stand.
    """

    token_ids: Tensor
    valid: Tensor
    segment_ids: Tensor
    gap: Tensor


class MaskedLMSystem:
    """A masked language model that fills gaps.

    Args:
        model: the model; it is put in evaluation mode.
        tokenizer: its tokenizer.
        beams: how many partial fillings are kept.
        oracle_length: whether to try as many masks as the gap held alone.
    """

    name = "masked-lm"

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        *,
        beams: int = 5,
        oracle_length: bool = False,
    ) -> None:
        if beams < 1:
            raise DecodingError(f"beams must be at least 1, not {beams}")
        frame = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id, tokenizer.mask_token_id)
        if None in frame:
            raise ModelError("a masked language model's tokenizer needs a [CLS], a [SEP], a padding and a [MASK] token")
        self.model, self.tokenizer, self.beams, self.oracle_length = model.eval(), tokenizer, beams, oracle_length
        self.limit = position_limit(model)
        vocabulary = model.get_input_embeddings().num_embeddings
        self.never = never_generated(tokenizer, vocabulary).to(model.device)
        self.continues = continuing_tokens(tokenizer, vocabulary).to(model.device)
        accepted = inspect.signature(model.forward).parameters
        self.has_segments = "token_type_ids" in accepted and getattr(model.config, "type_vocab_size", 0) > 1

    @property
    def settings(self) -> Mapping[str, object]:
        """What decides its answers beside the weights."""
        return {"beams": self.beams, "most_masks": MOST_MASKS, "oracle_length": self.oracle_length}

    def lay_out(self, instance: ClozeInstance) -> Layout | None:
        """An instance that the model has positions for, with as many masks as will be tried."""

        def fits(layout: Layout) -> bool:
            return self.limit is None or len(layout) + self._lengths(layout)[-1] + _FRAME <= self.limit

        return lay_out(instance, lambda text: encode_texts(self.tokenizer, [text])[0], fits, split=True)

    @torch.inference_mode()
    def answer(self, layouts: Sequence[Layout]) -> list[ClozeAnswer]:
        """Search with every number of masks, and take the best."""
        best: list[tuple[float, list[int]]] = [(-torch.inf, []) for _ in layouts]
        for length in range(1, 1 + max(self._lengths(layout)[-1] for layout in layouts)):
            tried = [number for number, layout in enumerate(layouts) if length in self._lengths(layout)]
            if not tried:
                continue
            found = self.fill([layouts[number] for number in tried], length)
            for number, score, tokens in zip(tried, found.scores.tolist(), found.tokens.tolist(), strict=True):
                if score > best[number][0]:
                    best[number] = (score, tokens)
        return [self._answer(layout, score, tokens) for layout, (score, tokens) in zip(layouts, best, strict=True)]

    @torch.inference_mode()
    def fill(self, layouts: Sequence[Layout], length: int) -> Filled:
        """Fill so many masks in each gap by a beam search, the surest mask first."""
        inputs = self.inputs(layouts, length)
        rows, device = len(layouts), self.model.device
        tokens = torch.full((rows, 1, length), self.tokenizer.mask_token_id, device=device)
        filled = torch.zeros_like(tokens, dtype=torch.bool)
        scores = torch.zeros(rows, 1, device=device)
        kept_whole = torch.tensor([not layout.joined for layout in layouts], device=device)[:, None, None]
        for _ in range(length):
            position, log_probs = self._surest(inputs, tokens, filled)
            glued = (position == 0)[..., None] & kept_whole & self.continues
            total = scores[..., None] + log_probs.masked_fill(self.never | glued, -torch.inf)
            scores, chosen = total.flatten(1).topk(min(self.beams, total[0].numel()))
            parent, token = chosen // total.shape[2], chosen % total.shape[2]
            here = position.gather(1, parent)[..., None]
            parent = parent[..., None].expand(-1, -1, length)
            tokens = tokens.gather(1, parent).scatter(2, here, token[..., None])
            filled = filled.gather(1, parent).scatter(2, here, True)
        return Filled(tokens[:, 0], scores[:, 0])

    def inputs(self, layouts: Sequence[Layout], length: int) -> _Inputs:
        """The layouts with so many masks in their gaps, padded to one length."""
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

    def _surest(self, inputs: _Inputs, tokens: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
        """The surest mask of every element of the beam.

        Args:
            inputs: the rows.
            tokens: (rows, beams, n) what stands in the gap.
            filled: (rows, beams, n) bool, whether a mask was filled.

        Returns:
            (rows, beams) its number, and (rows, beams, vocabulary) the log-probabilities there.
        """
        rows, beams = tokens.shape[:2]
        owner = torch.arange(rows, device=tokens.device).repeat_interleave(beams)
        flat, done = tokens.flatten(0, 1), filled.flatten(0, 1)
        positions, log_probs = [], []
        for part in _chunks(len(owner), inputs):
            gap = inputs.gap[owner[part]]
            token_ids = inputs.token_ids[owner[part]].scatter(1, gap, flat[part])
            log_p = self._logits(token_ids, inputs.valid[owner[part]], inputs.segment_ids[owner[part]], gap)
            log_p = log_p.float().log_softmax(2)
            entropy = torch.special.entr(log_p.exp()).sum(2)
            position = entropy.masked_fill(done[part], torch.inf).argmin(1)
            positions.append(position)
            log_probs.append(log_p[torch.arange(len(position)), position])
        return torch.cat(positions).view(rows, beams), torch.cat(log_probs).view(rows, beams, -1)

    def _logits(self, token_ids: Tensor, valid: Tensor, segment_ids: Tensor, gap: Tensor) -> Tensor:
        """(rows, n, vocabulary) at the gap; logits of the passage are never made where the head can be told apart."""
        inputs: dict[str, Any] = {"input_ids": token_ids, "attention_mask": valid.long()}
        if self.has_segments:
            inputs["token_type_ids"] = segment_ids
        head = self.model.get_output_embeddings()
        if head is None:
            return _at(self.model(**inputs).logits, gap)
        with withheld_from(head) as vectors:
            self.model(**inputs)
        logits: Tensor = head(_at(vectors.value, gap))
        return logits

    def _lengths(self, layout: Layout) -> range:
        """The numbers of masks to try."""
        if self.oracle_length:
            return range(layout.gap_length, layout.gap_length + 1)
        return range(1, max(MOST_MASKS, layout.gap_length) + 1)

    def _answer(self, layout: Layout, score: float, tokens: list[int]) -> ClozeAnswer:
        lengths = self._lengths(layout)
        return ClozeAnswer(
            text=decode_ids(self.tokenizer, tokens).strip(),
            tokens=len(tokens),
            forward_passes=sum(lengths),
            sequences=sum(1 + self.beams * (length - 1) for length in lengths),
            score=score,
        )


def _chunks(rows: int, inputs: _Inputs) -> Iterator[slice]:
    """Rows in parts of at most `CALL_TOKENS` tokens."""
    size = max(1, CALL_TOKENS // inputs.token_ids.shape[1])
    return (slice(start, start + size) for start in range(0, rows, size))


def _at(values: Tensor, positions: Tensor) -> Tensor:
    """(rows, n, width) of (rows, length, width)."""
    return values.gather(1, positions[..., None].expand(-1, -1, values.shape[2]))
