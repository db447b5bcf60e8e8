"""The Insertion Transformer (Stern et al., 2019): an encoder for the source and a decoder that inserts the target.

Both are one stack of the project's own trunk (`given_layers` of `kermit.modeling.encoder`): the source, which is given,
passes the first layers; the target passes the others, in which it attends to the final states of the source. So it is a
KERMIT model with cached context, and is trained, saved and used as one. One model generates one side from the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kermit.families.base import check_one_direction
from kermit.families.kermit import KermitFamily, KermitSettings
from kermit.families.objective_settings import ObjectiveName, ObjectiveSettings
from kermit.families.trunk_settings import EncoderDecoderSettings
from kermit.validated_settings import FamilySettings, Settings

if TYPE_CHECKING:
    from kermit.training.recipe import Recipe


class InsertionTransformerSettings(EncoderDecoderSettings):
    """The shape of the model; cached context needs the states of both neighbours of a slot."""

    slot_vector: Literal["both"] = "both"


class InsertionTransformerObjective(ObjectiveSettings):
    """The loss; a model with cached context is trained with all rounds of a generation."""

    name: str = ObjectiveName.GENERATION.value


class InsertionTransformerFamily(KermitFamily):
    """Builds Insertion Transformers; they are trained and used like KERMIT."""

    name = "insertion_transformer"
    tasks: tuple[str, ...] = ("translation",)
    model_type: str | None = None
    model_settings: type[FamilySettings] = InsertionTransformerSettings
    objective_settings: type[Settings] = InsertionTransformerObjective

    def check(self, recipe: Recipe) -> None:
        """Check that the recipe trains one direction, from pairs."""
        check_one_direction(recipe, "an Insertion Transformer")
        super().check(recipe)

    def shape(self, recipe: Recipe) -> KermitSettings:
        """Return the settings of the equivalent KERMIT model."""
        own: InsertionTransformerSettings = recipe.model
        trunk = {
            "model_type": "kermit_encoder",
            "hidden_size": own.width,
            "intermediate_size": own.feedforward,
            "num_hidden_layers": own.encoder_layers + own.decoder_layers,
            "given_layers": own.encoder_layers,
            "num_attention_heads": own.heads,
            "dropout": own.dropout,
        }
        return KermitSettings(family="kermit", trunk=trunk, slot_vector=own.slot_vector, cached_context=True)


INSERTION_TRANSFORMER = InsertionTransformerFamily()
