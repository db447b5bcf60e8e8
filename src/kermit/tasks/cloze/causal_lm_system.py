"""Left-to-right language models: sample continuations, and take the one that fits the rest best (section 4.3).

The model reads ``passage question cloze(left)`` once. From there continuations are sampled, and every prefix of each is
a candidate. A candidate's score is the log-probability of candidate and cloze(right) given what was read; the best one
is the answer. With the oracle length only candidates of that length count.

What was read is kept in the model's cache, one row per continuation, and a candidate is scored from the cache in which
it was drawn. Log-probabilities only fall as a text grows, so a continuation that is less likely by itself than the best
candidate so far is dropped, and a candidate that is less likely with the first token of cloze(right) is not tried with
the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from kermit.decoding import Sampling
from kermit.decoding.drawing import draw, uniform
from kermit.errors import DecodingError, ModelError
from kermit.loading import position_limit
from kermit.tasks.cloze.instances import ClozeInstance
from kermit.tasks.cloze.layout import ClozeLayout, lay_out_cloze
from kermit.tasks.cloze.memory import Memory, Reader
from kermit.tasks.cloze.system import (
    ClozeAnswer,
    call_tokens,
    continuing_tokens,
    in_calls,
    instance_seed,
    never_generated,
    spelled,
    text_encoder,
)

_LOGITS = 1 / 8  # rows of logits held at once, as a share of the tokens of a call
CONTINUATION_TOKENS = 20
"""Length of continuations."""


@dataclass(frozen=True)
class Continuations:
    """Continuations of some gaps, as far as they are sampled.

    Args:
        owner: (rows,) number of the gap.
        number: (rows,) number of the continuation of its gap.
        tokens: (rows, drawn).
        log_probs: (rows,) of these tokens.
        memory: what was read and drawn.
        logits: (rows, vocabulary) of the next token.
    """

    owner: Tensor
    number: Tensor
    tokens: Tensor
    log_probs: Tensor
    memory: Memory
    logits: Tensor

    def __len__(self) -> int:
        return len(self.owner)

    def select(self, rows: Tensor) -> Continuations:
        """Return some rows; a row may be repeated."""
        return Continuations(
            self.owner[rows],
            self.number[rows],
            self.tokens[rows],
            self.log_probs[rows],
            self.memory.select(rows),
            self.logits[rows],
        )


@dataclass
class _Best:
    """The best candidate for a gap so far, and its cost."""

    score: float = -torch.inf
    tokens: tuple[int, ...] = ()
    forward_passes: int = 1
    sequences: int = 1


class CausalLMSystem:
    """A left-to-right language model that fills gaps.

    Args:
        model: the model; it is put in evaluation mode.
        tokenizer: its tokenizer.
        samples: number of continuations per gap.
        continuation_tokens: their length.
        sampling: how tokens are drawn.
        oracle_length: whether candidates have the gap's number of tokens.
        seed: for sampling.

    Raises:
        ModelError: the model sees what comes next.
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
            raise DecodingError(f"sample at least 1 continuation of 1 token, not {samples} of {continuation_tokens}")
        self.model, self.tokenizer, self.samples, self.seed = model.eval(), tokenizer, samples, seed
        self.continuation_tokens, self.oracle_length = continuation_tokens, oracle_length
        self.sampling = sampling or Sampling()
        self.encoder = text_encoder(tokenizer)
        self.limit = position_limit(model)
        vocabulary = model.get_input_embeddings().num_embeddings
        self.never = never_generated(tokenizer, vocabulary).to(model.device)
        self.continues = torch.as_tensor(continuing_tokens(tokenizer, vocabulary), device=model.device)
        self.opening = _opening(tokenizer)
        self._check_causal()
        self.reader = Reader(model)

    @property
    def settings(self) -> Mapping[str, object]:
        """What decides answers besides the weights."""
        return {
            "samples": self.samples,
            "continuation_tokens": self.continuation_tokens,
            "temperature": self.sampling.temperature,
            "top_k": self.sampling.top_k,
            "top_p": self.sampling.top_p,
            "oracle_length": self.oracle_length,
            "seed": self.seed,
        }

    def lay_out(self, instance: ClozeInstance) -> ClozeLayout | None:
        """Encode an instance so that it fits with the longest continuation and cloze(right)."""

        def fits(layout: ClozeLayout) -> bool:
            length = len(self.opening) + len(layout) + self._longest(layout)
            return len(self.opening) + len(layout.before) > 0 and (self.limit is None or length <= self.limit)

        return lay_out_cloze(instance, self.encoder, fits, split=False)

    @torch.inference_mode()
    def answer(self, layouts: Sequence[ClozeLayout]) -> list[ClozeAnswer]:
        """Sample continuations and take the best prefix of any."""
        answers: dict[int, ClozeAnswer] = {}
        for part in in_calls([self._columns(layout) for layout in layouts], call_tokens(self.model)):
            answers |= dict(zip(part, self._answer_group([layouts[number] for number in part]), strict=True))
        return [answers[number] for number in range(len(layouts))]

    def _answer_group(self, layouts: Sequence[ClozeLayout]) -> list[ClozeAnswer]:
        best = [_Best() for _ in layouts]
        drawn = self.read(layouts)
        while len(drawn):
            drawn = self.extend(drawn, layouts)
            length = drawn.tokens.shape[1]
            _count(best, drawn.owner)
            self._try(drawn, layouts, best)
            scores = drawn.log_probs.new_tensor([found.score for found in best])
            longest = torch.tensor([self._longest(layout) for layout in layouts], device=drawn.owner.device)
            hopeful = (drawn.log_probs > scores[drawn.owner]) & (length < longest[drawn.owner])
            if not hopeful.all():
                drawn = drawn.select(hopeful.nonzero().flatten())
        return [self._answer(layout, found) for layout, found in zip(layouts, best, strict=True)]

    @torch.inference_mode()
    def read(self, layouts: Sequence[ClozeLayout]) -> Continuations:
        """Read what is before the gaps; return the continuations to sample, all still empty."""
        device = self.model.device
        rows = [torch.tensor([*self.opening, *layout.before]) for layout in layouts]
        token_ids = pad_sequence(rows, batch_first=True, padding_side="left").to(device)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        valid = torch.arange(token_ids.shape[1], device=device) >= token_ids.shape[1] - lengths[:, None]
        logits, memory = self.reader.read(token_ids, valid)
        owner = torch.arange(len(layouts), device=device)
        nothing = torch.zeros_like(token_ids[:, :0])
        read = Continuations(owner, owner, nothing, logits.new_zeros(len(layouts)), memory, logits)
        every = read.select(owner.repeat_interleave(self.samples))
        return replace(every, number=torch.arange(self.samples, device=device).repeat(len(layouts)))

    @torch.inference_mode()
    def extend(self, drawn: Continuations, layouts: Sequence[ClozeLayout]) -> Continuations:
        """Sample one more token for each continuation, and read it. Uses up the argument, as its memory grows.

        What is sampled for a layout depends only on its id, the seed, and the number of the continuation.
        """
        step = drawn.tokens.shape[1]
        owners = drawn.owner.tolist()
        seeds = np.array([instance_seed(self.seed, layouts[owner].id) for owner in owners])
        barred = self.never
        if step == 0:
            apart = torch.tensor([not layouts[owner].joined for owner in owners], device=drawn.owner.device)
            barred = barred | (apart[:, None] & self.continues)
        noise = uniform(seeds, step, drawn.number.cpu().numpy())
        scores = drawn.logits.masked_fill(barred, -torch.inf).float().cpu().numpy()
        token = torch.as_tensor(draw(scores, self.sampling, noise), device=drawn.logits.device)
        logits, memory = drawn.memory.grow(self.reader, token)
        return replace(
            drawn,
            tokens=torch.cat([drawn.tokens, token[:, None]], 1),
            log_probs=drawn.log_probs + _log_probs(drawn.logits, token),
            memory=memory,
            logits=logits,
        )

    def _try(self, drawn: Continuations, layouts: Sequence[ClozeLayout], best: Sequence[_Best]) -> None:
        """Score the candidates, each once and only if it could be the best so far."""
        rows = self._candidates(drawn, layouts)
        if not len(rows):
            return
        owners = drawn.owner[rows]
        after = [layouts[owner].after for owner in owners.tolist()]
        first = torch.tensor([part[0] if part else -1 for part in after], device=rows.device)
        scores = drawn.log_probs[rows] + torch.where(first < 0, 0.0, _log_probs(drawn.logits[rows], first.clamp(min=0)))
        before = scores.new_tensor([found.score for found in best])[owners]
        goes_on = torch.tensor([len(part) > 1 for part in after], device=rows.device) & (scores > before)
        asked = goes_on.nonzero().flatten()
        _count(best, owners[asked])
        budget = int(call_tokens(self.model) * _LOGITS)
        for part in in_calls([len(after[number]) for number in asked.tolist()], budget):
            numbers = asked[part].tolist()
            scores[numbers] += self._rest(drawn.select(rows[numbers]), [after[number] for number in numbers])
        for owner, tokens, score in zip(owners.tolist(), drawn.tokens[rows].tolist(), scores.tolist(), strict=True):
            if score > best[owner].score:
                best[owner].score, best[owner].tokens = score, tuple(tokens)

    def _candidates(self, drawn: Continuations, layouts: Sequence[ClozeLayout]) -> Tensor:
        """Return the rows to score: one per distinct candidate; with the oracle length, only of that length."""
        length = drawn.tokens.shape[1]
        first: dict[tuple[int, ...], int] = {}
        for row, (owner, tokens) in enumerate(zip(drawn.owner.tolist(), drawn.tokens.tolist(), strict=True)):
            if not self.oracle_length or length == layouts[owner].gap_length:
                first[(owner, *tokens)] = row
        return torch.tensor(list(first.values()), dtype=torch.long, device=drawn.owner.device)

    def _rest(self, drawn: Continuations, after: Sequence[Sequence[int]]) -> Tensor:
        """(rows,) the log-probability of all tokens of each row's cloze(right) but the first, given that one."""
        rows = [torch.tensor(part, device=self.model.device) for part in after]
        tokens = pad_sequence(rows, batch_first=True)
        number = torch.arange(tokens.shape[1], device=tokens.device)
        there = number < torch.tensor([len(row) for row in rows], device=tokens.device)[:, None]
        given, asked, counts = tokens[:, :-1], tokens[:, 1:], there[:, 1:]
        logits = drawn.memory.look_ahead(self.reader, given, counts)
        found = _log_probs(logits.flatten(0, 1), asked.flatten()).view(asked.shape)
        return torch.where(counts, found, 0.0).sum(1)

    def _columns(self, layout: ClozeLayout) -> int:
        """Return the tokens that a gap's continuations may come to, what was read included."""
        return self.samples * (len(self.opening) + len(layout) + self._longest(layout))

    def _longest(self, layout: ClozeLayout) -> int:
        return layout.gap_length if self.oracle_length else self.continuation_tokens

    def _answer(self, layout: ClozeLayout, found: _Best) -> ClozeAnswer:
        text = spelled(self.tokenizer, found.tokens, layout.passage)
        return ClozeAnswer(text, len(found.tokens), found.forward_passes, found.sequences, found.score)

    @torch.inference_mode()
    def _check_causal(self) -> None:
        token_ids = torch.tensor([[0, 2], [0, 3]], device=self.model.device)
        first = self.model(input_ids=token_ids).logits[:, 0]
        if not torch.allclose(first[0], first[1], atol=1e-3, rtol=1e-3):
            raise ModelError(
                f"{type(self.model).__name__} is not a left-to-right model: its prediction of a token depends on later"
                " tokens. A BERT-like decoder needs is_decoder in its config"
            )


def _count(best: Sequence[_Best], owners: Tensor) -> None:
    """Count one call of the model and the sequences of each gap in it."""
    for found, sequences in zip(best, owners.bincount(minlength=len(best)).tolist(), strict=True):
        found.forward_passes += sequences > 0
        found.sequences += sequences


def _opening(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Return what the tokenizer puts before a text, or [CLS] if it puts nothing but has one."""
    encoding = tokenizer.backend_tokenizer.encode("a", add_special_tokens=True)
    special = encoding.special_tokens_mask
    opening = list(encoding.ids[: special.index(0)]) if 0 in special else []
    return opening or ([] if tokenizer.cls_token_id is None else [tokenizer.cls_token_id])


def _log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    """(rows,) of (rows,) tokens under (rows, vocabulary) logits."""
    return logits.gather(1, tokens[:, None]).squeeze(1) - logits.logsumexp(1)
