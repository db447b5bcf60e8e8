"""`KermitModel`: any bidirectional encoder of transformers, fed with canvases.

Every trunk gets segments and restarting positions. A trunk with two or more token types uses them for segments; for
other trunks a segment embedding is added to the word embeddings. Trunks that number positions from their padding index
(RoBERTa, MPNet) get the offset they expect. Trunks with only relative positions (DeBERTa) ignore the positions they are
given: for them Y continues after X. A trunk with a causal mask is refused.

With cached context a trunk reads rows (`kermit.canvas.context`): it must respect a mask per token, and use the
positions it is given, including fractions. A learned table of positions is interpolated, and layers with a sliding
window see the part of the mask that is near in the text. All this is tested when the model is created; trunks that
count places in the row instead (MPNet, DeBERTa) are refused.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel, initialization
from transformers.modeling_outputs import BaseModelOutput

from kermit.canvas.context import ContextRows
from kermit.errors import ModelError, in_a_line
from kermit.modeling.config import KermitConfig
from kermit.modeling.copying import Copying
from kermit.modeling.encoder import Encoder, EncoderOutput, LayerCache
from kermit.modeling.tensors import RowTensors


class KermitPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    """Base class of all KERMIT models."""

    config_class = KermitConfig
    base_model_prefix = "kermit"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Copying):  # transformers initialises only its own layers
            initialization.zeros_(module.bias)

    @property
    def trunk(self) -> PreTrainedModel:
        """The encoder inside."""
        return self.base_model.encoder

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the trunk's word embedding."""
        return self.trunk.get_input_embeddings()  # type: ignore[no-any-return]

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the trunk's word embedding."""
        self.trunk.set_input_embeddings(value)

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *arguments: Any, **settings: Any) -> Any:
        """Resize the embedding, and the insertion head's bias with it (0 for new tokens)."""
        embedding = super().resize_token_embeddings(new_num_tokens, *arguments, **settings)
        head = getattr(self, "head", None)
        if head is not None:
            old, rows = head.bias, embedding.num_embeddings
            bias = nn.functional.pad(old.detach()[:rows], (0, max(0, rows - len(old))))
            head.bias = nn.Parameter(bias, requires_grad=old.requires_grad)
        return embedding


class KermitModel(KermitPreTrainedModel):
    """The trunk, which encodes canvases."""

    _keys_to_ignore_on_load_unexpected = (r"^(head|pooler|classifier|next_sentence)\.",)

    def __init__(self, config: KermitConfig) -> None:
        super().__init__(config)
        if getattr(config.trunk_config, "is_decoder", False):
            raise ModelError(
                "the trunk's config sets is_decoder, a causal mask, but KERMIT must see the whole canvas; unset it"
            )
        if getattr(config.trunk_config, "given_layers", 0) and not config.cached_context:
            raise ModelError("a trunk with given_layers needs cached_context: true")
        # in the dtype of the whole model, whatever dtype the trunk's checkpoint has
        self.encoder = AutoModel.from_config(config.trunk_config, dtype=torch.get_default_dtype())
        if getattr(self.encoder, "pooler", None) is not None:
            self.encoder.pooler = None
        refuse_unfit(self.encoder)
        accepted = inspect.signature(self.encoder.forward).parameters
        types = getattr(config.trunk_config, "type_vocab_size", 0)
        has_types = "token_type_ids" in accepted and types >= 2
        width = self.encoder.get_input_embeddings().embedding_dim
        self.segment_embeddings = None if has_types else nn.Embedding(2, width)
        self.order_embeddings = nn.Embedding(2, width) if config.cached_context else None
        self.position_offset: int = first_position(self.encoder)
        self._restarts: bool = config.positions == "restart"
        self.post_init()

    @property
    def max_positions(self) -> int | None:
        """Number of positions of the trunk; None if there is no limit."""
        limit: int | None = getattr(self.config.trunk_config, "max_position_embeddings", None)
        return None if limit is None else limit - self.position_offset

    def position_ids(self, segment_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the positions of canvas tokens, (batch, length), according to the config."""
        positions = torch.arange(segment_ids.shape[1], device=segment_ids.device).expand_as(segment_ids)
        if self._restarts:
            x_length = ((segment_ids == 0) & attention_mask).sum(1, keepdim=True)
            positions = positions - segment_ids * (x_length - 1)
        return positions * attention_mask + self.position_offset

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, segment_ids: Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutput:
        """Encode canvases.

        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), False or 0 at padding; None for no padding.
            segment_ids: (batch, length), 0 for X and 1 for Y; None for X only. ``token_type_ids`` is an alias.
            kwargs: passed on to the trunk.
        """
        token_types = kwargs.pop("token_type_ids", None)
        segment_ids = segment_ids if segment_ids is not None else token_types
        segment_ids = torch.zeros_like(input_ids) if segment_ids is None else segment_ids
        mask = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        positions = self.position_ids(segment_ids, mask)
        if self.segment_embeddings is None:
            inputs: dict[str, Tensor] = {"input_ids": input_ids, "token_type_ids": segment_ids}
        else:
            embedded = self.get_input_embeddings()(input_ids)
            inputs = {"inputs_embeds": embedded + self.segment_embeddings(segment_ids)}
        seen = None if attention_mask is None else mask.long()
        return self.encoder(**inputs, attention_mask=seen, position_ids=positions, **kwargs)

    @property
    def caches(self) -> bool:
        """Whether the trunk can cache the given text."""
        return isinstance(self.encoder, Encoder)

    def read(
        self, rows: RowTensors, *, past: LayerCache | None = None, use_cache: bool = False, **kwargs: Any
    ) -> EncoderOutput:
        """Encode rows of cached context.

        Args:
            rows: the rows.
            past: the cache of the tokens encoded before; only for trunks that cache.
            use_cache: whether to return a cache, including that of `past`.
            kwargs: passed on to the trunk.

        Raises:
            ModelError: a row needs more positions than the trunk has.
        """
        assert self.order_embeddings is not None
        embedded = self.get_input_embeddings()(rows.token_ids)
        in_block = (rows.orders > 0)[..., None]
        embedded = embedded + torch.where(in_block, self.order_embeddings((rows.orders - 1).clamp(min=0)), 0)
        positions, table = rows.positions, position_table(self.encoder)
        inputs: dict[str, Any] = {}
        if self.segment_embeddings is None:
            inputs["token_type_ids"] = rows.segment_ids
        else:
            embedded = embedded + self.segment_embeddings(rows.segment_ids)
        if table is not None:
            positions, between = self._between_rows_of(table, positions)
            embedded = embedded + between
        mask, valid = rows.mask[:, None], rows.token_ids != self.config.pad_token_id
        if self.caches:
            inputs |= {"attention_mask": mask, "valid": valid, "given": rows.orders == 0}
            inputs |= {"past": past, "use_cache": use_cache}
        else:
            inputs["attention_mask"] = added(mask, embedded)
        trunk, windows = self.config.trunk_config, "sliding_attention"
        if windows in (getattr(trunk, "layer_types", None) or ()):  # transformers ignores the window if a mask is given
            within = near(rows.segment_ids, rows.positions, rows.orders, rows.mask, trunk.sliding_window)
            inputs["attention_mask"] = {
                "full_attention": inputs["attention_mask"],
                windows: added(within[:, None], embedded),
            }
        found = self.encoder(inputs_embeds=embedded, position_ids=positions, **inputs, **kwargs)
        return found if self.caches else EncoderOutput(found[0])

    def _between_rows_of(self, table: nn.Embedding, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return whole positions for a table, and what to add to the token embeddings to interpolate fractions."""
        limit = self.max_positions or table.num_embeddings - self.position_offset
        if bool((positions > limit - 1).any()):
            needed = math.ceil(float(positions.max())) + 1
            raise ModelError(
                f"a canvas needs {needed} positions, but the trunk has {limit}; shorten the text, or leave fewer blanks"
            )
        return between(table, positions, self.position_offset, limit)


def between(table: nn.Embedding, positions: Tensor, offset: int, limit: int) -> tuple[Tensor, Tensor]:
    """Return whole positions for a table, and what to add to the token embeddings to interpolate fractions."""
    whole = positions.floor()
    first = whole.long() + offset
    share = (positions - whole)[..., None].to(table.weight.dtype)
    return first, share * (table((first + 1).clamp(max=offset + limit - 1)) - table(first))


def added(mask: Tensor, embedded: Tensor) -> Tensor:
    """Return a mask in the form that encoders of transformers add to attention scores."""
    return torch.where(mask, 0.0, torch.finfo(embedded.dtype).min).to(embedded.dtype)


def near(segment_ids: Tensor, positions: Tensor, orders: Tensor, mask: Tensor, window: int) -> Tensor:
    """Return the tokens that each token sees at most `window` places away, Y after X; (batch, length, length) bool.

    With nothing given, Y follows X in the canvas; otherwise Y follows the given part of X.
    """
    given = (orders == 0)[:, None]
    nothing_given = ~(mask & given).any(2, keepdim=True)  # irrelevant for padding, which sees only itself
    of_x = mask & (segment_ids == 0)[:, None] & (given | nothing_given)
    end_of_x = torch.where(of_x, positions[:, None], 0.0).amax(2)
    places = positions + segment_ids * end_of_x
    return mask & ((places[:, :, None] - places[:, None]).abs() <= window)


def refuse_unfit(encoder: PreTrainedModel) -> None:
    """Raise a ModelError if a model's class or config shows that it cannot be a trunk."""
    accepted = inspect.signature(encoder.forward).parameters
    if missing := [name for name in ("attention_mask", "inputs_embeds", "position_ids") if name not in accepted]:
        raise _refusal(encoder, f"its forward takes no {', '.join(missing)}")
    if any(getattr(module, "is_causal", False) for module in encoder.modules()):
        raise _refusal(encoder, "its attention has a causal mask, but KERMIT must see the whole canvas")
    try:
        table = encoder.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        table = None
    if not isinstance(table, nn.Embedding):
        raise _refusal(encoder, "its word embedding is not a plain table")


def refuse_unfit_at_work(model: KermitModel) -> None:
    """Run a new model on short canvases, and on a long one if that is cheap; raise a ModelError if it fails.

    With cached context, also check that it respects the mask and positions of short rows. Weights, mode and random
    state are left unchanged. On the meta device nothing is checked.
    """
    if model.device.type == "meta":
        return
    modes = [(module, module.training) for module in model.modules()]
    advice = _ADVICE
    model.eval()
    try:
        with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []), torch.no_grad():
            reason = _unfit_at_work(model)
            if reason is None and model.config.cached_context:
                reason, advice = _unfit_for_cached_context(model), _CACHED_ADVICE
    finally:
        for module, training in modes:
            module.training = training
    if reason is not None:
        raise _refusal(model.encoder, reason, advice)


_SHORT, _LONG = 8, 512
"""Number of tokens of a test canvas, and the largest position limit or window that is tested with a longer one."""


def _unfit_at_work(model: KermitModel) -> str | None:
    """Return why a trunk cannot read canvases or does not see the tokens on the right; None if it can."""
    cls, sep = model.config.cls_token_id, model.config.sep_token_id
    canvas = torch.full((1, _SHORT), cls, device=model.device)
    try:
        if not _sees(model, canvas, 0, -1, sep) and _sees(model, canvas, -1, 0, sep):
            return "it reads only from left to right, but KERMIT must see the whole canvas"
        limit = model.max_positions
        if model.config.positions == "restart" and limit is not None and _SHORT <= limit <= _LONG:
            _states(model, canvas[:, :1].expand(1, limit + 1))
    except Exception as error:  # any error means that the trunk cannot read a canvas
        return f"it cannot read a canvas: {in_a_line(error) or type(error).__name__}"
    return None


def _states(model: KermitModel, canvas: Tensor) -> Tensor:
    """Encode a canvas of two halves."""
    hidden: Tensor = model(canvas, torch.ones_like(canvas), _halves(canvas)).last_hidden_state
    return hidden


def _read(model: KermitModel, rows: RowTensors) -> Tensor:
    hidden = model.read(rows).last_hidden_state
    assert hidden is not None
    return hidden


def _halves(canvas: Tensor) -> Tensor:
    return (torch.arange(canvas.shape[1], device=canvas.device) >= canvas.shape[1] // 2).long()[None]


def _sees(model: KermitModel, canvas: Tensor, place: int, other: int, token_id: int) -> bool:
    """Return whether the state at one place depends on the token at another."""
    changed = canvas.clone()
    changed[:, other] = token_id
    return not torch.equal(_states(model, canvas)[:, place], _states(model, changed)[:, place])


def _unfit_for_cached_context(model: KermitModel) -> str | None:
    """Return why a trunk does not respect the mask and positions of cached context; None if it does."""
    assert model.order_embeddings is not None
    order = model.order_embeddings.weight.clone()
    model.order_embeddings.weight.zero_()  # the only difference between a plain canvas and a row with nothing given
    try:
        fault = _fault(model)
    except Exception as error:  # any error means that the trunk cannot read rows
        reason = in_a_line(error) or type(error).__name__
        return f"it cannot read rows of cached context with a mask per token: {reason}"
    finally:
        model.order_embeddings.weight.copy_(order)
    return None if fault is None else f"with cached_context, {fault}"


def _fault(model: KermitModel) -> str | None:
    """Return the first fault in how a trunk reads rows; None if there is none.

    Two rows, one per order, have three given tokens and two blocks with the same three tokens and positions.
    """
    cls, sep, end = model.config.cls_token_id, model.config.sep_token_id, model.config.end_of_slot_token_id
    given, one, other = slice(0, 3), slice(3, 6), slice(6, 9)
    two_canvases = ContextRows(
        np.array([[cls, sep, cls, sep, cls, cls, sep, cls, cls]] * 2),
        np.array([[0, 0, 0, 1, 1, 1, 1, 1, 1]] * 2),
        np.array([[0, 1, 2, 1, 2, 3, 1, 2, 3]] * 2, dtype=np.float32),
        np.array([[0, 0, 0, 1, 1, 1, 2, 2, 2]] * 2),
        np.array([[0] * 9, [0, 0, 0, 0, 1, 2, 0, 1, 2]]),
        np.array([False, True]),
    )
    rows = RowTensors.of(two_canvases, model.device)
    states = _read(model, rows)
    little = 100 * torch.finfo(states.dtype).eps * states.abs().max()  # tolerance for rounding

    def changes(name: str, place: int, value: float) -> Tensor:
        """Return (2, 9), how much the states change with one entry of the rows."""
        changed = getattr(rows, name).clone()
        changed[:, place] = value
        return (_read(model, replace(rows, **{name: changed})) - states).abs().amax(2)

    def differs(difference: Tensor) -> bool:
        return not bool((difference.abs() <= little).all())  # NaN counts as different

    by_given, by_last = changes("token_ids", 1, end), changes("token_ids", 5, end)
    if differs(by_last[:, given]) or differs(by_last[:, other]) or differs(by_last[1, 3:5]):
        return "its tokens see others that the mask hides"
    if not bool(by_given[:, 3:].all() and by_last[0, one].all()):
        return "its inserted tokens do not see the whole canvas"
    moved = [changes("positions", 4, position)[:, 4] for position in (1.0, 2.5)]
    if differs(states[:, one] - states[:, other]) or not bool(torch.cat(moved).all()):
        return "it does not use the positions it is given, including fractions"
    window = getattr(model.config.trunk_config, "sliding_window", None) or 0
    canvas = torch.full((1, _SHORT + (window if window <= _LONG else 0)), cls, device=model.device)
    canvas[:, ::3] = sep
    whole, segments = torch.ones_like(canvas), _halves(canvas)
    positions = model.position_ids(segments, whole.bool()) - model.position_offset
    sees_all = whole.bool()[:, None].expand(-1, canvas.shape[1], -1)
    apart = bool(getattr(model.config.trunk_config, "given_layers", 0))  # a plain canvas is read as given then
    alone = RowTensors(canvas, segments, positions.float(), whole * (not apart), sees_all)
    if differs(_read(model, alone) - _states(model, canvas)):
        return "it encodes a canvas with nothing given differently than without cached context"
    return None


_ADVICE = "Choose an encoder such as BERT, ModernBERT, RoBERTa, DeBERTa, ELECTRA or DistilBERT"
_CACHED_ADVICE = "Choose an encoder such as BERT, ModernBERT, RoBERTa or ELECTRA, or set cached_context: false"


def _refusal(encoder: PreTrainedModel, reason: str, advice: str = _ADVICE) -> ModelError:
    return ModelError(f"{type(encoder).__name__} cannot be a trunk: {reason}. {advice}")


def position_table(encoder: PreTrainedModel) -> nn.Embedding | None:
    """Return the table of learned positions that a trunk adds to its embeddings; None if it has none."""
    table = getattr(getattr(encoder, "embeddings", None), "position_embeddings", None)
    return table if isinstance(table, nn.Embedding) else None


def first_position(encoder: PreTrainedModel) -> int:
    """Return the first position: 0, or the padding index plus 1 for trunks that number from there."""
    embeddings = getattr(encoder, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return 0 if padding is None else padding + 1
