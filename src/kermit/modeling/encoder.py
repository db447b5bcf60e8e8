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
    """The positions of the flat list of real tokens in the padded rows; `index` is None without padding."""

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

    def select(self, chosen: Tensor) -> _Places:
        """Return the places of the tokens at (chosen,) indices."""
        return replace(self, index=chosen if self.index is None else self.index[chosen])

    def columns(self) -> Tensor:
        """Return the column of every token in its row."""
        assert self.index is not None
        return self.index % self.length

    def window(self, start: int, stop: int) -> _Places:
        """Return the places in rows cut to the columns from start to stop, which hold all of these tokens."""
        assert self.index is not None
        width = stop - start
        return _Places(self.batch, width, self.index // self.length * width + self.columns() - start)


@dataclass(frozen=True)
class _Tokens:
    """Some of the real tokens of rows: (tokens, hidden) states, rotations, and places as keys and as queries."""

    hidden: Tensor
    rotation: Rotation
    keys: _Places
    queries: _Places

    def select(self, chosen: Tensor) -> _Tokens:
        """Return the tokens at (chosen,) indices."""
        cos, sin = self.rotation
        rotation = cos[chosen], sin[chosen]
        return _Tokens(self.hidden[chosen], rotation, self.keys.select(chosen), self.queries.select(chosen))


class _Adding(nn.Linear):
    """A linear layer whose output is added to the residual stream."""


class _Attention(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.out = _Adding(config.hidden_size, config.hidden_size, bias=False)

    def forward(
        self, tokens: _Tokens, mask: Tensor | None, past: tuple[Tensor, Tensor] | None, beside: _Tokens | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the update of the tokens (tokens, hidden), and the keys and values that they may attend to."""
        states, queries, keys = self.qkv(tokens.hidden), tokens.queries, tokens.keys
        query, key, value = states.unflatten(1, (3, self.heads, -1)).unbind(1)
        query, key = _rotated(query, tokens.rotation), _rotated(key, tokens.rotation)
        query = queries.padded(query).transpose(1, 2)
        key, value = (keys.padded(part).transpose(1, 2) for part in (key, value.to(key.dtype)))
        if beside is not None:
            others = functional.linear(beside.hidden, self.qkv.weight[tokens.hidden.shape[1] :])
            other_key, other_value = others.view(len(others), 2, self.heads, -1).unbind(1)
            key = key + beside.keys.padded(_rotated(other_key, beside.rotation)).transpose(1, 2)
            value = value + beside.keys.padded(other_value.to(value.dtype)).transpose(1, 2)
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.out(queries.flat(found.transpose(1, 2).flatten(2)).to(states.dtype)), (key, value)


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
        mask: Tensor | None,
        past: tuple[Tensor, Tensor] | None = None,
        beside: _Tokens | None = None,
    ) -> tuple[_Tokens, tuple[Tensor, Tensor]]:
        """Return the tokens with their next states, and this layer's keys and values.

        `mask` is (batch, 1, length, keys) bool. Tokens `beside` those of the layer are attended to but do not pass it.
        """
        norm, hidden = self.attention_norm, tokens.hidden
        normed = None if beside is None else replace(beside, hidden=norm(beside.hidden))
        attended, kept = self.attention(replace(tokens, hidden=norm(hidden)), mask, past, normed)
        hidden = hidden + self.dropout(attended)
        gate, value = self.up(self.mlp_norm(hidden)).chunk(2, -1)
        hidden = hidden + self.dropout(self.down(functional.gelu(gate, approximate="tanh") * value))
        return replace(tokens, hidden=hidden), kept


class Encoder(PreTrainedModel):  # type: ignore[misc]
    """Encodes tokens, given their positions and an attention mask."""

    config_class = EncoderConfig
    base_model_prefix = "encoder"
    _supports_sdpa = True

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embedding_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the word embedding."""
        return self.embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the word embedding."""
        self.embeddings = value

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
        index = None if valid is None else valid.flatten().nonzero().flatten()
        places = _Places(batch, length, None if index is None or len(index) == batch * length else index)
        if position_ids is None:
            position_ids = torch.arange(length, device=embedded.device).expand(batch, length)
        hidden = self.dropout(self.embedding_norm(places.flat(embedded)))
        tokens = _Tokens(hidden, self._rotation(places.flat(position_ids)), places, places)
        if self.config.given_layers:
            given = torch.ones(batch, length, dtype=torch.bool, device=hidden.device) if given is None else given
            hidden, cache = self._read_apart(tokens, places.flat(given), mask, past)
        else:
            cache = []
            for number, layer in enumerate(self.layers):
                tokens, kept = layer(tokens, mask, None if past is None else past[number])
                cache.append(kept)
            hidden = tokens.hidden
        return EncoderOutput(places.padded(self.norm(hidden)), tuple(cache) if use_cache else None)

    def _read_apart(
        self, tokens: _Tokens, given: Tensor, mask: Tensor | None, past: LayerCache | None
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Encode given tokens with the first layers, others with the rest; return (tokens, hidden) and a cache.

        Given tokens stand at the start of the rows and inserted ones behind them, so attention skips the columns that
        hold no query or no key.
        """
        first, second = given.nonzero().flatten(), (~given).nonzero().flatten()
        read, inserted, cache = tokens.select(first), tokens.select(second), []
        beside = None
        if len(first):  # never together with a cache: given tokens are encoded first
            stop = int(read.keys.columns().max()) + 1
            places = read.keys.window(0, stop)
            near, seen = replace(read, keys=places, queries=places), _cut(mask, slice(stop), slice(stop))
            for layer in self.layers[: self.config.given_layers]:
                near, _ = layer(near, seen)
            beside = read = replace(read, hidden=near.hidden)
        start = int(inserted.keys.columns().min()) if len(second) else 0
        inserted = replace(inserted, queries=inserted.keys.window(start, inserted.keys.length))
        seen = _cut(mask, slice(start, None), slice(None))
        for number, layer in enumerate(self.layers[self.config.given_layers :]):
            inserted, kept = layer(inserted, seen, None if past is None else past[number], beside)
            cache.append(kept)
        hidden = torch.zeros_like(tokens.hidden).index_copy(0, first, read.hidden)
        return hidden.index_copy(0, second, inserted.hidden), cache

    def _rotation(self, positions: Tensor) -> Rotation:
        """Return the rotation at (tokens,) positions, in float32."""
        half = self.config.hidden_size // self.config.num_attention_heads // 2
        exponents = torch.arange(half, device=positions.device, dtype=torch.float32) / half
        angles = positions.float()[:, None, None] * self.config.rotary_base**-exponents
        return angles.cos(), angles.sin()


def _cut(mask: Tensor | None, queries: slice, keys: slice) -> Tensor | None:
    """Return the columns of a (batch, 1, queries, keys) mask; a mask of one query is the same for all."""
    if mask is None:
        return None
    return mask[..., keys] if mask.shape[2] == 1 else mask[:, :, queries, keys]


def _rotated(states: Tensor, rotation: Rotation) -> Tensor:
    """Rotate (tokens, heads, head width), the first half paired with the second; in float32 or better."""
    cos, sin = rotation
    first, second = states.to(torch.promote_types(states.dtype, cos.dtype)).chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
