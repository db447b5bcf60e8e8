"""KERMIT as a family of models that recipes train and translators ask: canvases in, insertions out.

The collator draws, for every text of a batch, what is generated of it and which tokens are kept; both are rows, so a
batch can be shared by several processes. The canvases and their targets follow from those without further chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerFast

from kermit.canvas import Factorization, SpecialTokens
from kermit.canvas_batch import CanvasBatch
from kermit.decoding import DecodingSettings, Sampling, Strategy
from kermit.errors import RecipeError
from kermit.modeling import KermitConfig, KermitForInsertion, special_token_settings
from kermit.objective import KeptSampling, LowerBoundObjective, Objective, SlotObjective, SlotShare, Texts
from kermit.orders import BalancedTreePrior, LeftToRightPrior, OrderPrior, UniformPrior
from kermit.pipeline import Kermit
from kermit.slots import Termination
from kermit.tasks.translation import Direction, Translation
from kermit.training.families import ITEMS, Collator
from kermit.training.recipe import Recipe
from kermit.training.settings import FamilySettings, Fraction, NotNegative, Settings, Share

if TYPE_CHECKING:
    from kermit.data.encoding import Row

_WAYS = tuple(Factorization)


class PriorName(StrEnum):
    """The order priors on offer."""

    UNIFORM = "uniform"
    BALANCED_TREE = "balanced_tree"
    LEFT_TO_RIGHT = "left_to_right"


class ObjectiveName(StrEnum):
    """The slot loss, or the lower bound of section 3.1."""

    SLOT = "slot"
    LOWER_BOUND = "lower_bound"


class KermitSettings(FamilySettings):
    """The trunk, as a configuration of transformers or as a checkpoint to start from, and the head's choices."""

    trunk: dict[str, Any] | None = None
    trunk_from: str | None = None
    slot_vector: str = "right"
    termination: Termination = Termination.SLOT
    positions: str = "restart"

    @model_validator(mode="after")
    def _one_trunk(self) -> KermitSettings:
        if (self.trunk is None) == (self.trunk_from is None):
            raise ValueError("give either trunk, a configuration, or trunk_from, a checkpoint to start from")
        if self.trunk is not None and "model_type" not in self.trunk:
            raise ValueError("trunk needs a model_type, such as bert or modernbert")
        return self


class ObjectiveSettings(Settings):
    """What is minimised: see `kermit.objective` and `kermit.orders`."""

    name: ObjectiveName = ObjectiveName.SLOT
    prior: PriorName = PriorName.BALANCED_TREE
    temperature: PositiveFloat = 1.0
    kept: KeptSampling = KeptSampling.UNIFORM
    drop_probability: Fraction = 0.15
    share: SlotShare = SlotShare.CANVAS
    location_weight: NotNegative = 1.0
    empty_slot_rate: Fraction = 1.0
    label_smoothing: Share = 0.0

    def order_prior(self) -> OrderPrior:
        """The prior of that name."""
        match self.prior:
            case PriorName.UNIFORM:
                return UniformPrior()
            case PriorName.BALANCED_TREE:
                return BalancedTreePrior(self.temperature)
            case PriorName.LEFT_TO_RIGHT:
                return LeftToRightPrior()

    def build(self, termination: Termination) -> Objective:
        """The objective of that name."""
        if self.name is ObjectiveName.LOWER_BOUND:
            return LowerBoundObjective(self.order_prior())
        return SlotObjective(
            self.order_prior(),
            kept=self.kept,
            drop_probability=self.drop_probability,
            termination=termination,
            share=self.share,
            location_weight=self.location_weight,
            empty_slot_rate=self.empty_slot_rate,
        )


class InsertionDecoding(Settings):
    """How insertion models decode; with a `temperature` tokens are drawn instead of taking the best."""

    strategy: Strategy = Strategy.PARALLEL
    termination_penalty: float = 0.0
    temperature: PositiveFloat | None = None
    top_k: PositiveInt | None = None
    top_p: PositiveFloat | None = None
    max_rounds: PositiveInt | None = None
    max_tokens: PositiveInt = 256
    batch_size: PositiveInt = 64
    seed: int = 0

    def build(self) -> DecodingSettings:
        """The decoder's settings."""
        drawn = (self.temperature, self.top_k, self.top_p)
        sampling = None
        if any(value is not None for value in drawn):
            sampling = Sampling(self.temperature or 1.0, self.top_k, self.top_p)
        return DecodingSettings(
            strategy=self.strategy,
            sampling=sampling,
            termination_penalty=self.termination_penalty,
            max_rounds=self.max_rounds,
            max_tokens=self.max_tokens,
        )


@dataclass(frozen=True)
class InsertionCollator:
    """Rows to complete texts with their factorizations and kept sets.

    Args:
        specials: the ids that frame a canvas.
        objective: what draws the kept sets.
        mixes: for each data source, what is generated from its texts, with weights.
    """

    specials: SpecialTokens
    objective: Objective
    mixes: Sequence[Mapping[Factorization, float]]

    def __call__(self, rows: Sequence[Row], generator: torch.Generator) -> dict[str, Tensor]:
        """Draw a batch."""
        noise = torch.rand(len(rows), generator=generator).tolist()
        ways = [_pick(self.mixes[row["source"]], value) for row, value in zip(rows, noise, strict=True)]
        batch = CanvasBatch.from_segments(self.specials, [(row["x"], row["y"]) for row in rows])
        return {
            "token_ids": batch.token_ids,
            "segment_ids": batch.segment_ids,
            "valid": batch.valid,
            "kept": self.objective.sample_kept(Texts.of(batch, ways), generator),
            "ways": torch.tensor([_WAYS.index(way) for way in ways]),
            ITEMS: torch.ones(len(rows)),
        }


def _pick(mix: Mapping[Factorization, float], noise: float) -> Factorization:
    """The factorization at a point of the mix's unit interval."""
    total, reached = sum(mix.values()), 0.0
    for way, weight in mix.items():
        reached += weight / total
        if noise < reached:
            return way
    return way


class KermitFamily:
    """How KERMIT is built, trained and asked."""

    name = "kermit"
    tasks: tuple[str, ...] = ("translation", "pretraining")
    model_type: str | None = "kermit"
    model_settings: type[FamilySettings] = KermitSettings
    objective_settings: type[Settings] = ObjectiveSettings
    decoding_settings: type[Settings] = InsertionDecoding

    def check(self, recipe: Recipe) -> None:
        """Every source must be able to serve the factorizations asked of it."""
        mixes_of(recipe)
        model, objective = recipe.model, recipe.objective
        assert isinstance(model, KermitSettings)
        assert isinstance(objective, ObjectiveSettings)
        parallel = isinstance(recipe.decoding, InsertionDecoding) and recipe.decoding.strategy is Strategy.PARALLEL
        if model.termination is Termination.SEQUENCE and parallel:
            raise RecipeError("decoding.strategy: a model with model.termination: sequence decodes serially alone")

    def build(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """A new model, or one warm-started from an encoder."""
        settings = recipe.model
        assert isinstance(settings, KermitSettings)
        choices = {
            "slot_vector": settings.slot_vector,
            "termination": str(settings.termination),
            "positions": settings.positions,
            "label_smoothing": _objective(recipe).label_smoothing,
        }
        if settings.trunk_from is not None:
            return KermitForInsertion.from_encoder(settings.trunk_from, tokenizer, **choices)
        assert settings.trunk is not None
        shape = dict(settings.trunk)
        try:
            trunk = AutoConfig.for_model(
                shape.pop("model_type"),
                vocab_size=len(tokenizer),
                pad_token_id=tokenizer.pad_token_id,
                cls_token_id=tokenizer.cls_token_id,
                sep_token_id=tokenizer.sep_token_id,
                bos_token_id=tokenizer.cls_token_id,
                eos_token_id=tokenizer.sep_token_id,
                **shape,
            )
            config = KermitConfig(trunk_config=trunk, **special_token_settings(tokenizer), **choices)
        except (ValueError, TypeError) as error:
            raise RecipeError(f"model: {error}") from error
        return KermitForInsertion(config)

    def load(self, path: Path) -> PreTrainedModel:
        """A saved KERMIT model."""
        return KermitForInsertion.from_pretrained(path)

    def collator(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Collator:
        """Draws factorizations and kept sets."""
        specials = KermitConfig(**special_token_settings(tokenizer)).specials
        termination = getattr(recipe.model, "termination", Termination.SLOT)
        return InsertionCollator(specials, _objective(recipe).build(termination), mixes_of(recipe))

    def loss(self, model: nn.Module, batch: dict[str, Tensor], recipe: Recipe) -> Tensor:
        """The objective, summed over texts."""
        inner: Any = model.module if hasattr(model, "module") else model
        ways = [_WAYS[number] for number in batch["ways"].tolist()]
        canvases = CanvasBatch(
            batch["token_ids"],
            batch["segment_ids"],
            batch["valid"],
            torch.zeros_like(batch["valid"]),
            inner.specials,
        )
        objective = _objective(recipe).build(inner.termination)
        inputs = objective.build(Texts.of(canvases, ways), batch["kept"]).model_inputs()
        loss: Tensor = model(**inputs, num_items_in_batch=1).loss
        return loss

    def translate(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        texts: Sequence[str],
        direction: Direction,
        decoding: Settings,
        *,
        trace: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> list[Translation]:
        """Insert the other side."""
        assert isinstance(decoding, InsertionDecoding)
        kermit = Kermit(model, tokenizer, batch_size=decoding.batch_size)
        seeds = range(decoding.seed, decoding.seed + len(texts))
        found = kermit.translate(
            texts, direction.target, settings=decoding.build(), seeds=seeds, trace=trace, on_progress=progress
        )
        to_y = direction.target == kermit.languages[1]
        return [
            Translation(
                source=text,
                text=(result.y or "") if to_y else result.x,
                rounds=result.rounds,
                tokens=result.tokens,
                log_prob=result.log_prob,
                finish=str(result.finish),
                trace=kermit.readable(result.trace),
            )
            for text, result in zip(texts, found, strict=True)
        ]


def mixes_of(recipe: Recipe) -> list[Mapping[Factorization, float]]:
    """What is generated from the texts of each source.

    Raises:
        RecipeError: a source is asked for what it cannot serve.
    """
    mixes: list[Mapping[Factorization, float]] = []
    for number, source in enumerate(recipe.data.train):
        try:
            mixes.append(source.mix(recipe.factorizations))
        except ValueError as error:
            raise RecipeError(f"data.train.{number}.factorizations: {error}") from error
    return mixes


def _objective(recipe: Recipe) -> ObjectiveSettings:
    assert isinstance(recipe.objective, ObjectiveSettings)
    return recipe.objective


KERMIT = KermitFamily()
