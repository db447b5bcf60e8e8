"""The left-to-right language model's way: sample what could come, and see what goes best with the rest (section 4.3).

The model reads ``passage question cloze(left)`` once. From there continuations are drawn, and every beginning of every
one of them is a candidate. A candidate's score is the log-probability of candidate and cloze(right) given what was
read; the best one is the answer. With the oracle length the candidates are those of that length.

Nothing is computed twice, and nothing that cannot change the answer. All continuations share the memory of what was
read, and a candidate's score takes over that in which it was drawn. Log-probabilities only fall as a text grows,
so a continuation that is less likely by itself than the best candidate so far is dropped, and a candidate that is less
likely with the first token of cloze(right) is not tried with the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from kermit.decoding import Sampling
from kermit.decoding.drawing import draw, uniform
from kermit.errors import DecodingError, ModelError
from kermit.tasks.cloze.instances import ClozeInstance
from kermit.tasks.cloze.layout import Layout, lay_out
from kermit.tasks.cloze.memory import Memory, Reader
from kermit.tasks.cloze.system import (
    ClozeAnswer,
    call_tokens,
    continuing_tokens,
    in_calls,
    instance_seed,
    never_generated,
    position_limit,
    spelled,
    text_encoder,
)

_LOGITS = 1 / 8  # rows of logits that are held at once, of the tokens of a call
CONTINUATION_TOKENS = 20
"""How long the continuations are."""


@dataclass(frozen=True)
class Continuations:
    """Continuations of what was read before some gaps, as far as they are drawn.

    Args:
        owner: (rows,) whose gap.
        number: (rows,) which of its continuations.
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
        """Some of them, those of a gap together, each as often as it is named."""
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
    """The best candidate for a gap so far, and what it took to find it."""

    score: float = -torch.inf
    tokens: tuple[int, ...] = ()
    forward_passes: int = 1
    sequences: int = 1


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

        return lay_out(instance, self.encoder, fits, split=False)

    @torch.inference_mode()
    def answer(self, layouts: Sequence[Layout]) -> list[ClozeAnswer]:
        """Draw continuations and take the best beginning of any."""
        answers: dict[int, ClozeAnswer] = {}
        for part in in_calls([self._columns(layout) for layout in layouts], call_tokens(self.model)):
            answers |= dict(zip(part, self._answer_group([layouts[number] for number in part]), strict=True))
        return [answers[number] for number in range(len(layouts))]

    def _answer_group(self, layouts: Sequence[Layout]) -> list[ClozeAnswer]:
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
    def read(self, layouts: Sequence[Layout]) -> Continuations:
        """Read what is before the gaps: for each as many continuations as will be drawn, all still empty."""
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
    def extend(self, drawn: Continuations, layouts: Sequence[Layout]) -> Continuations:
        """Draw one more token for each, and read it. What was given is used up, as its memory grows.

        What is drawn for a layout depends on its id, the seed, and the number of the continuation alone.
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

    def _try(self, drawn: Continuations, layouts: Sequence[Layout], best: Sequence[_Best]) -> None:
        """Score what is drawn, each candidate of a gap once and only where it could be the best so far."""
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
        for numbers in self._in_calls(asked.tolist(), owners.tolist(), after):
            scores[numbers] += self._rest(drawn.select(rows[numbers]), [after[number] for number in numbers])
        for owner, tokens, score in zip(owners.tolist(), drawn.tokens[rows].tolist(), scores.tolist(), strict=True):
            if score > best[owner].score:
                best[owner].score, best[owner].tokens = score, tuple(tokens)

    def _in_calls(
        self, asked: Sequence[int], owners: Sequence[int], after: Sequence[Sequence[int]]
    ) -> Iterator[list[int]]:
        """Candidates whose rests are scored in one call: those of a gap, and of others with about as much to score."""
        budget = int(call_tokens(self.model) * _LOGITS)
        of_gap: dict[int, list[int]] = defaultdict(list)
        for number in asked:
            of_gap[owners[number]].append(number)
        pieces = []
        for numbers in of_gap.values():
            most = max(1, budget // len(after[numbers[0]]))
            pieces += [numbers[start : start + most] for start in range(0, len(numbers), most)]
        part: list[list[int]] = []
        for piece in sorted(pieces, key=lambda numbers: (len(after[numbers[0]]), len(numbers))):
            padded = max(map(len, [*part, piece])) * len(after[piece[0]])
            if part and (len(part) + 1) * padded > budget:
                yield sorted(number for numbers in part for number in numbers)
                part = []
            part.append(piece)
        if part:
            yield sorted(number for numbers in part for number in numbers)

    def _candidates(self, drawn: Continuations, layouts: Sequence[Layout]) -> Tensor:
        """The rows to score: one of those that drew the same, of the gap's length where that is told."""
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

    def _columns(self, layout: Layout) -> int:
        """The tokens of a gap in the first draw: it goes on with fewer continuations from one to the next."""
        read = len(self.opening) + len(layout)
        return read + self.samples if self.reader.shares else self.samples * (read + self._longest(layout))

    def _longest(self, layout: Layout) -> int:
        return layout.gap_length if self.oracle_length else self.continuation_tokens

    def _answer(self, layout: Layout, found: _Best) -> ClozeAnswer:
        text = spelled(self.tokenizer, found.tokens, layout.passage)
        return ClozeAnswer(text, len(found.tokens), found.forward_passes, found.sequences, found.score)

    @torch.inference_mode()
    def _check_causal(self) -> None:
        token_ids = torch.tensor([[0, 2], [0, 3]], device=self.model.device)
        first = self.model(input_ids=token_ids).logits[:, 0]
        if not torch.allclose(first[0], first[1], atol=1e-3, rtol=1e-3):
            raise ModelError(
                f"{type(self.model).__name__} is no left-to-right model: what it says of a token depends on those after"
                " it. A BERT-like decoder needs is_decoder in its config"
            )


def _count(best: Sequence[_Best], owners: Tensor) -> None:
    """Take down a call of the model, with as many sequences for each gap as its number is among the owners."""
    for found, sequences in zip(best, owners.bincount(minlength=len(best)).tolist(), strict=True):
        found.forward_passes += sequences > 0
        found.sequences += sequences


def _opening(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """What the tokenizer puts before a text, or [CLS] where it puts nothing but has one."""
    encoding = tokenizer.backend_tokenizer.encode("a", add_special_tokens=True)
    special = encoding.special_tokens_mask
    opening = list(encoding.ids[: special.index(0)]) if 0 in special else []
    return opening or ([] if tokenizer.cls_token_id is None else [tokenizer.cls_token_id])


def _log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    """(rows,) of (rows,) tokens under (rows, vocabulary) logits."""
    return logits.gather(1, tokens[:, None]).squeeze(1) - logits.logsumexp(1)
