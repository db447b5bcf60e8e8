"""The project's own trunk: a small bidirectional encoder that can cache the given text.

Pre-norm layers without biases, rotary positions that may be fractions, a gated MLP, and torch's attention. It differs
from the encoders of transformers in three ways: padding costs nothing outside attention, because all other layers see a
flat list of real tokens; the keys and values of a text can be kept (`EncoderOutput.cache`) for tokens that are encoded
later; and it exports to ONNX unchanged.

With `given_layers`, given tokens pass the first layers, and inserted tokens the others, in which they attend to the
final states of the given tokens: an encoder and a decoder, as in the Insertion Transformer, in one stack. Without it,
all tokens pass all layers. The module knows no canvas: `kermit.modeling.trunk` gives it tokens, positions and a mask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedConfig, PreTrainedModel, initialization
from transformers.modeling_outputs import ModelOutput

LayerCache = tuple[tuple[Tensor, Tensor], ...]
"""Keys and values of layers, each (batch, heads, length, head width)."""

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of tokens, each (tokens, 1, half the head width)."""


class EncoderConfig(PreTrainedConfig):  # type: ignore[misc]
    """The configuration of `Encoder`.

    Args:
        given_layers: number of first layers, which only given tokens pass; inserted tokens pass the others. 0: all
            tokens pass all layers.
        num_attention_heads: heads per layer; each must have an even width.
        intermediate_size: width of the gated MLP.
        rotary_base: the slowest rotary frequency is about 1 / rotary_base radians per position.
        dropout: rate on the embedding and on the output of each attention and MLP block.
        initializer_range: standard deviation of new weights; None for hidden_size ** -0.5.
    """

    model_type = "kermit_encoder"

    vocab_size: int = 8000
    hidden_size: int = 256
    num_hidden_layers: int = 6
    given_layers: int = 0
    num_attention_heads: int = 4
    intermediate_size: int = 768
    rotary_base: float = 10000.0
    dropout: float = 0.0
    norm_eps: float = 1e-5
    initializer_range: float | None = None
    pad_token_id: int | None = 0
    cls_token_id: int | None = 1
    sep_token_id: int | None = 2

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.hidden_size % (2 * self.num_attention_heads):
            raise ValueError(
                f"hidden_size must be a multiple of twice num_attention_heads ({2 * self.num_attention_heads}),"
                f" not {self.hidden_size}"
            )
        if not 0 <= self.given_layers < self.num_hidden_layers:
            raise ValueError(
                f"given_layers must be from 0 to num_hidden_layers - 1 ({self.num_hidden_layers - 1}), not"
                f" {self.given_layers}"
            )


@dataclass
class EncoderOutput(ModelOutput):  # type: ignore[misc]
    """Hidden states, zero at padding, and with `use_cache` the keys and values that later tokens attend to."""

    last_hidden_state: Tensor | None = None
    cache: LayerCache | None = None


@dataclass(frozen=True)
class _Places:
    """The places of a flat list of tokens in padded rows, as row * length + column; `index` is None without padding."""

    batch: int
    length: int
    index: Tensor | None

    def flat(self, padded: Tensor) -> Tensor:
        """Map (batch, length, ...) to (tokens, ...)."""
        flat = padded.flatten(0, 1)
        return flat if self.index is None else flat[self.index]

    def padded(self, flat: Tensor) -> Tensor:
        """Map (tokens, ...) to (batch, length, ...), zero at padding."""
        if self.index is not None:
            flat = flat.new_zeros(self.batch * self.length, *flat.shape[1:]).index_copy(0, self.index, flat)
        return flat.view(self.batch, self.length, *flat.shape[1:])


@dataclass(frozen=True)
class _Group:
    """Rows that attention processes together.

    Args:
        queries: the places of the tokens that pass the layer.
        keys: the places of the tokens that they attend to: those beside the layer, then their own.
        mask: (rows, 1, queries, keys) bool, or None.
        passing: number of tokens that pass the layer.
        beside: number of tokens beside it.
    """

    queries: _Places
    keys: _Places
    mask: Tensor | None
    passing: int
    beside: int = 0


@dataclass(frozen=True)
class _SortedRows:
    """Rows in the order of their lengths, in groups of similar length, so that attention sees little padding.

    Args:
        order: (batch,) the rows, shortest first.
        edges: (groups + 1,) where the groups begin and end in `order`.
        places: the places of the real tokens, row by row in that order.
    """

    order: Tensor
    edges: Tensor
    places: _Places

    @classmethod
    def of(cls, valid: Tensor, *, together: bool) -> _SortedRows:
        """Sort rows by their real tokens, (batch, length) bool; or leave them as they are, `together` in one group."""
        batch, length = valid.shape
        counts, edges = valid.sum(1), [0]
        order = torch.arange(batch, device=valid.device) if together else counts.argsort(stable=True)
        lengths = counts[order]
        while edges[-1] < batch:
            longest = math.inf if together else max(_SPREAD * float(lengths[edges[-1]]), _SHORT)
            edges.append(int((lengths <= longest).sum()))
        row, column = valid[order].nonzero(as_tuple=True)
        places = _Places(batch, length, order[row] * length + column)
        return cls(order, torch.tensor(edges, device=valid.device), places)

    def groups(self, passing: Tensor, beside: Tensor, mask: Tensor | None) -> list[_Group]:
        """Return the groups for the tokens that pass a layer, and those beside it; both (chosen,) ascending indices.

        `mask` is (batch, 1, length or 1, length) bool. Columns without a query or a key are cut off.
        """
        assert self.places.index is not None
        length = self.places.length
        rank = torch.empty_like(self.order).index_copy(0, self.order, torch.arange(len(self.order)).to(self.order))
        sides = []
        for chosen in (beside, passing):
            index = self.places.index[chosen]
            row = rank[index // length]
            sides.append((row, index % length, torch.searchsorted(row, self.edges).tolist()))
        found = []
        for number, (first, last) in enumerate(pairwise(self.edges.tolist())):
            parts = [[plane[slice(*edges[number : number + 2])] for plane in planes] for *planes, edges in sides]
            row, column = (torch.cat(planes) for planes in zip(*parts, strict=True))
            keys, seen = _cut(row - first, column, last - first)
            queries, asking = _cut(parts[1][0] - first, parts[1][1], last - first)
            of_group = None
            if mask is not None:
                of_group = mask[self.order[first:last], :, :, seen]
                of_group = of_group if mask.shape[2] == 1 else of_group[:, :, asking]
            found.append(_Group(queries, keys, of_group, len(parts[1][0]), len(parts[0][0])))
        return found


_SPREAD, _SHORT = 1.5, 8
"""The longest row of a group has at most this many times the tokens of its shortest row, or this many tokens."""


def _cut(row: Tensor, column: Tensor, batch: int) -> tuple[_Places, slice]:
    """Return the places of tokens in rows cut to the columns that hold any, and these columns."""
    start, stop = (int(column.min()), int(column.max()) + 1) if len(column) else (0, 0)
    return _Places(batch, stop - start, row * (stop - start) + column - start), slice(start, stop)


@dataclass(frozen=True)
class _Tokens:
    """Some of the real tokens of rows: (tokens, hidden) states and rotations."""

    hidden: Tensor
    rotation: Rotation

    def select(self, chosen: Tensor) -> _Tokens:
        """Return the tokens at (chosen,) indices."""
        cos, sin = self.rotation
        return _Tokens(self.hidden[chosen], (cos[chosen], sin[chosen]))


class _Adding(nn.Linear):
    """A linear layer whose output is added to the residual stream."""


class _Attention(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.out = _Adding(config.hidden_size, config.hidden_size, bias=False)

    def forward(
        self, tokens: _Tokens, groups: list[_Group], past: tuple[Tensor, Tensor] | None, beside: _Tokens | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the update of the tokens (tokens, hidden), and the keys and values of the last group."""
        states = self.qkv(tokens.hidden)
        query, key, value = states.unflatten(1, (3, self.heads, -1)).unbind(1)
        query, key = _rotated(query, tokens.rotation), _rotated(key, tokens.rotation)
        passing = [group.passing for group in groups]
        sides = [[torch.split(part, passing) for part in (key, value.to(key.dtype))]]
        if beside is not None:
            others = functional.linear(beside.hidden, self.qkv.weight[tokens.hidden.shape[1] :])
            key, value = others.view(len(others), 2, self.heads, query.shape[2]).unbind(1)
            key = _rotated(key, beside.rotation)
            counts = [group.beside for group in groups]
            sides.insert(0, [torch.split(part, counts) for part in (key, value.to(key.dtype))])
        found = []
        for number, (group, part) in enumerate(zip(groups, torch.split(query, passing), strict=True)):
            key, value = (
                group.keys.padded(torch.cat([side[kind][number] for side in sides])).transpose(1, 2) for kind in (0, 1)
            )
            if past is not None:
                key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
            padded = group.queries.padded(part).transpose(1, 2)
            attended = functional.scaled_dot_product_attention(padded, key, value, attn_mask=group.mask)
            found.append(group.queries.flat(attended.transpose(1, 2).flatten(2)))
        return self.out(torch.cat(found).to(states.dtype)), (key, value)


class _Layer(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.attention_norm = nn.LayerNorm(width, eps=config.norm_eps, bias=False)
        self.attention = _Attention(config)
        self.mlp_norm = nn.LayerNorm(width, eps=config.norm_eps, bias=False)
        self.up = nn.Linear(width, 2 * inner, bias=False)
        self.down = _Adding(inner, width, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        tokens: _Tokens,
        groups: list[_Group],
        past: tuple[Tensor, Tensor] | None = None,
        beside: _Tokens | None = None,
    ) -> tuple[_Tokens, tuple[Tensor, Tensor]]:
        """Return the tokens with their next states, and the keys and values of the last group.

        Tokens `beside` those of the layer are attended to but do not pass it.
        """
        norm, hidden = self.attention_norm, tokens.hidden
        normed = None if beside is None else replace(beside, hidden=norm(beside.hidden))
        attended, kept = self.attention(replace(tokens, hidden=norm(hidden)), groups, past, normed)
        hidden = hidden + self.dropout(attended)
        gate, value = self.up(self.mlp_norm(hidden)).chunk(2, -1)
        hidden = hidden + self.dropout(self.down(functional.gelu(gate, approximate="tanh") * value))
        return replace(tokens, hidden=hidden), kept


class Encoder(PreTrainedModel):  # type: ignore[misc]
    """Encodes tokens, given their positions and an attention mask."""

    config_class = EncoderConfig
    base_model_prefix = "encoder"
    _input_embed_layer = "embeddings"
    _supports_sdpa = True

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embedding_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        std = self.config.initializer_range or self.config.hidden_size**-0.5
        if isinstance(module, _Adding):  # the residual stream grows with depth
            std /= math.sqrt(2 * self.config.num_hidden_layers)
        if isinstance(module, nn.Linear | nn.Embedding):
            initialization.normal_(module.weight, std=std)
        elif isinstance(module, nn.LayerNorm):
            initialization.ones_(module.weight)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        *,
        valid: Tensor | None = None,
        given: Tensor | None = None,
        past: LayerCache | None = None,
        use_cache: bool = False,
        **kwargs: Any,
    ) -> EncoderOutput:
        """Encode padded rows.

        Args:
            attention_mask: (batch, length), 0 at padding; or (batch, 1, length, keys) bool, the keys that each token
                attends to, those of `past` first.
            position_ids: (batch, length), fractions allowed; 0, 1, 2, ... by default.
            valid: (batch, length) bool, the real tokens; required with a four-dimensional mask.
            given: (batch, length) bool, the given tokens, all by default; used only with `given_layers`.
            use_cache: whether to return the keys and values, including those of `past`.
            kwargs: ignored; other trunks take more arguments.
        """
        embedded = self.embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        batch, length = embedded.shape[:2]
        mask = attention_mask
        if mask is not None and mask.dim() == 2:
            valid = mask.bool() if valid is None else valid
            mask = mask.bool()[:, None, None, :]
        padded = valid is not None and not bool(valid.all())
        rows = None
        if padded or (self.config.given_layers and past is None):
            valid = torch.ones(batch, length, dtype=torch.bool, device=embedded.device) if valid is None else valid
            # a cache has the shape of the rows
            rows = _SortedRows.of(valid, together=use_cache or past is not None)
        places = _Places(batch, length, None) if rows is None else rows.places
        if position_ids is None:
            position_ids = torch.arange(length, device=embedded.device).expand(batch, length)
        hidden = self.dropout(self.embedding_norm(places.flat(embedded)))
        tokens = _Tokens(hidden, self._rotation(places.flat(position_ids)))
        cache: list[tuple[Tensor, Tensor]] = []
        if self.config.given_layers and rows is not None and past is None:
            given = valid if given is None else given
            assert given is not None
            hidden, cache = self._read_apart(tokens, places.flat(given), rows, mask)
        else:
            every = torch.arange(len(hidden), device=hidden.device)
            whole = [_Group(places, places, mask, len(hidden))]
            groups = whole if rows is None or past is not None or use_cache else rows.groups(every, every[:0], mask)
            for number, layer in enumerate(self.layers[self.config.given_layers :]):
                tokens, kept = layer(tokens, groups, None if past is None else past[number])
                cache.append(kept)
            hidden = tokens.hidden
        return EncoderOutput(places.padded(self.norm(hidden)), tuple(cache) if use_cache else None)

    def _read_apart(
        self, tokens: _Tokens, given: Tensor, rows: _SortedRows, mask: Tensor | None
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Encode given tokens with the first layers, others with the rest; return (tokens, hidden) and a cache.

        Given tokens stand at the start of the rows and inserted ones behind them.
        """
        first, second = given.nonzero().flatten(), (~given).nonzero().flatten()
        read, inserted = tokens.select(first), tokens.select(second)
        groups = rows.groups(first, first[:0], mask)
        for layer in self.layers[: self.config.given_layers]:
            read, _ = layer(read, groups)
        groups, cache = rows.groups(second, first, mask), []
        for layer in self.layers[self.config.given_layers :]:
            inserted, kept = layer(inserted, groups, None, read)
            cache.append(kept)
        hidden = torch.zeros_like(tokens.hidden).index_copy(0, first, read.hidden)
        return hidden.index_copy(0, second, inserted.hidden), cache

    def _rotation(self, positions: Tensor) -> Rotation:
        """Return the rotation at (tokens,) positions, in float32."""
        half = self.config.hidden_size // self.config.num_attention_heads // 2
        exponents = torch.arange(half, device=positions.device, dtype=torch.float32) / half
        angles = positions.float()[:, None, None] * self.config.rotary_base**-exponents
        return angles.cos(), angles.sin()


def _rotated(states: Tensor, rotation: Rotation) -> Tensor:
    """Rotate (tokens, heads, head width), the first half paired with the second; in float32 or better."""
    cos, sin = rotation
    first, second = states.to(torch.promote_types(states.dtype, cos.dtype)).chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
