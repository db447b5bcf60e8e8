"""`KermitForInsertion`: which token to insert at each slot, and at which slot (the paper's section 3.4).

p(c, l) = p(c given l) p(l): a softmax over the vocabulary at each open slot, tied to the input embedding, and a softmax
over the open slots of the canvas. The model scores only the requested slots.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerFast
from transformers.modeling_outputs import ModelOutput

from kermit.canvas import SpecialTokens
from kermit.data.joint_tokenizer import blank_id, end_of_slot_id
from kermit.errors import ModelError
from kermit.modeling.config import KermitConfig
from kermit.modeling.copying import Copying, add_copies, copy_masses
from kermit.modeling.slot_loss import slot_loss
from kermit.modeling.tensors import RowTensors
from kermit.modeling.trunk import KermitModel, KermitPreTrainedModel, refuse_unfit, refuse_unfit_at_work


@dataclass
class InsertionOutput(ModelOutput):  # type: ignore[misc]
    """Means over texts: the loss to minimise, which is the sum of the others; and the trunk's states."""

    loss: Tensor | None = None
    content_loss: Tensor | None = None
    location_loss: Tensor | None = None
    completion_loss: Tensor | None = None
    last_hidden_state: Tensor | None = None


class SlotLogits(NamedTuple):
    """Logits of slots, in float32.

    Args:
        content: (slots, vocab) of the token to insert.
        location: (slots,) of the location.
        stop: (batch,) of the stop action; None with slot termination.
        completion: (slots,) of one token completing the slot; None if the model does not predict it.
    """

    content: Tensor
    location: Tensor
    stop: Tensor | None
    completion: Tensor | None


class SlotHead(nn.Module):
    """Turns hidden states into slot vectors, and slot vectors into logits."""

    def __init__(self, config: KermitConfig, width: int) -> None:
        super().__init__()
        self.reads_both = config.slot_vector == "both"
        self.project = nn.Linear(config.hidden_size * (1 + self.reads_both), width)
        self.activation = nn.GELU()
        self.norm = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.location = nn.Linear(width, 1, bias=False)
        self.copying = Copying(config.hidden_size, config.copy_width) if config.copy_width else None
        sequence = config.termination == "sequence"
        self.stop = nn.Linear(config.hidden_size, 1) if sequence else None
        self.completion = nn.Linear(width, 1) if config.predicts_completion else None

    def vectors(self, hidden: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """Return slot vectors (slots, width) from the states of neighbours, given as row * length + place."""
        flat = hidden.flatten(0, 1)
        read = torch.cat([flat[left], flat[right]], 1) if self.reads_both else flat[right]
        vectors: Tensor = self.norm(self.activation(self.project(read)))
        return vectors


class KermitForInsertion(KermitPreTrainedModel):
    """An encoder with an insertion head, which predicts missing tokens."""

    _keys_to_ignore_on_load_unexpected = (r"^(pooler|classifier|next_sentence)\.",)

    def __init__(self, config: KermitConfig) -> None:
        super().__init__(config)
        if not config.keep_insertion_head:
            raise ModelError(
                "the model is a classifier saved without an insertion head, so it cannot generate; load another model"
            )
        self.kermit = KermitModel(config)
        self.head = SlotHead(config, self.kermit.get_input_embeddings().embedding_dim)
        self.specials: SpecialTokens = config.specials  # read once: a config's attributes are slow to read
        self._never = sorted(self.specials.ids - ({self.specials.end_of_slot_id} if self.head.stop is None else set()))
        self.post_init()

    @classmethod
    def from_encoder(
        cls, encoder: str | Path | PreTrainedModel, tokenizer: PreTrainedTokenizerFast, **settings: Any
    ) -> KermitForInsertion:
        """Start from the weights of an existing encoder.

        Args:
            encoder: a checkpoint folder, a name on the Hub, or a loaded model, which is not changed.
            tokenizer: its tokenizer; an end-of-slot token is added if it has none.
            settings: further `KermitConfig` settings.

        Raises:
            ModelError: the tokenizer lacks [CLS], [SEP] or a padding token, or the encoder cannot be a trunk.
        """
        if isinstance(encoder, PreTrainedModel):
            trunk = copy.deepcopy(encoder.base_model)  # its embedding may grow below
        else:
            trunk = AutoModel.from_pretrained(encoder, dtype=torch.float32)
        refuse_unfit(trunk)
        specials = special_token_settings(tokenizer, cached_context=settings.get("cached_context", False))
        if len(tokenizer) > trunk.get_input_embeddings().num_embeddings:
            trunk.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        config = KermitConfig(trunk_config=trunk.config, **specials, **settings)
        config.never_generated = [*config.never_generated, *range(len(tokenizer), config.vocab_size)]
        model = cls(config)
        model.kermit.encoder.load_state_dict(
            {name: weight for name, weight in trunk.state_dict().items() if not name.startswith("pooler.")}
        )
        if model.kermit.segment_embeddings is not None:
            nn.init.zeros_(model.kermit.segment_embeddings.weight)
        if model.kermit.order_embeddings is not None:
            nn.init.zeros_(model.kermit.order_embeddings.weight)
        if model.head.stop is None:
            # start at 7/8 for end-of-slot, so that learning this rate does not disturb the trunk
            nn.init.constant_(model.head.bias[config.end_of_slot_token_id], math.log(7 * config.vocab_size))
        refuse_unfit_at_work(model.kermit)
        return model

    @property
    def content_bias(self) -> Tensor:
        """Return (vocab,), -inf at tokens that are never inserted: specials and, with a stop action, end-of-slot."""
        never = torch.tensor(self._never, device=self.head.bias.device)
        return self.head.bias.index_fill(0, never, -torch.inf)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        segment_ids: Tensor,
        *,
        left: Tensor,
        right: Tensor,
        canvases: Tensor,
        asked: Tensor,
        slot_weights: Tensor,
        target_slots: Tensor,
        target_tokens: Tensor,
        target_weights: Tensor,
        location_weights: Tensor,
        stop_weights: Tensor,
        positions: Tensor | None = None,
        orders: Tensor | None = None,
        completions: Tensor | None = None,
        completion_weights: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> InsertionOutput:
        """Compute the loss of training canvases; the arguments are the `model_inputs` of an objective's targets.

        For predictions use `kermit.engines.torch_engine.TorchEngine`; for hidden states, ``model.kermit``.

        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), or with cached context (batch, length, length), what each token attends to.
            segment_ids: (batch, length).
            left: (slots,) the left neighbours of all open slots, as row * length + place.
            right: (slots,) their right neighbours.
            canvases: (slots,) the canvas index of each, ascending; with cached context a row holds several canvases.
            asked: (asked,) indices of the slots with a content loss, ascending.
            slot_weights: (asked,).
            target_slots: (targets,) indices into ``asked``, ascending.
            target_tokens: (targets,).
            target_weights: (targets,).
            location_weights: (slots,), or (0,) if locations are not learned.
            stop_weights: (canvases,).
            positions: (batch, length), with cached context.
            orders: (batch, length), with cached context.
            completions: (asked,) 1 where one token completes the slot, otherwise 0.
            completion_weights: (asked,), or (0,) if completions are not learned.
            num_items_in_batch: number of texts that the loss is divided by, for example over all processes and
                accumulation steps; the batch's own number by default.
            kwargs: passed on to the trunk.
        """
        if positions is None or orders is None:
            hidden = self.kermit(input_ids, attention_mask, segment_ids, **kwargs).last_hidden_state
        else:
            rows = RowTensors(input_ids, segment_ids, positions, orders, attention_mask)
            hidden = self.kermit.read(rows, **kwargs).last_hidden_state
        texts = len(input_ids) if num_items_in_batch is None else num_items_in_batch
        learns_location = len(location_weights) > 0
        chosen = slice(None) if learns_location or len(asked) == len(left) else asked
        vectors = self.head.vectors(hidden, left[chosen], right[chosen])
        location_loss = 0 * self.head.location.weight.sum()  # every weight needs a gradient in distributed training
        if learns_location:
            location_loss = self._location_loss(
                hidden, input_ids, right, vectors, canvases, location_weights, stop_weights
            )
            vectors = vectors if len(asked) == len(left) else vectors[asked]
        copies = self._copies(hidden, input_ids, right[asked])
        by_slot, by_target = (None, None) if copies is None else copy_masses(*copies, target_slots, target_tokens)
        content_loss = slot_loss(
            vectors,
            self.get_input_embeddings().weight,
            self.content_bias,
            slot_weights,
            target_slots,
            target_tokens,
            target_weights,
            slot_copies=by_slot,
            target_copies=by_target,
            smoothing=self.config.label_smoothing if self.training else 0.0,
        )
        losses = [content_loss, location_loss, self._completion_loss(vectors, completions, completion_weights)]
        losses = [loss / texts for loss in losses]
        return InsertionOutput(sum(losses), *(loss.detach() for loss in losses), hidden)

    def _completion_loss(self, vectors: Tensor, completions: Tensor | None, weights: Tensor | None) -> Tensor:
        """Compute the loss of what one token completes; the arguments are those of `forward`, of slot vectors."""
        if self.head.completion is None:
            return vectors.new_zeros((), dtype=torch.float32)
        if completions is None or weights is None or not len(weights):
            nothing: Tensor = 0 * self.head.completion(vectors[:1]).sum()
            return nothing
        logits = self.head.completion(vectors).squeeze(1).float()
        return nn.functional.binary_cross_entropy_with_logits(logits, completions, weights, reduction="sum")

    def _location_loss(
        self,
        hidden: Tensor,
        input_ids: Tensor,
        right: Tensor,
        vectors: Tensor,
        canvases: Tensor,
        location_weights: Tensor,
        stop_weights: Tensor,
    ) -> Tensor:
        """Compute the loss of locations and of stopping; the arguments are those of `forward`, over all open slots."""
        location = self.head.location(vectors).squeeze(1).float()
        normaliser = logsumexp_by_row(location, canvases, len(stop_weights))
        stop_loss: Tensor
        if self.head.stop is not None:
            stop = self.head.stop(hidden[:, 0]).squeeze(1).float()
            normaliser = torch.logaddexp(normaliser, stop)
            stop_loss = (stop_weights * (normaliser - stop)).sum()
        else:
            stop_loss = stop_weights.new_zeros(())
            ending = (stop_weights[canvases] > 0).nonzero().flatten()
            if len(ending):
                content = self._content(hidden, input_ids, right[ending], vectors[ending])
                # -log of the sum over slots of p(l) p(end given l), weighted by canvas
                log_end = content.log_softmax(1)[:, self.specials.end_of_slot_id]
                log_end = log_end + (location - normaliser[canvases])[ending]
                log_stop = logsumexp_by_row(log_end, canvases[ending], len(stop_weights))
                stop_loss = -(stop_weights * torch.where(stop_weights > 0, log_stop, 0)).sum()
        location_loss: Tensor = (location_weights * (normaliser[canvases] - location)).sum()
        return location_loss + stop_loss

    def _content(self, hidden: Tensor, token_ids: Tensor, slots: Tensor, vectors: Tensor) -> Tensor:
        """Return (slots, vocab) logits of the token to insert, in float32."""
        logits = nn.functional.linear(vectors, self.get_input_embeddings().weight, self.content_bias).float()
        copies = self._copies(hidden, token_ids, slots)
        return logits if copies is None else add_copies(logits, *copies)

    def _copies(self, hidden: Tensor, token_ids: Tensor, slots: Tensor) -> tuple[Tensor, Tensor] | None:
        """Score each slot's canvas tokens as copies; return scores and tokens, or None if the model does not copy."""
        if self.head.copying is None:
            return None
        never = torch.tensor(sorted(self.specials.ids), device=token_ids.device)
        scores = self.head.copying(hidden, slots, ~torch.isin(token_ids, never))
        return scores, token_ids[slots // token_ids.shape[1]]

    def slot_logits(self, hidden: Tensor, token_ids: Tensor, left: Tensor, right: Tensor) -> SlotLogits:
        """Compute the logits of slots.

        Args:
            hidden: (batch, length, hidden).
            token_ids: (batch, length) tokens to copy from.
            left: (slots,) the left neighbours, as row * length + place.
            right: (slots,) the right neighbours.
        """
        vectors = self.head.vectors(hidden, left, right)
        content = self._content(hidden, token_ids, right, vectors)
        location = self.head.location(vectors).squeeze(1).float()
        stop = None if self.head.stop is None else self.head.stop(hidden[:, 0]).squeeze(1).float()
        completion = None if self.head.completion is None else self.head.completion(vectors).squeeze(1).float()
        return SlotLogits(content, location, stop, completion)


def logsumexp_by_row(values: Tensor, rows: Tensor, batch: int) -> Tensor:
    """Return the logsumexp (batch,) of values (items,) by row; -inf for a row without items."""
    peak = values.new_full((batch,), -torch.inf).scatter_reduce_(0, rows, values.detach(), "amax")
    base = torch.where(peak.isfinite(), peak, 0)
    total = values.new_zeros(batch).scatter_add_(0, rows, (values - base[rows]).exp())
    return total.log() + base


def specials_of(tokenizer: PreTrainedTokenizerFast) -> SpecialTokens:
    """Return the ids of a tokenizer that frame a canvas or are never content."""
    return KermitConfig(**special_token_settings(tokenizer)).specials


def special_token_settings(tokenizer: PreTrainedTokenizerFast, *, cached_context: bool = False) -> dict[str, Any]:
    """Return the special token ids of a tokenizer under their names in `KermitConfig`.

    End-of-slot and, with cached context, a blank marker are added if it lacks them. The unknown token can occur in a
    text, so it counts as content.
    """
    names = {"cls_token_id": "[CLS]", "sep_token_id": "[SEP]", "pad_token_id": "padding"}
    settings: dict[str, Any] = {name: getattr(tokenizer, name) for name in names}
    for name, title in names.items():
        if settings[name] is None:
            raise ModelError(f"the tokenizer has no {title} token; set its {name.removesuffix('_id')} first")
    settings["end_of_slot_token_id"] = end_of_slot_id(tokenizer)
    if cached_context:
        settings["blank_token_id"] = blank_id(tokenizer)
    never = set(tokenizer.all_special_ids) - set(settings.values()) - {tokenizer.unk_token_id}
    settings["never_generated"] = sorted(never)
    return settings
