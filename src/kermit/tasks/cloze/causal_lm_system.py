"""Left-to-right language models: sample continuations, and choose the prefix that fits the rest best (section 4.3).

The model reads ``passage question cloze(left)`` once and samples continuations; every prefix of a continuation is a
candidate. A candidate's score is the log-probability of the candidate and cloze(right). It is at most that of the
candidate and the first token of cloze(right), which sampling already computes: candidates are scored in the order of
this bound, until no bound is above the best score.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import Cache, PreTrainedModel, PreTrainedTokenizerFast

from kermit.decoding import Sampling
from kermit.decoding.sampling import draw, uniform
from kermit.errors import DecodingError, ModelError
from kermit.tasks.cloze.layout import ClozeLayout
from kermit.tasks.cloze.system import ClozeAnswer, ClozeSystem, instance_seed, spelled

_TOGETHER = 16  # candidates scored per call


class CausalLMSystem(ClozeSystem):
    """A left-to-right language model that fills gaps.

    It samples `samples` continuations of `continuation_tokens` tokens per gap; the draws depend only on the seed and
    the instance's id.
    """

    name = "causal-lm"
    splits = False

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        *,
        samples: int = 20,
        continuation_tokens: int = 20,
        sampling: Sampling | None = None,
        oracle_length: bool = False,
        seed: int = 0,
    ) -> None:
        if samples < 1 or continuation_tokens < 1:
            raise DecodingError(
                f"samples and continuation_tokens must be at least 1, not {samples} and {continuation_tokens}"
            )
        super().__init__(model, tokenizer, oracle_length=oracle_length)
        self.samples, self.continuation_tokens, self.seed = samples, continuation_tokens, seed
        self.sampling = sampling or Sampling()
        self.opening = _opening(tokenizer)
        self._check_causal()

    @property
    def settings(self) -> Mapping[str, object]:
        """The settings that determine answers, besides the weights."""
        return {
            "samples": self.samples,
            "continuation_tokens": self.continuation_tokens,
            **asdict(self.sampling),
            "oracle_length": self.oracle_length,
            "seed": self.seed,
        }

    def fits(self, layout: ClozeLayout) -> bool:
        """Return whether the longest continuation and cloze(right) fit, and there is text to continue."""
        length = len(self.opening) + len(layout) + self._longest(layout)
        return len(self.opening) + len(layout.before) > 0 and (self.limit is None or length <= self.limit)

    @torch.inference_mode()
    def answer(self, layouts: Sequence[ClozeLayout]) -> list[ClozeAnswer]:
        """Answer one gap at a time: the continuations of one gap already fill a batch."""
        return [self._answer(layout) for layout in layouts]

    @torch.inference_mode()
    def read(self, layout: ClozeLayout) -> tuple[Tensor, Cache]:
        """Encode the text before a gap; return the logits of the next token (1, vocabulary), and the cache."""
        out = self.model(input_ids=self._ids([[*self.opening, *layout.before]]), use_cache=True)
        return out.logits[:, -1].float(), out.past_key_values

    @torch.inference_mode()
    def sample(self, layout: ClozeLayout, logits: Tensor, cache: Cache) -> tuple[Tensor, Tensor]:
        """Sample the continuations of a gap, (samples, length), given the result of `read`.

        Also returns (samples, length, vocabulary), the joint log-probabilities of the tokens so far and each next
        token.
        """
        seeds = np.full(self.samples, instance_seed(self.seed, layout.id))
        numbers = np.arange(self.samples)
        cache = _repeated(cache, self.samples)
        log_probs = logits.log_softmax(1).expand(self.samples, -1)
        tokens, after = [], []
        for step in range(self._longest(layout)):
            barred = self.never if step or layout.joined else self.never | self.continues
            scores = log_probs.masked_fill(barred, -torch.inf).cpu().numpy()
            token = self._ids(draw(scores, self.sampling, uniform(seeds, step, numbers)))[:, None]
            out = self.model(input_ids=token, past_key_values=cache, use_cache=True)
            log_probs = log_probs.gather(1, token) + out.logits[:, -1].float().log_softmax(1)
            tokens.append(token)
            after.append(log_probs)
        return torch.cat(tokens, 1), torch.stack(after, 1)

    def _answer(self, layout: ClozeLayout) -> ClozeAnswer:
        logits, cache = self.read(layout)
        tokens, after = self.sample(layout, logits, cache)
        length = tokens.shape[1]
        passes, sequences = 1 + length, 1 + tokens.numel()
        # log-probability of a candidate and the first token of cloze(right), if there is one
        bounds = after[..., layout.after[0]] if layout.after else after.logsumexp(2)
        lengths = [length] if self.oracle_length else range(1, length + 1)
        candidates = {
            tuple(row[:size]): bound[size - 1]
            for row, bound in zip(tokens.tolist(), bounds.tolist(), strict=True)
            for size in lengths
        }
        ordered = sorted(candidates, key=lambda candidate: candidates[candidate], reverse=True)
        best, score = ordered[0], candidates[ordered[0]] if len(layout.after) < 2 else -torch.inf
        for start in range(0, len(ordered), _TOGETHER):
            part = [candidate for candidate in ordered[start : start + _TOGETHER] if candidates[candidate] > score]
            if not part:
                break
            found = self._scores(part, layout.after, logits, cache)
            passes, sequences = passes + 1, sequences + len(part)
            if max(found) > score:
                score = max(found)
                best = part[found.index(score)]
        text = spelled(self.tokenizer, best, layout.passage)
        return ClozeAnswer(text, len(best), passes, sequences, score)

    def _scores(
        self, candidates: Sequence[Sequence[int]], after: Sequence[int], logits: Tensor, cache: Cache
    ) -> list[float]:
        """Return the joint log-probability of each candidate and cloze(right)."""
        rows = [self._ids([*candidate, *after]) for candidate in candidates]
        tokens = pad_sequence(rows, batch_first=True)
        cache = _repeated(cache, len(rows))
        out = self.model(input_ids=tokens[:, :-1], past_key_values=cache, use_cache=True)
        every = torch.cat([logits.expand(len(rows), -1)[:, None], out.logits.float()], 1).log_softmax(2)
        found = every.gather(2, tokens[..., None]).squeeze(2)
        real = torch.arange(tokens.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
        return [float(total) for total in torch.where(real.to(found.device), found, 0.0).sum(1)]

    def _ids(self, values: object) -> Tensor:
        return torch.as_tensor(values, device=self.model.device)

    def _longest(self, layout: ClozeLayout) -> int:
        return layout.gap_length if self.oracle_length else self.continuation_tokens

    @torch.inference_mode()
    def _check_causal(self) -> None:
        first = self.model(input_ids=self._ids([[0, 2], [0, 3]])).logits[:, 0]
        if not torch.allclose(first[0], first[1], atol=1e-3, rtol=1e-3):
            raise ModelError(
                f"{type(self.model).__name__} is not a left-to-right model: its predictions depend on later tokens."
                " Choose another model; a BERT-like decoder needs is_decoder in its config"
            )


def _repeated(cache: Cache, rows: int) -> Cache:
    """Copy the cache of one text for several continuations."""
    copied = copy.deepcopy(cache)
    copied.batch_repeat_interleave(rows)
    return copied


def _opening(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Return the tokens that the tokenizer adds before a text; if none, [CLS] if it has one."""
    encoding = tokenizer.backend_tokenizer.encode("a", add_special_tokens=True)
    special = encoding.special_tokens_mask
    opening = list(encoding.ids[: special.index(0)]) if 0 in special else []
    return opening or ([] if tokenizer.cls_token_id is None else [tokenizer.cls_token_id])
