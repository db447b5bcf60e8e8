"""What a left-to-right model keeps of texts that go on in many ways.

The continuations of a text share what was read before them. `SharedMemory` keeps it once: all continuations of a text
stand in one row, one token after the other as they were drawn, and a mask lets each see the text and its own tokens
alone. This takes a model whose attention can be masked freely and whose positions can be given; for any other,
`CopiedMemory` has a row for each continuation, with a copy of what was read.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicLayer

from kermit.modeling.ragged import places_in_rows
from kermit.tasks.cloze.system import position_offset


class Reader:
    """Calls a model on what comes after what it has read.

    Args:
        model: the model.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self.offset = model, position_offset(model)
        self.accepted = inspect.signature(model.forward).parameters
        self.shares = self._can_share()

    def __call__(self, token_ids: Tensor, mask: Tensor, positions: Tensor, cache: Any, **more: Any) -> Any:
        """The model's output.

        Args:
            token_ids: (rows, tokens).
            mask: (rows, columns) bool, what is no padding, or (rows, 1, tokens, columns), what each token sees.
            positions: (rows, tokens), from 0.
            cache: what was read before; it may grow.
            more: further inputs.
        """
        inputs: dict[str, Any] = {"input_ids": token_ids, "use_cache": True, **more}
        inputs["attention_mask"] = mask.long() if mask.ndim == 2 else self._free_mask(mask)
        if "position_ids" in self.accepted:
            inputs["position_ids"] = positions + self.offset
        if cache is not None:
            inputs["past_key_values"] = cache
        return self.model(**inputs)

    @torch.inference_mode()
    def read(self, token_ids: Tensor, valid: Tensor) -> tuple[Tensor, Memory]:
        """Read texts.

        Args:
            token_ids: (texts, tokens), padded on the left.
            valid: (texts, tokens) bool.

        Returns:
            (texts, vocabulary) logits of what comes next, in float32, and the memory of each text.
        """
        positions = (valid.cumsum(1) - 1).clamp(min=0)
        last = {"logits_to_keep": 1} if "logits_to_keep" in self.accepted else {}
        out = self(token_ids, valid, positions, None, **last)
        rows = torch.arange(len(token_ids), device=token_ids.device)
        cache = out.past_key_values
        memory = SharedMemory(cache, rows, valid, valid.sum(1)) if self.shares else CopiedMemory(cache, valid)
        return out.logits[:, -1].float(), memory

    def _free_mask(self, seen: Tensor) -> Tensor:
        if self.model.config._attn_implementation == "sdpa":
            return seen
        weight = torch.zeros(seen.shape, dtype=self.model.dtype, device=seen.device)
        return weight.masked_fill_(~seen, torch.finfo(self.model.dtype).min)

    @torch.inference_mode()
    def _can_share(self) -> bool:
        """Whether the model says the same of two continuations in one row as of each alone."""
        if "position_ids" not in self.accepted or self.model.config._attn_implementation not in ("sdpa", "eager"):
            return False
        if any(buffer.ndim == 4 for buffer in self.model.buffers()):
            return False  # a mask of its own, by columns, as GPT-Neo has one
        tokens = torch.tensor([[0, 1, 2]], device=self.model.device)
        place = torch.arange(3, device=tokens.device)
        plain = self(tokens, torch.ones_like(tokens, dtype=torch.bool), place[None], None)
        if not all(type(layer) is DynamicLayer for layer in getattr(plain.past_key_values, "layers", [None])):
            return False  # one that forgets, or keeps a state that is no list of tokens
        first, third = tokens[:, [0, 0]], tokens[:, [1, 2]]
        seen = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]], dtype=torch.bool)
        try:
            twice = self(
                torch.cat([first, third], 1), seen[None, None].to(tokens.device), place[[0, 0, 1, 1]][None], None
            )
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
            return False  # it makes something else of the mask
        return torch.allclose(twice.logits[0, 2], plain.logits[0, 1], atol=1e-2, rtol=1e-2)


class Memory(Protocol):
    """What was read, for each of some continuations."""

    def select(self, rows: Tensor) -> Memory:
        """That of some continuations, the texts in the order they were in, each as often as named.

        It may share what it holds with what it was selected from: of the two, let one grow.
        """
        ...

    def grow(self, reader: Reader, tokens: Tensor) -> tuple[Tensor, Memory]:
        """Read one more token of each continuation; (rows, vocabulary) logits of what comes next. Uses itself up."""
        ...

    def look_ahead(self, reader: Reader, tokens: Tensor, there: Tensor) -> Tensor:
        """The logits after each of some more tokens. Uses itself up, but not what it was selected from.

        Args:
            reader: the model.
            tokens: (rows, tokens) of each continuation.
            there: (rows, tokens) bool, False at padding, which is on the right.

        Returns:
            (rows, tokens, vocabulary).
        """
        ...


@dataclass(frozen=True)
class CopiedMemory:
    """A row for each continuation.

    Args:
        cache: the model's keys and values, or another state.
        valid: (rows, length) bool, what was read; padding is on the left.
    """

    cache: Any
    valid: Tensor

    def select(self, rows: Tensor) -> CopiedMemory:
        """A cache of its own for some rows."""
        return CopiedMemory(_select(self.cache, rows), self.valid[rows])

    def grow(self, reader: Reader, tokens: Tensor) -> tuple[Tensor, CopiedMemory]:
        """One more column."""
        valid = torch.nn.functional.pad(self.valid, (0, 1), value=True)
        out = reader(tokens[:, None], valid, self.valid.sum(1, keepdim=True), self.cache)
        return out.logits[:, -1].float(), CopiedMemory(out.past_key_values, valid)

    def look_ahead(self, reader: Reader, tokens: Tensor, there: Tensor) -> Tensor:
        """Some more columns."""
        number = torch.arange(tokens.shape[1], device=tokens.device)
        positions = self.valid.sum(1, keepdim=True) + torch.where(there, number, 0)  # padding may have no position
        logits: Tensor = reader(tokens, torch.cat([self.valid, there], 1), positions, self.cache).logits
        return logits.float()


@dataclass(frozen=True)
class SharedMemory:
    """A row for each text, in which its continuations stand side by side.

    Args:
        cache: the model's keys and values, (texts, ..., columns, ...).
        text: (rows,) the text of each continuation, ascending.
        seen: (rows, columns) bool, what of its text's row a continuation sees.
        lengths: (rows,) how many tokens that is.
    """

    cache: Any
    text: Tensor
    seen: Tensor
    lengths: Tensor

    def select(self, rows: Tensor) -> SharedMemory:
        """The same cache, but for texts of which nothing goes on."""
        text = self.text[rows]
        goes_on = text.bincount(minlength=int(self.text[-1]) + 1) > 0
        cache = self.cache if bool(goes_on.all()) else _select(self.cache, goes_on.nonzero().flatten())
        return SharedMemory(cache, (goes_on.cumsum(0) - 1)[text], self.seen[rows], self.lengths[rows])

    def grow(self, reader: Reader, tokens: Tensor) -> tuple[Tensor, SharedMemory]:
        """As many columns as the text with the most continuations has of them."""
        out, place = self._call(reader, tokens[:, None], torch.ones_like(tokens[:, None], dtype=torch.bool), self.cache)
        logits = out.logits[self.text, place].float()
        own = torch.nn.functional.one_hot(place, out.logits.shape[1]).bool()
        seen = torch.cat([self.seen, own], 1)
        return logits, SharedMemory(out.past_key_values, self.text, seen, self.lengths + 1)

    def look_ahead(self, reader: Reader, tokens: Tensor, there: Tensor) -> Tensor:
        """Some more columns, of a cache that is left as it was."""
        out, place = self._call(reader, tokens, there, _fork(self.cache))
        logits: Tensor = out.logits.unflatten(1, (-1, tokens.shape[1]))
        return logits[self.text, place].float()

    def _call(self, reader: Reader, tokens: Tensor, there: Tensor, cache: Any) -> tuple[Any, Tensor]:
        """Read some tokens of each continuation; the output, and each one's place among those of its text."""
        width, columns = tokens.shape[1], self.seen.shape[1]
        texts = int(self.text[-1]) + 1
        place, most = places_in_rows(self.text, texts)
        number = torch.arange(width, device=tokens.device)
        positions = self.lengths[:, None] + torch.where(there, number, 0)
        at = (self.text, place)
        token_ids, all_positions = (
            values.new_zeros(texts, most, width).index_put(at, values).flatten(1) for values in (tokens, positions)
        )
        before = self.seen.new_zeros(texts, most, columns).index_put(at, self.seen)
        before = before[:, :, None].expand(-1, -1, width, -1).flatten(1, 2)
        column = torch.arange(most * width, device=tokens.device)
        own = (column[:, None] // width == column // width) & (column[:, None] >= column)
        mask = torch.cat([before, own.expand(texts, -1, -1)], 2)[:, None]
        return reader(token_ids, mask, all_positions, cache), place


def _fork(cache: Any) -> Any:
    """A cache that can grow by itself."""
    forked = copy.copy(cache)
    # such a layer replaces its tensors and never writes into them, so they need no copy
    forked.layers = [(copy.copy if isinstance(layer, DynamicLayer) else copy.deepcopy)(layer) for layer in cache.layers]
    return forked


def _select(cache: Any, rows: Tensor) -> Any:
    """A cache of its own for some rows, each as often as it is named."""
    chosen = _fork(cache)
    chosen.reorder_cache(rows)
    return chosen
