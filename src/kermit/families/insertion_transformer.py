"""The Insertion Transformer (Stern et al., 2019): an encoder for the source and a decoder that inserts the target.

The baseline that KERMIT generalises. A bidirectional encoder reads the source; a decoder with cross-attention and no
causal mask reads the target's canvas. To all other code it is a trunk that encodes canvases: the head, the objective
and the decoding loop are KERMIT's. One model generates one side from the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, BertConfig, BertModel, PreTrainedModel, PreTrainedTokenizerFast
from transformers.configuration_utils import SubConfigSpec
from transformers.modeling_outputs import BaseModelOutput

from kermit.canvas import Factorization, Segment, Termination
from kermit.families.base import check_one_direction
from kermit.families.kermit import KermitFamily
from kermit.families.objective_settings import ObjectiveSettings
from kermit.families.trunk_settings import EncoderDecoderSettings, made
from kermit.loading import load_whole
from kermit.modeling import KermitConfig, KermitForInsertion, KermitModel, special_token_settings
from kermit.validated_settings import FamilySettings

if TYPE_CHECKING:
    from kermit.training.recipe import Recipe


class InsertionTransformerConfig(KermitConfig):
    """A `KermitConfig` with a decoder; the trunk is the encoder.

    Args:
        decoder_config: the configuration of the decoder, a BERT with cross-attention.
        source: the segment that the encoder reads, ``x`` or ``y``.
    """

    model_type = "insertion_transformer"
    sub_configs_defaults = {  # noqa: RUF012
        "trunk_config": SubConfigSpec(config_class=AutoConfig, model_type="bert"),
        "decoder_config": SubConfigSpec(config_class=AutoConfig, model_type="bert"),
    }

    decoder_config: Any = None
    source: str = "x"


class EncoderDecoderTrunk(KermitModel):
    """Encodes canvases: the source with the encoder, the target with the decoder."""

    config_class = InsertionTransformerConfig

    def __init__(self, config: InsertionTransformerConfig) -> None:
        super().__init__(config)
        self.decoder = BertModel(config.decoder_config, add_pooling_layer=False)
        self.decoder.set_input_embeddings(self.encoder.get_input_embeddings())
        self.source = Segment.X if config.source == "x" else Segment.Y
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Encode canvases; the arguments are those of `KermitModel.forward`."""
        segment_ids = torch.zeros_like(input_ids) if segment_ids is None else segment_ids
        valid = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        positions = self.position_ids(segment_ids, valid)
        reads = valid & (segment_ids == self.source)
        source, source_valid = _packed(reads)
        encoded = self.encoder(
            input_ids=input_ids.gather(1, source),
            position_ids=positions.gather(1, source),
            attention_mask=source_valid.long(),
        ).last_hidden_state
        target, target_valid = _packed(valid & ~reads)
        visible = torch.zeros(target_valid.shape, dtype=encoded.dtype, device=encoded.device)
        visible = visible.masked_fill(~target_valid, torch.finfo(encoded.dtype).min)
        decoded = self.decoder(
            input_ids=input_ids.gather(1, target),
            position_ids=positions.gather(1, target),
            attention_mask=visible[:, None, None, :].expand(-1, 1, target.shape[1], -1),  # no causal mask
            encoder_hidden_states=encoded,
            encoder_attention_mask=source_valid.long(),
            use_cache=False,
        ).last_hidden_state
        hidden = encoded.new_zeros(*input_ids.shape, encoded.shape[-1])
        hidden = _scattered(hidden, source, source_valid, encoded)
        return BaseModelOutput(last_hidden_state=_scattered(hidden, target, target_valid, decoded))


def _packed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices of each row's chosen tokens, packed to the left, (rows, most), and which are real."""
    order = (~chosen).long().argsort(dim=1, stable=True)[:, : max(1, int(chosen.sum(1).max()))]
    return order, chosen.gather(1, order)


def _scattered(hidden: Tensor, places: Tensor, real: Tensor, values: Tensor) -> Tensor:
    index = places[..., None].expand_as(values)
    return hidden.scatter_add(1, index, values * real[..., None])


class InsertionTransformer(KermitForInsertion):
    """An encoder, and a decoder that predicts missing tokens."""

    config_class = InsertionTransformerConfig
    _tied_weights_keys = {  # noqa: RUF012
        "kermit.decoder.embeddings.word_embeddings.weight": "kermit.encoder.embeddings.word_embeddings.weight"
    }

    def make_trunk(self, config: KermitConfig) -> KermitModel:
        """Create the encoder and the decoder."""
        assert isinstance(config, InsertionTransformerConfig)
        return EncoderDecoderTrunk(config)


AutoConfig.register("insertion_transformer", InsertionTransformerConfig)
AutoModel.register(InsertionTransformerConfig, EncoderDecoderTrunk)


class InsertionTransformerSettings(EncoderDecoderSettings):
    """The shape of the model."""

    slot_vector: Literal["right", "both"] = "both"


class InsertionTransformerFamily(KermitFamily):
    """Builds Insertion Transformers; they are trained and used like KERMIT."""

    name = "insertion_transformer"
    tasks: tuple[str, ...] = ("translation",)
    model_type: str | None = "insertion_transformer"
    model_settings: type[FamilySettings] = InsertionTransformerSettings
    mixes_orders = False

    def check(self, recipe: Recipe) -> None:
        """Check that the recipe trains one direction, from pairs."""
        check_one_direction(recipe, "an Insertion Transformer")
        objective = recipe.objective
        assert isinstance(objective, ObjectiveSettings)
        made("objective", lambda: objective.build(Termination.SLOT))

    def build(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """Build a new model; weights are drawn with standard deviation width ** -0.5."""
        shape, objective = recipe.model, recipe.objective
        assert isinstance(shape, InsertionTransformerSettings)
        assert isinstance(objective, ObjectiveSettings)

        def stack(layers: int, **role: bool) -> BertConfig:
            return BertConfig(
                vocab_size=len(tokenizer),
                hidden_size=shape.width,
                num_hidden_layers=layers,
                num_attention_heads=shape.heads,
                intermediate_size=shape.feedforward,
                hidden_dropout_prob=shape.dropout,
                attention_probs_dropout_prob=0.0,
                initializer_range=shape.width**-0.5,
                max_position_embeddings=shape.max_positions,
                pad_token_id=tokenizer.pad_token_id,
                **role,
            )

        choices = {
            "trunk_config": stack(shape.encoder_layers),
            "decoder_config": stack(shape.decoder_layers, is_decoder=True, add_cross_attention=True),
            "source": "x" if Factorization.Y_GIVEN_X in recipe.factorizations else "y",
            "slot_vector": shape.slot_vector,
            "label_smoothing": objective.label_smoothing,
            **special_token_settings(tokenizer),
        }
        return made("model", lambda: InsertionTransformer(InsertionTransformerConfig(**choices)))

    def load(self, path: Path) -> PreTrainedModel:
        """Load a saved Insertion Transformer."""
        return load_whole(InsertionTransformer, path)


INSERTION_TRANSFORMER = InsertionTransformerFamily()
