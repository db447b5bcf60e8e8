"""`KermitModel`: any bidirectional encoder of transformers, fed with canvases.

Every trunk gets segments and restarting positions. A trunk with two or more token types of its own takes segments as
those; for the others a segment embedding is added to the word embeddings. Trunks that number positions from their
padding index (RoBERTa, MPNet) get the offset they expect. Trunks that know the distance of two tokens alone (DeBERTa)
take no notice of positions: for them Y goes on where X ends. A trunk with a causal mask is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Container
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel, initialization
from transformers.modeling_outputs import BaseModelOutput

from kermit.context import GIVEN, ContextRows
from kermit.errors import ModelError, in_a_line
from kermit.modeling.config import KermitConfig
from kermit.modeling.copying import Copying
from kermit.modeling.encoder import Encoder


class KermitPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    """What all KERMIT models share."""

    config_class = KermitConfig
    base_model_prefix = "kermit"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Copying):  # transformers knows layers, and no parameters of our own
            initialization.zeros_(module.bias)

    @property
    def trunk(self) -> PreTrainedModel:
        """The encoder inside."""
        return self.base_model.encoder

    def get_input_embeddings(self) -> nn.Embedding:
        """The trunk's word embedding."""
        return self.trunk.get_input_embeddings()  # type: ignore[no-any-return]

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the trunk's word embedding."""
        self.trunk.set_input_embeddings(value)

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *arguments: Any, **settings: Any) -> Any:
        """As every transformers model does; the insertion head's bias goes along, 0 for tokens that are new."""
        embedding = super().resize_token_embeddings(new_num_tokens, *arguments, **settings)
        head = getattr(self, "head", None)
        if head is not None:
            old, rows = head.bias, embedding.num_embeddings
            bias = nn.functional.pad(old.detach()[:rows], (0, max(0, rows - len(old))))
            head.bias = nn.Parameter(bias, requires_grad=old.requires_grad)
        return embedding


class KermitModel(KermitPreTrainedModel):
    """The trunk: canvases to hidden states."""

    _keys_to_ignore_on_load_unexpected = (r"^(head|pooler|classifier|next_sentence)\.",)

    def __init__(self, config: KermitConfig) -> None:
        super().__init__(config)
        if getattr(config.trunk_config, "is_decoder", False):
            raise ModelError("the trunk's config has is_decoder set, a causal mask; KERMIT sees the whole canvas")
        # in the format of the whole model, whatever the one that a checkpoint's trunk was saved in
        self.encoder = AutoModel.from_config(config.trunk_config, dtype=torch.get_default_dtype())
        if getattr(self.encoder, "pooler", None) is not None:
            self.encoder.pooler = None
        refuse_unfit(self.encoder)
        accepted = inspect.signature(self.encoder.forward).parameters
        types = getattr(config.trunk_config, "type_vocab_size", 0)
        if "token_type_ids" not in accepted or types < 2:
            self.segment_embeddings: nn.Embedding | None = nn.Embedding(
                2, self.encoder.get_input_embeddings().embedding_dim
            )
        else:
            self.segment_embeddings = None
        self.order_embeddings: nn.Embedding | None = None
        if config.cached_context:
            self.order_embeddings = nn.Embedding(2, self.encoder.get_input_embeddings().embedding_dim)
        self.position_offset: int = first_position(self.encoder)
        self._restarts: bool = config.positions == "restart"
        self.post_init()

    @property
    def max_positions(self) -> int | None:
        """How many positions the trunk has, or None if there is no limit."""
        limit: int | None = getattr(self.config.trunk_config, "max_position_embeddings", None)
        return None if limit is None else limit - self.position_offset

    def position_ids(self, segment_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The positions of canvas tokens, as the config says; (batch, length)."""
        positions = torch.arange(segment_ids.shape[1], device=segment_ids.device).expand_as(segment_ids)
        if self._restarts:
            x_length = ((segment_ids == 0) & attention_mask).sum(1, keepdim=True)
            positions = positions - segment_ids * (x_length - 1)
        return positions * attention_mask + self.position_offset

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Hidden states of canvases.

        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), False or 0 at padding; None for no padding.
            segment_ids: (batch, length), 0 for X and 1 for Y; None for X alone. ``token_type_ids`` is taken for it.
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

    def read(self, rows: ContextRows, **kwargs: Any) -> Tensor:
        """Hidden states of rows of cached context; (batch, length, hidden).

        Args:
            rows: the rows.
            kwargs: passed on to the trunk.

        Raises:
            ModelError: a position beyond those that the trunk has.
        """
        assert self.order_embeddings is not None
        embedded = self.get_input_embeddings()(rows.token_ids)
        order = self.order_embeddings(rows.left_to_right.long())[:, None]
        embedded = embedded + torch.where((rows.blocks > GIVEN)[..., None], order, 0)
        positions, table = rows.positions, position_table(self.encoder)
        inputs: dict[str, Tensor] = {}
        if self.segment_embeddings is None:
            inputs["token_type_ids"] = rows.segment_ids
        else:
            embedded = embedded + self.segment_embeddings(rows.segment_ids)
        if table is not None:
            positions, between = self._between_rows_of(table, positions)
            embedded = embedded + between
        valid, mask = rows.valid, rows.mask()
        if isinstance(self.encoder, Encoder):
            inputs |= {"attention_mask": mask, "valid": valid}
        else:
            unseen = torch.finfo(embedded.dtype).min
            inputs["attention_mask"] = embedded.new_zeros(mask.shape).masked_fill(~mask, unseen)
        hidden: Tensor = self.encoder(inputs_embeds=embedded, position_ids=positions, **inputs, **kwargs)[0]
        return hidden

    def _between_rows_of(self, table: nn.Embedding, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Whole positions for a table, and what to add to the embedding of its tokens for the fractions."""
        limit = self.max_positions or table.num_embeddings - self.position_offset
        if bool((positions > limit - 1).any()):
            raise ModelError(
                f"a canvas needs {int(positions.max()) + 1} positions, and the trunk has {limit}; shorten the text, or"
                " leave fewer blanks"
            )
        whole = positions.floor()
        first = whole.long() + self.position_offset
        after = (first + 1).clamp(max=self.position_offset + limit - 1)
        return first, (positions - whole)[..., None] * (table(after) - table(first))


def refuse_unfit(encoder: PreTrainedModel) -> None:
    """Raise a ModelError for a model that cannot be a trunk, as far as its looks tell."""
    if reason := _unfit(encoder, inspect.signature(encoder.forward).parameters):
        raise _refusal(encoder, reason)


def refuse_unfit_at_work(model: KermitModel) -> None:
    """Let a new model read short canvases, and a long one where that costs little, and raise a ModelError if it cannot.

    The weights, the mode and the random state stay as they are. On the meta device there is nothing to read with.
    """
    if model.device.type == "meta":
        return
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []), torch.no_grad():
            reason = _unfit_at_work(model)
    finally:
        for module, training in modes:
            module.training = training
    if reason is not None:
        raise _refusal(model.encoder, reason)


_SHORT, _LONG = 8, 512
"""How many tokens a new trunk is tried with, and up to how many positions more than these."""


def _unfit_at_work(model: KermitModel) -> str | None:
    """Why a trunk cannot read canvases, or does not see what is right of a token; None if it does."""
    cls, sep = model.config.cls_token_id, model.config.sep_token_id
    canvas = torch.full((1, _SHORT), cls, device=model.device)
    try:
        if not _sees(model, canvas, 0, -1, sep) and _sees(model, canvas, -1, 0, sep):
            return "it reads from left to right, and KERMIT sees the whole canvas"
        limit = model.max_positions
        if model.config.positions == "restart" and limit is not None and _SHORT <= limit <= _LONG:
            _states(model, canvas[:, :1].expand(1, limit + 1))
    except Exception as error:  # whatever it is, the trunk cannot read a canvas
        return f"it cannot read a canvas: {in_a_line(error) or type(error).__name__}"
    return None


def _states(model: KermitModel, canvas: Tensor) -> Tensor:
    """Hidden states of a canvas of two halves."""
    segments = (torch.arange(canvas.shape[1], device=canvas.device) >= canvas.shape[1] // 2).long()[None]
    hidden: Tensor = model(canvas, torch.ones_like(canvas), segments).last_hidden_state
    return hidden


def _sees(model: KermitModel, canvas: Tensor, place: int, other: int, token_id: int) -> bool:
    """Whether the state at a place depends on the token at another."""
    changed = canvas.clone()
    changed[:, other] = token_id
    return not torch.equal(_states(model, canvas)[:, place], _states(model, changed)[:, place])


def _refusal(encoder: PreTrainedModel, reason: str) -> ModelError:
    return ModelError(
        f"{type(encoder).__name__} cannot be a trunk: {reason}. "
        "Choose an encoder such as BERT, ModernBERT, RoBERTa, DeBERTa, ELECTRA or DistilBERT"
    )


def _unfit(encoder: PreTrainedModel, accepted: Container[str]) -> str | None:
    """Why a model whose forward takes these arguments cannot be a trunk; None if it can."""
    if missing := [name for name in ("attention_mask", "inputs_embeds", "position_ids") if name not in accepted]:
        return f"its forward takes no {', '.join(missing)}"
    if any(getattr(module, "is_causal", False) for module in encoder.modules()):
        return "its attention has a causal mask, and KERMIT sees the whole canvas"
    try:
        table = encoder.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        table = None
    return None if isinstance(table, nn.Embedding) else "its word embedding is no plain table"


def position_table(encoder: PreTrainedModel) -> nn.Embedding | None:
    """The table of learned positions that a trunk adds to its embeddings; None where it has none."""
    table = getattr(getattr(encoder, "embeddings", None), "position_embeddings", None)
    return table if isinstance(table, nn.Embedding) else None


def first_position(encoder: PreTrainedModel) -> int:
    """The number of the first position: 0, or one after the padding index where a trunk numbers from there."""
    embeddings = getattr(encoder, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return 0 if padding is None else padding + 1
