"""`KermitForInsertion`: which token to insert at each slot, and at which slot (the paper's section 3.4).

p(c, l) = p(c given l) p(l): a softmax over the vocabulary at each open slot, tied to the input embedding, and a softmax
over the open slots of the canvas. The model scores only the slots it is asked about.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerFast
from transformers.modeling_outputs import ModelOutput

from kermit.canvas import SpecialTokens
from kermit.canvas_batch import CanvasBatch
from kermit.context import ContextRows, Generations, RowLayout, generations_of, lay_out
from kermit.data.tokenizer import blank_id, end_of_slot_id
from kermit.errors import ModelError
from kermit.generations import GenerationObjective
from kermit.modeling.config import KermitConfig
from kermit.modeling.copying import Copying, add_copies, copy_masses
from kermit.modeling.slot_loss import slot_loss
from kermit.modeling.trunk import KermitModel, KermitPreTrainedModel, refuse_unfit, refuse_unfit_at_work
from kermit.orders import LeftToRightPrior
from kermit.slots import SlotScores, Termination, row_logsumexp
from kermit.texts import Texts

_SLOTS_AT_ONCE = 512
"""Whose logits over the vocabulary are held together where each is looked at once."""


@dataclass
class InsertionOutput(ModelOutput):  # type: ignore[misc]
    """The losses of a batch of training canvases, each a mean over texts.

    Args:
        loss: what is minimised, the sum of the two below.
        content_loss: that of the tokens.
        location_loss: that of the locations and of stopping.
    """

    loss: Tensor | None = None
    content_loss: Tensor | None = None
    location_loss: Tensor | None = None


class SlotHead(nn.Module):
    """Hidden states to slot vectors, and those to logits."""

    def __init__(self, config: KermitConfig, width: int) -> None:
        super().__init__()
        self.reads_both = config.slot_vector == "both"
        self.project = nn.Linear(config.hidden_size * (1 + self.reads_both), width)
        self.activation = nn.GELU()
        self.norm = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.location = nn.Linear(width, 1, bias=False)
        self.copying = Copying(config.hidden_size, config.copy_width) if config.copy_width else None
        sequence = config.termination == Termination.SEQUENCE
        self.stop = nn.Linear(config.hidden_size, 1) if sequence else None

    def vectors(self, hidden: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """Slot vectors.

        Args:
            hidden: (batch, length, hidden).
            left: (slots,) the left neighbours, as row * length + place.
            right: (slots,) the right neighbours.

        Returns:
            (slots, width).
        """
        flat = hidden.flatten(0, 1)
        read = torch.cat([flat[left], flat[right]], 1) if self.reads_both else flat[right]
        vectors: Tensor = self.norm(self.activation(self.project(read)))
        return vectors


class KermitForInsertion(KermitPreTrainedModel):
    """An encoder that inserts missing tokens."""

    _keys_to_ignore_on_load_unexpected = (r"^(pooler|classifier|next_sentence)\.",)

    def __init__(self, config: KermitConfig) -> None:
        super().__init__(config)
        if not config.keep_insertion_head:
            raise ModelError("the model was saved as a classifier without an insertion head; it cannot generate")
        self.kermit = self.make_trunk(config)
        self.head = SlotHead(config, self.kermit.get_input_embeddings().embedding_dim)
        # read once: a config's attributes are slow to read, and decoding asks for these every round
        self.specials: SpecialTokens = config.specials
        self.termination = Termination(config.termination)
        self.orders = None if config.orders is None else frozenset(config.orders)
        self._never = sorted(self.specials.ids - ({self.specials.end_of_slot_id} if self.head.stop is None else set()))
        self.post_init()

    def make_trunk(self, config: KermitConfig) -> KermitModel:
        """The network under the head; other architectures put theirs here."""
        return KermitModel(config)

    @classmethod
    def from_encoder(
        cls, encoder: str | Path | PreTrainedModel, tokenizer: PreTrainedTokenizerFast, **settings: Any
    ) -> KermitForInsertion:
        """Start from the weights of an existing encoder.

        Args:
            encoder: a checkpoint folder, a name on the Hub, or a loaded model, which stays as it is.
            tokenizer: its tokenizer, which gets an end-of-slot token if it has none.
            settings: further `KermitConfig` settings.

        Raises:
            ModelError: a tokenizer without a [CLS], [SEP] or padding token, or an encoder that cannot be a trunk.
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
        config.never_generated += range(len(tokenizer), config.vocab_size)
        model = cls(config)
        model.kermit.encoder.load_state_dict(
            {name: weight for name, weight in trunk.state_dict().items() if not name.startswith("pooler.")}
        )
        if model.kermit.segment_embeddings is not None:
            nn.init.zeros_(model.kermit.segment_embeddings.weight)
        if model.kermit.order_embeddings is not None:
            nn.init.zeros_(model.kermit.order_embeddings.weight)
        if model.head.stop is None:
            # seven slots in eight finished, so that the trunk is not torn while the head learns no more than that
            nn.init.constant_(model.head.bias[config.end_of_slot_token_id], math.log(7 * config.vocab_size))
        refuse_unfit_at_work(model.kermit)
        return model

    @property
    def max_length(self) -> int | None:
        """The most tokens of a whole canvas, where positions continue from X to Y."""
        return self.kermit.max_positions if self.config.positions == "continue" else None

    @property
    def max_segment_length(self) -> int | None:
        """The most content tokens of a segment, where positions restart: [CLS] or the place before, and [SEP] count."""
        limit = self.kermit.max_positions
        return None if limit is None or self.config.positions == "continue" else limit - 2

    @property
    def content_bias(self) -> Tensor:
        """(vocab,), -inf at what may never be inserted: all special tokens, and end-of-slot where the text stops."""
        never = torch.tensor(self._never, device=self.head.bias.device)
        return self.head.bias.index_fill(0, never, -torch.inf)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
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
        blocks: Tensor | None = None,
        times: Tensor | None = None,
        left_to_right: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> InsertionOutput:
        """The loss of training canvases, as `TrainingCanvases.model_inputs` gives them.

        To score the slots of canvases use `score_slots`; for hidden states, ``model.kermit``.

        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length).
            segment_ids: (batch, length).
            left: (slots,) the left neighbours of all open slots, as row * length + place.
            right: (slots,) their right neighbours.
            canvases: (slots,) the canvas of each, ascending; a row of cached context holds several.
            asked: (asked,) indices of the slots whose content is asked for, ascending.
            slot_weights: (asked,).
            target_slots: (targets,) indices into ``asked``, ascending.
            target_tokens: (targets,).
            target_weights: (targets,).
            location_weights: (slots,); of no slots where locations are not learned.
            stop_weights: (canvases,).
            positions: (batch, length), with cached context.
            blocks: (batch, length), with cached context.
            times: (batch, length), with cached context.
            left_to_right: (batch,), with cached context.
            num_items_in_batch: how many texts the loss is averaged over; the batch's own number by default, the
                number over all processes and accumulation steps when the trainer says so.
            kwargs: passed on to the trunk.
        """
        if positions is None:
            hidden = self.kermit(input_ids, attention_mask, segment_ids, **kwargs).last_hidden_state
        else:
            assert segment_ids is not None
            assert blocks is not None
            assert times is not None
            assert left_to_right is not None
            rows = ContextRows(input_ids, segment_ids, positions, blocks, times, left_to_right)
            hidden = self.kermit.read(rows, **kwargs)
        texts = len(input_ids) if num_items_in_batch is None else num_items_in_batch
        learns_location = len(location_weights) > 0
        chosen = slice(None) if learns_location or len(asked) == len(left) else asked
        vectors = self.head.vectors(hidden, left[chosen], right[chosen])
        location_loss = 0 * self.head.location.weight.sum()  # a gradient for every weight: several processes need it
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
        content_loss, location_loss = content_loss / texts, location_loss / texts
        return InsertionOutput(content_loss + location_loss, content_loss.detach(), location_loss.detach())

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
        """The loss of the locations and of stopping; the arguments are those of `forward`, of all open slots."""
        location = self.head.location(vectors).squeeze(1).float()
        normaliser = row_logsumexp(location, canvases, len(stop_weights))
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
                log_location = (location - normaliser[canvases])[ending]
                stop_loss = self._end_loss(content, log_location, canvases[ending], stop_weights)
        location_loss: Tensor = (location_weights * (normaliser[canvases] - location)).sum()
        return location_loss + stop_loss

    def _end_loss(self, content: Tensor, log_location: Tensor, rows: Tensor, stop_weights: Tensor) -> Tensor:
        """Slot termination's stopping: -log of the sum over slots of p(l) p(end-of-slot given l), weighted by row."""
        log_end = content.log_softmax(1)[:, self.specials.end_of_slot_id]
        log_stop = row_logsumexp(log_location + log_end, rows, len(stop_weights))
        return -(stop_weights * torch.where(stop_weights > 0, log_stop, 0)).sum()

    def _content(self, hidden: Tensor, token_ids: Tensor, slots: Tensor, vectors: Tensor) -> Tensor:
        """(slots, vocab) logits of the token to insert, in float32."""
        logits = nn.functional.linear(vectors, self.get_input_embeddings().weight, self.content_bias).float()
        copies = self._copies(hidden, token_ids, slots)
        return logits if copies is None else add_copies(logits, *copies)

    def _copies(self, hidden: Tensor, token_ids: Tensor, slots: Tensor) -> tuple[Tensor, Tensor] | None:
        """The scores of the tokens of each slot's canvas as copies, and these tokens; None where none are made."""
        if self.head.copying is None:
            return None
        never = torch.tensor(sorted(self.specials.ids), device=token_ids.device)
        scores = self.head.copying(hidden, slots, ~torch.isin(token_ids, never))
        return scores, token_ids[slots // token_ids.shape[1]]

    def score_slots(
        self, canvases: CanvasBatch, *, asked: Tensor | None = None, left_to_right: bool = False
    ) -> SlotScores:
        """Score open slots of a batch of canvases.

        Args:
            canvases: the canvases; with cached context, with what is given of them.
            asked: (batch, length) bool, which of the open slots to score; all by default.
            left_to_right: whether the spans are filled in order, each from left to right.
        """
        wanted = canvases.open_slots if asked is None else canvases.open_slots & asked
        if not self.config.cached_context:
            valid = None if bool(canvases.valid.all()) else canvases.valid
            token_ids = canvases.token_ids
            hidden = self.kermit(token_ids, valid, canvases.segment_ids).last_hidden_state
            rows, slots = wanted.nonzero(as_tuple=True)
            right = rows * token_ids.shape[1] + slots
            left = right - 1
        else:
            layout = self.lay_out(generations_of(canvases, left_to_right=left_to_right))
            token_ids, hidden = layout.rows.token_ids, self.kermit.read(layout.rows)
            chosen = wanted[layout.slots.rows, layout.slots.numbers]
            rows, slots = layout.slots.rows[chosen], layout.slots.numbers[chosen]
            left, right = layout.slots.left[chosen], layout.slots.right[chosen]
        vectors = self.head.vectors(hidden, left, right)
        content = self._content(hidden, token_ids, right, vectors)
        stop = self.head.stop(hidden[:, 0]).squeeze(1).float() if self.head.stop is not None else None
        return SlotScores(rows, slots, content, self.head.location(vectors).squeeze(1).float(), stop)

    def left_to_right_log_probs(self, texts: Texts) -> Tensor:
        """The exact log-probability of what is generated of complete texts, from left to right; (batch,) in nats.

        Args:
            texts: complete texts, with what is given of them and where blanks are.
        """
        order = torch.ones(len(texts.batch), dtype=torch.bool, device=texts.present.device)
        targets = GenerationObjective(LeftToRightPrior(), location_weight=0).build(
            texts, torch.zeros_like(texts.batch.token_ids), order, self.lay_out
        )
        slots = targets.layout.slots
        hidden = self.kermit.read(targets.layout.rows)
        sums = hidden.new_zeros(len(order), dtype=torch.float32)
        for some in torch.split(torch.arange(len(slots.rows), device=order.device), _SLOTS_AT_ONCE):
            vectors = self.head.vectors(hidden, slots.left[some], slots.right[some])
            content = self._content(hidden, targets.layout.rows.token_ids, slots.right[some], vectors)
            each = content.gather(1, targets.target_tokens[some, None])[:, 0] - content.logsumexp(1)
            sums.index_add_(0, slots.rows[some], each)
        return sums

    def lay_out(self, texts: Generations) -> RowLayout:
        """Lay out generations as rows of this model's cached context."""
        assert self.config.blank_token_id is not None
        return lay_out(texts, self.config.blank_token_id, self.config.blank_width)


def specials_of(tokenizer: PreTrainedTokenizerFast) -> SpecialTokens:
    """The ids that frame a canvas of a tokenizer's tokens, or are never content.

    Raises:
        ModelError: a token that a canvas needs is not there.
    """
    return KermitConfig(**special_token_settings(tokenizer)).specials


def special_token_settings(tokenizer: PreTrainedTokenizerFast, *, cached_context: bool = False) -> dict[str, Any]:
    """The special token ids of a tokenizer, as `KermitConfig` names them.

    The unknown token, if there is one, may stand in a text and so counts as content.

    Args:
        tokenizer: the tokenizer, which gets the tokens of ours that it lacks.
        cached_context: whether the model needs a token that marks blanks.

    Raises:
        ModelError: a token that a canvas needs is not there.
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
