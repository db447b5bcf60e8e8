"""KERMIT as a family of models: built and trained by recipes, used through `Kermit`, evaluated in pretraining.

The collator draws the factorization and the kept tokens of every text of a batch, takes its process's share of the
texts, and builds the arguments of the model's forward. Everything random is drawn before the split, so the texts of a
step are the same on any number of processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from pydantic import NonNegativeInt, PositiveInt, model_validator
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerFast

from kermit.canvas import Factorization, SpecialTokens, Termination
from kermit.canvas.arrays import Array
from kermit.canvas.blank_room import BlankRoom
from kermit.data.batching import WHOLE, RankShare
from kermit.data.joint_tokenizer import blank_id
from kermit.decoding import Strategy
from kermit.decoding.asking import ask_canvases
from kermit.decoding.flat_settings import DecodingChoices
from kermit.engines.engine import LEFT_TO_RIGHT, Engine
from kermit.engines.torch_engine import TorchEngine
from kermit.errors import RecipeError
from kermit.families.base import ITEMS, Collator, HeldOutBatch, Recovered, complete_canvases, refuse_orders
from kermit.families.objective_settings import ObjectiveName, ObjectiveSettings
from kermit.families.trunk_settings import TrunkSettings, made, new_trunk_config
from kermit.loading import load_whole
from kermit.modeling import KermitConfig, KermitForInsertion, special_token_settings, specials_of
from kermit.modeling.trunk import refuse_unfit_at_work
from kermit.objectives.generations import GenerationObjective
from kermit.objectives.objective import Objective
from kermit.objectives.training_canvases import Texts, canvases_of
from kermit.validated_settings import FamilySettings, Settings

if TYPE_CHECKING:
    from kermit.data.encoding import Row
    from kermit.training.recipe import Recipe

_Choice = TypeVar("_Choice")


class KermitSettings(TrunkSettings):
    """The trunk, and the options of the insertion head."""

    slot_vector: Literal["right", "both"] = "right"
    copy_width: NonNegativeInt = 0
    cached_context: bool = False
    blank_width: NonNegativeInt = 16
    position_limit: PositiveInt | None = None
    termination: Termination = Termination.SLOT
    positions: Literal["restart", "continue"] = "restart"

    @model_validator(mode="after")
    def _blanks_need_cached_context(self) -> KermitSettings:
        for name in self.changed("blank_width", "position_limit") if not self.cached_context else ():
            raise ValueError(f"{name} applies only with cached_context; leave it out, or set cached_context: true")
        return self


@dataclass(frozen=True)
class InsertionCollator:
    """Turns rows into training canvases, for models without cached context.

    `mixes` are the factorizations of each data source, with weights. With `lone_texts`, a row without y is a text of
    one segment instead of a pair whose other side is absent.
    """

    specials: SpecialTokens
    objective: Objective
    mixes: Sequence[Mapping[Factorization, float]]
    lone_texts: bool = False

    def __call__(
        self, rows: Sequence[Row], generator: np.random.Generator, share: RankShare = WHOLE
    ) -> dict[str, Array]:
        """Draw a batch, and return one process's share of it."""
        noise = generator.random(len(rows)).tolist()
        ways = [_pick(self.mixes[row["source"]], value) for row, value in zip(rows, noise, strict=True)]
        texts = Texts.of(complete_canvases(self.specials, rows, lone_texts=self.lone_texts), ways)
        kept = self.objective.sample_kept(texts, generator)
        left_out = generator.random(kept.shape)
        mine = share.rows(len(rows))
        canvases = self.objective.build(texts.select(mine), kept[mine], left_out[mine])
        return canvases.model_inputs() | {ITEMS: np.ones(len(mine), dtype=np.float32)}


@dataclass(frozen=True)
class GenerationCollator:
    """Turns rows into all rounds of one generation per text, for models with cached context.

    `orders` are the insertion orders of each data source, with weights, and `infilling` the share of its texts in which
    a random part is given; the others as in `InsertionCollator`.
    """

    specials: SpecialTokens
    objective: GenerationObjective
    mixes: Sequence[Mapping[Factorization, float]]
    orders: Sequence[Mapping[str, float]]
    infilling: Sequence[float]
    blank_id: int
    blank_room: BlankRoom
    lone_texts: bool = False

    def __call__(
        self, rows: Sequence[Row], generator: np.random.Generator, share: RankShare = WHOLE
    ) -> dict[str, Array]:
        """Draw a batch, and return one process's share of it."""
        noise = generator.random((len(rows), 2)).tolist()
        ways = [_pick(self.mixes[row["source"]], value) for row, (value, _) in zip(rows, noise, strict=True)]
        orders = [_pick(self.orders[row["source"]], value) for row, (_, value) in zip(rows, noise, strict=True)]
        left_to_right = np.array([order == LEFT_TO_RIGHT for order in orders])
        texts = Texts.of(complete_canvases(self.specials, rows, lone_texts=self.lone_texts), ways)
        infilling = np.array([self.infilling[row["source"]] for row in rows])
        texts, rounds = self.objective.draw(texts, left_to_right, generator, infilling=infilling)
        mine = share.rows(len(rows))
        texts = texts.select(mine)
        targets = self.objective.build(
            texts, rounds[mine], left_to_right[mine], blank_id=self.blank_id, blank_room=self.blank_room
        )
        return targets.model_inputs() | {ITEMS: (texts.lengths + 1).astype(np.float32)}


def _pick(mix: Mapping[_Choice, float], noise: float) -> _Choice:
    """Return the choice that `noise`, uniform in [0, 1), selects from weighted choices."""
    total, reached = sum(mix.values()), 0.0
    for way, weight in mix.items():
        reached += weight / total
        if noise < reached:
            return way
    return way


class KermitFamily:
    """Builds, trains and runs KERMIT models."""

    name = "kermit"
    tasks: tuple[str, ...] = ("translation", "pretraining")
    model_type: str | None = "kermit"
    model_settings: type[FamilySettings] = KermitSettings
    objective_settings: type[Settings] = ObjectiveSettings
    decoding_settings: type[Any] = DecodingChoices
    mixes_orders = True

    def check(self, recipe: Recipe) -> None:
        """Check that every source supports its factorizations, and that objective, model and decoding agree."""
        for place, source in recipe.data.sources.items():
            try:
                source.mix(recipe.factorizations)
            except ValueError as error:
                raise RecipeError(f"{place}.factorizations: {error}") from error
        model = self.shape(recipe)
        _check_objective(recipe, model)
        if model.termination is Termination.SEQUENCE and _strategy(recipe) not in (None, Strategy.SERIAL):
            raise RecipeError("decoding.strategy: must be serial with model.termination: sequence")

    def shape(self, recipe: Recipe) -> KermitSettings:
        """Return the settings of the model."""
        settings: KermitSettings = recipe.model
        return settings

    def build(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """Build a new model, or warm-start one from an encoder."""
        settings = self.shape(recipe)
        choices = settings.model_dump(mode="json", exclude={"family", "trunk", "trunk_from"}) | {
            "orders": _all_orders(recipe) if settings.cached_context else None,
            "strategy": _strategy(recipe),
            "predicts_completion": recipe.objective.completion_weight > 0,
            "label_smoothing": recipe.objective.label_smoothing,
        }
        if settings.trunk_from is not None:
            encoder = settings.load(AutoModel)
            model = made("model", lambda: KermitForInsertion.from_encoder(encoder, tokenizer, **choices))
        else:
            choices |= special_token_settings(tokenizer, cached_context=settings.cached_context)
            choices["trunk_config"] = new_trunk_config(settings, tokenizer)
            model = made("model.trunk", lambda: KermitForInsertion(KermitConfig(**choices)))
            made("model.trunk", lambda: refuse_unfit_at_work(model.kermit))
        return model

    def load(self, path: Path) -> PreTrainedModel:
        """Load a saved KERMIT model."""
        return load_whole(KermitForInsertion, path)

    def collator(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Collator:
        """Return the collator that fits the model: of single canvases, or of whole generations."""
        settings, specials = self.shape(recipe), specials_of(tokenizer)
        objective, sources = recipe.objective, recipe.data.train
        mixes = [source.mix(recipe.factorizations) for source in sources]
        lone_texts = recipe.task == "pretraining"
        if not settings.cached_context:
            return InsertionCollator(specials, objective.build(settings.termination), mixes, lone_texts)
        return GenerationCollator(
            specials,
            objective.generation,
            mixes,
            orders_of(recipe),
            [objective.infilling if source.infilling is None else source.infilling for source in sources],
            blank_id=blank_id(tokenizer),
            blank_room=BlankRoom(settings.blank_width, settings.position_limit),
            lone_texts=lone_texts,
        )

    def loss(self, model: nn.Module, batch: dict[str, Tensor], recipe: Recipe) -> Tensor:
        """Compute the objective, summed over texts."""
        loss: Tensor = model(**batch, num_items_in_batch=1).loss
        return loss

    def recover(self, model: PreTrainedModel, held_out: HeldOutBatch) -> Recovered:
        """Predict every slot of the canvases without the dropped tokens."""
        return recovered_by(TorchEngine(model), held_out)

    def runner(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Engine:
        """Return the engine that runs the model."""
        return TorchEngine(model)


def recovered_by(engine: Engine, held_out: HeldOutBatch) -> Recovered:
    """Predict every slot of the canvases without the dropped tokens, with an engine."""
    texts, dropped = held_out.texts, held_out.dropped
    if engine.info.cached_context:
        texts = replace(texts, generated=dropped)  # everything else is given
    canvases, slot = canvases_of(texts, texts.present & ~dropped)
    found = ask_canvases(engine, canvases)
    best = np.zeros(canvases.token_ids.shape, dtype=np.int64)
    best[found.rows, found.slots] = found.answer.tokens[:, 0]
    rows, tokens = dropped.nonzero()
    slots = slot[rows, tokens]
    right = best[rows, slots] == texts.batch.token_ids[rows, tokens]
    any_right, missing = np.zeros(best.shape, dtype=bool), np.zeros(best.shape, dtype=bool)
    any_right[rows[right], slots[right]] = True
    missing[rows, slots] = True
    correct = np.zeros_like(dropped)
    correct[rows, tokens] = any_right[rows, slots]
    if engine.info.termination is not Termination.SLOT:
        return Recovered(correct)
    said_end = np.asarray(found.answer.end > found.answer.log_probs[:, 0])
    return Recovered(correct, said_end, ~missing[found.rows, found.slots])


def orders_of(recipe: Recipe) -> list[Mapping[str, float]]:
    """Return the insertion orders of each source, with weights."""
    return [source.orders or recipe.orders or {recipe.objective.prior: 1.0} for source in recipe.data.train]


def _check_objective(recipe: Recipe, model: KermitSettings) -> None:
    """Raise if the objective contradicts the model or lacks an order, or if orders have no effect."""
    objective: ObjectiveSettings = recipe.objective
    whole = objective.name == ObjectiveName.GENERATION
    if whole != model.cached_context:
        other = "generation" if model.cached_context else "slot or lower_bound"
        raise RecipeError(
            f"objective.name: with model.cached_context: {str(model.cached_context).lower()} it must be {other}, not"
            f" {objective.name}"
        )
    if not model.cached_context:
        made("objective", lambda: objective.build(model.termination))
        refuse_orders(recipe, "model.cached_context: true")
        return
    for number, (source, mix) in enumerate(zip(recipe.data.train, orders_of(recipe), strict=True)):
        for name in mix.keys() - {objective.prior, LEFT_TO_RIGHT}:
            place = "orders" if source.orders is None else f"data.train.{number}.orders"
            raise RecipeError(f"{place}: {name!r} is neither left_to_right nor objective.prior, {objective.prior}")
    orders = _all_orders(recipe)
    if strategy := _strategy(recipe):
        ordered = strategy is Strategy.LEFT_TO_RIGHT
        if not any((order == LEFT_TO_RIGHT) == ordered for order in orders):
            raise RecipeError(
                f"decoding.strategy: {strategy} does not match the trained orders"
                f" ({', '.join(orders)}); change one of them"
            )


def _all_orders(recipe: Recipe) -> list[str]:
    return sorted({order for mix in orders_of(recipe) for order in mix})


def _strategy(recipe: Recipe) -> Strategy | None:
    """Return the chosen strategy; None if there is none or the task does not decode."""
    return getattr(recipe.decoding, "strategy", None)


KERMIT = KermitFamily()
