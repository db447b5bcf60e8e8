"""The left-to-right language model's way: sample what could come, and see what goes best with the rest (section 4.3).

The model reads ``passage question cloze(left)`` once. From there continuations are drawn, and every beginning of every
one of them is a candidate. A candidate's score is the log-probability of candidate and cloze(right) given what was
read; the best one is the answer. With the oracle length the candidates are those of that length. The state of what was
read is cached and shared by all draws and all candidates; a candidate that was drawn twice is scored once.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from kermit.data.tokenizer import decode_ids, encode_texts
from kermit.decoding import Sampling
from kermit.decoding.choosing import draw, uniform
from kermit.errors import DecodingError, ModelError
from kermit.tasks.cloze.instances import ClozeInstance
from kermit.tasks.cloze.layout import Layout, lay_out
from kermit.tasks.cloze.system import (
    CALL_TOKENS,
    ClozeAnswer,
    continuing_tokens,
    instance_seed,
    never_generated,
    position_limit,
    position_offset,
)

CONTINUATION_TOKENS = 20
"""How long the continuations are."""


@dataclass(frozen=True)
class Context:
    """What the model has read: the texts before some gaps.

    Args:
        cache: the model's keys and values.
        valid: (rows, length) bool; padding is on the left.
        logits: (rows, vocabulary) of the next token.
    """

    cache: Any
    valid: Tensor
    logits: Tensor

    @property
    def lengths(self) -> Tensor:
        """(rows,) tokens read."""
        return self.valid.sum(1)


@dataclass(frozen=True)
class Candidate:
    """Some tokens for the gap of one row.

    Args:
        row: whose gap.
        tokens: the tokens for the gap.
    """

    row: int
    tokens: tuple[int, ...]


class CausalLMSystem:
    """A left-to-right language model that fills gaps.

    Args:
        model: the model; it is put in evaluation mode.
        tokenizer: its tokenizer.
        samples: how many continuations to draw for each gap.
        continuation_tokens: how long they are.
        sampling: how tokens are drawn.
        oracle_length: whether candidates have as many tokens as the gap held.
        seed: of the draws.

    Raises:
        ModelError: a model that sees what comes next.
    """

    name = "causal-lm"

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        *,
        samples: int = 20,
        continuation_tokens: int = CONTINUATION_TOKENS,
        sampling: Sampling | None = None,
        oracle_length: bool = False,
        seed: int = 0,
    ) -> None:
        if samples < 1 or continuation_tokens < 1:
            raise DecodingError(f"draw at least 1 continuation of 1 token, not {samples} of {continuation_tokens}")
        self.model, self.tokenizer, self.samples, self.seed = model.eval(), tokenizer, samples, seed
        self.continuation_tokens, self.oracle_length = continuation_tokens, oracle_length
        self.sampling = sampling or Sampling()
        self.limit, self.offset = position_limit(model), position_offset(model)
        vocabulary = model.get_input_embeddings().num_embeddings
        self.never = never_generated(tokenizer, vocabulary).to(model.device)
        self.continues = continuing_tokens(tokenizer, vocabulary).to(model.device)
        self.opening = _opening(tokenizer)
        self._accepted = inspect.signature(model.forward).parameters
        self._check_causal()

    @property
    def settings(self) -> Mapping[str, object]:
        """What decides its answers beside the weights."""
        return {
            "samples": self.samples,
            "continuation_tokens": self.continuation_tokens,
            "temperature": self.sampling.temperature,
            "top_k": self.sampling.top_k,
            "top_p": self.sampling.top_p,
            "oracle_length": self.oracle_length,
            "seed": self.seed,
        }

    def lay_out(self, instance: ClozeInstance) -> Layout | None:
        """An instance that the model has positions for, with the longest continuation and cloze(right)."""

        def fits(layout: Layout) -> bool:
            length = len(self.opening) + len(layout) + self._longest(layout)
            return len(self.opening) + len(layout.before) > 0 and (self.limit is None or length <= self.limit)

        return lay_out(instance, lambda text: encode_texts(self.tokenizer, [text])[0], fits, split=False)

    @torch.inference_mode()
    def answer(self, layouts: Sequence[Layout]) -> list[ClozeAnswer]:
        """Draw continuations and take the best beginning of any."""
        answers: list[ClozeAnswer] = []
        for group in self._groups(layouts):
            context = self.read(group)
            candidates = self.candidates(group, self.draw(context, group))
            scores = self.score(context, group, candidates)
            for row, layout in enumerate(group):
                own = [number for number, candidate in enumerate(candidates) if candidate.row == row]
                best = max(own, key=lambda number: scores[number])
                answers.append(self._answer(layout, candidates[best], scores[best], len(own)))
        return answers

    @torch.inference_mode()
    def read(self, layouts: Sequence[Layout]) -> Context:
        """Read what is before the gaps."""
        rows = [torch.tensor([*self.opening, *layout.before]) for layout in layouts]
        token_ids = pad_sequence(rows, batch_first=True, padding_side="left").to(self.model.device)
        lengths = torch.tensor([len(row) for row in rows], device=self.model.device)
        valid = torch.arange(token_ids.shape[1], device=self.model.device) >= token_ids.shape[1] - lengths[:, None]
        positions = (valid.cumsum(1) - 1).clamp(min=0)
        last = {"logits_to_keep": 1} if "logits_to_keep" in self._accepted else {}
        out = self._call(token_ids, valid, positions, None, **last)
        return Context(out.past_key_values, valid, out.logits[:, -1].float())

    @torch.inference_mode()
    def draw(self, context: Context, layouts: Sequence[Layout]) -> Tensor:
        """Draw continuations; what is drawn for a layout depends on its id and the seed alone.

        Returns:
            (layouts, samples, tokens).
        """
        rows = torch.arange(len(layouts)).repeat_interleave(self.samples)
        seeds = torch.tensor([instance_seed(self.seed, layout.id) for layout in layouts])[rows]
        numbers = torch.arange(self.samples).repeat(len(layouts))
        glued = torch.tensor([not layout.joined for layout in layouts])[rows].to(self.model.device)
        rows = rows.to(self.model.device)
        cache, valid, logits = _select(context.cache, rows), context.valid[rows], context.logits[rows]
        lengths = context.lengths[rows]
        barred = self.never | (glued[:, None] & self.continues)
        drawn: list[Tensor] = []
        longest = max(map(self._longest, layouts))
        for step in range(longest):
            noise = uniform(seeds, step, numbers)
            drawn.append(draw(logits.masked_fill(barred, -torch.inf), self.sampling, noise))
            if step + 1 < longest:
                valid = torch.nn.functional.pad(valid, (0, 1), value=True)
                out = self._call(drawn[-1][:, None], valid, (lengths + step)[:, None], cache)
                cache, logits, barred = out.past_key_values, out.logits[:, -1].float(), self.never
        return torch.stack(drawn, 1).view(len(layouts), self.samples, longest)

    def candidates(self, layouts: Sequence[Layout], drawn: Tensor) -> list[Candidate]:
        """The beginnings of what was drawn, each once."""
        found: dict[Candidate, None] = {}
        for row, (layout, continuations) in enumerate(zip(layouts, drawn.tolist(), strict=True)):
            lengths = [layout.gap_length] if self.oracle_length else range(1, self.continuation_tokens + 1)
            for length in lengths:
                found |= dict.fromkeys(Candidate(row, tuple(tokens[:length])) for tokens in continuations)
        return list(found)

    @torch.inference_mode()
    def score(self, context: Context, layouts: Sequence[Layout], candidates: Sequence[Candidate]) -> list[float]:
        """The log-probability of every candidate followed by its cloze(right), given what was read; in nats."""
        texts = [candidate.tokens + layouts[candidate.row].after for candidate in candidates]
        by_length = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        scores: dict[int, float] = {}
        width = context.valid.shape[1]
        for part in _parts(by_length, [width + len(text) for text in texts]):
            rows = torch.tensor([candidates[number].row for number in part], device=self.model.device)
            values = self._continued(context, rows, [texts[number] for number in part])
            scores |= zip(part, values.tolist(), strict=True)
        return [scores[number] for number in range(len(texts))]

    def _continued(self, context: Context, rows: Tensor, texts: Sequence[tuple[int, ...]]) -> Tensor:
        """(texts,) the log-probability of each text after its row of the context."""
        device = self.model.device
        token_ids = pad_sequence([torch.tensor(text) for text in texts], batch_first=True).to(device)
        lengths = torch.tensor([len(text) for text in texts], device=device)
        counted = torch.arange(token_ids.shape[1], device=device) < lengths[:, None]
        logits = context.logits[rows][:, None]
        if token_ids.shape[1] > 1:
            given = token_ids[:, :-1]
            valid = torch.cat([context.valid[rows], counted[:, :-1]], 1)
            positions = context.lengths[rows][:, None] + torch.arange(given.shape[1], device=device)
            out = self._call(given, valid, positions, _select(context.cache, rows))
            logits = torch.cat([logits, out.logits.float()], 1)
        chosen = logits.gather(2, token_ids[..., None]).squeeze(2) - logits.logsumexp(2)
        return (chosen * counted).sum(1)

    def _call(self, token_ids: Tensor, valid: Tensor, positions: Tensor, cache: Any, **more: Any) -> Any:
        inputs: dict[str, Any] = {"input_ids": token_ids, "attention_mask": valid.long(), "use_cache": True, **more}
        if "position_ids" in self._accepted:
            inputs["position_ids"] = positions + self.offset
        if cache is not None:
            inputs["past_key_values"] = cache
        return self.model(**inputs)

    def _groups(self, layouts: Sequence[Layout]) -> Iterator[list[Layout]]:
        """Layouts in order, as many at once as the draws of all of them have room for."""
        sizes = [self.samples * (len(self.opening) + len(layout) + self._longest(layout)) for layout in layouts]
        for part in _parts(range(len(layouts)), sizes):
            yield [layouts[number] for number in part]

    def _longest(self, layout: Layout) -> int:
        return layout.gap_length if self.oracle_length else self.continuation_tokens

    def _answer(self, layout: Layout, candidate: Candidate, score: float, candidates: int) -> ClozeAnswer:
        drawn = self._longest(layout)
        return ClozeAnswer(
            text=decode_ids(self.tokenizer, list(candidate.tokens)).strip(),
            tokens=len(candidate.tokens),
            forward_passes=drawn + 1,
            sequences=1 + self.samples * (drawn - 1) + candidates,
            score=score,
        )

    @torch.inference_mode()
    def _check_causal(self) -> None:
        token_ids = torch.tensor([[0, 2], [0, 3]], device=self.model.device)
        first = self.model(input_ids=token_ids).logits[:, 0]
        if not torch.allclose(first[0], first[1], atol=1e-3, rtol=1e-3):
            raise ModelError(
                f"{type(self.model).__name__} is no left-to-right model: what it says of a token depends on those after"
                " it. A BERT-like decoder needs is_decoder in its config"
            )


def _opening(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """What the tokenizer puts before a text, or [CLS] where it puts nothing but has one."""
    encoding = tokenizer.backend_tokenizer.encode("a", add_special_tokens=True)
    special = encoding.special_tokens_mask
    opening = list(encoding.ids[: special.index(0)]) if 0 in special else []
    return opening or ([] if tokenizer.cls_token_id is None else [tokenizer.cls_token_id])


def _select(cache: Any, rows: Tensor) -> Any:
    """A cache of its own for some rows, each as often as it is named."""
    chosen = copy.deepcopy(cache)
    chosen.reorder_cache(rows)
    return chosen


def _parts(numbers: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Numbers in order, in parts whose count times largest size is at most `CALL_TOKENS`, or of one."""
    part: list[int] = []
    largest = 0
    for number in numbers:
        grown = max(largest, sizes[number])
        if part and (len(part) + 1) * grown > CALL_TOKENS:
            yield part
            part, grown = [], sizes[number]
        part, largest = [*part, number], grown
    if part:
        yield part
