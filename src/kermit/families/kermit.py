"""KERMIT as a family of models: built and trained by recipes, used through `Kermit`, evaluated by pretraining.

The collator draws what is generated from each text of a batch, and which tokens are kept; both are rows, so that
processes can share a batch. Canvases and targets follow without further randomness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from pydantic import NonNegativeInt, model_validator
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerFast

from kermit.canvas import Factorization, SpecialTokens
from kermit.canvas_batch import CanvasBatch
from kermit.decoding import Strategy
from kermit.decoding.choices import DecodingChoices
from kermit.errors import RecipeError
from kermit.families.base import ITEMS, Collator, asks_next_sentence, refuse_orders
from kermit.families.objective_settings import ObjectiveName, ObjectiveSettings
from kermit.families.recovery import HeldOutBatch, Recovered, labels_of
from kermit.families.trunks import TrunkSettings, made, new_trunk_config
from kermit.generations import GenerationObjective
from kermit.loading import load_whole
from kermit.modeling import KermitConfig, KermitForInsertion, special_token_settings, specials_of
from kermit.modeling.next_sentence import (
    add_next_sentence_head,
    load_next_sentence_head,
    next_sentence_logits,
    next_sentence_loss,
)
from kermit.modeling.taps import inner_model, output_of
from kermit.modeling.trunk import refuse_unfit_at_work
from kermit.objective import Objective, SlotObjective
from kermit.pipeline import Kermit
from kermit.slots import LEFT_TO_RIGHT, Termination
from kermit.texts import Texts, canvases_of
from kermit.validated import FamilySettings, Settings

if TYPE_CHECKING:
    from kermit.data.encoding import Row
    from kermit.training.recipe import Recipe
    from kermit.training.settings import SourceSettings

_Choice = TypeVar("_Choice")

_WAYS = tuple(Factorization)


class KermitSettings(TrunkSettings):
    """The trunk and the head's choices."""

    slot_vector: Literal["right", "both"] = "right"
    copy_width: NonNegativeInt = 0
    cached_context: bool = False
    blank_width: NonNegativeInt = 16
    termination: Termination = Termination.SLOT
    positions: Literal["restart", "continue"] = "restart"

    @model_validator(mode="after")
    def _blanks_need_cached_context(self) -> KermitSettings:
        if not self.cached_context and self.changed("blank_width"):
            raise ValueError("blank_width applies only with cached_context; leave it out, or set cached_context: true")
        return self


@dataclass(frozen=True)
class InsertionCollator:
    """Rows to complete texts with their factorizations and kept sets.

    Args:
        specials: the ids that frame a canvas.
        objective: what draws the kept sets.
        mixes: for each data source, what is generated from its texts, with weights.
        lone_texts: whether a row without y is a text of one segment, and not a pair whose other half is absent.
        next_sentence: whether rows say if y continues x.
    """

    specials: SpecialTokens
    objective: Objective
    mixes: Sequence[Mapping[Factorization, float]]
    lone_texts: bool = False
    next_sentence: bool = False

    def __call__(self, rows: Sequence[Row], generator: torch.Generator) -> dict[str, Tensor]:
        """Draw a batch."""
        noise = torch.rand(len(rows), generator=generator).tolist()
        ways = [_pick(self.mixes[row["source"]], value) for row, value in zip(rows, noise, strict=True)]
        segments = [(row["x"],) if self.lone_texts and not row["y"] else (row["x"], row["y"]) for row in rows]
        batch = CanvasBatch.from_segments(self.specials, segments)
        tensors = {
            "token_ids": batch.token_ids,
            "segment_ids": batch.segment_ids,
            "valid": batch.valid,
            "kept": self.objective.sample_kept(Texts.of(batch, ways), generator),
            "ways": torch.tensor([_WAYS.index(way) for way in ways]),
            ITEMS: torch.ones(len(rows)),
        }
        return tensors | {"follows": labels_of(rows)} if self.next_sentence else tensors


@dataclass(frozen=True)
class GenerationCollator:
    """Rows to complete texts with their factorizations, orders and rounds, for models with cached context.

    Args:
        specials: the ids that frame a canvas.
        objective: what draws the given part and the rounds.
        mixes: for each data source, what is generated from its texts, with weights.
        orders: for each data source, in which orders, with weights.
        lone_texts: whether a row without y is a text of one segment, and not a pair whose other half is absent.
        next_sentence: whether rows say if y continues x.
    """

    specials: SpecialTokens
    objective: GenerationObjective
    mixes: Sequence[Mapping[Factorization, float]]
    orders: Sequence[Mapping[str, float]]
    lone_texts: bool = False
    next_sentence: bool = False

    def __call__(self, rows: Sequence[Row], generator: torch.Generator) -> dict[str, Tensor]:
        """Draw a batch."""
        noise = torch.rand(len(rows), 2, generator=generator).tolist()
        ways = [_pick(self.mixes[row["source"]], value) for row, (value, _) in zip(rows, noise, strict=True)]
        orders = [_pick(self.orders[row["source"]], value) for row, (_, value) in zip(rows, noise, strict=True)]
        left_to_right = torch.tensor([order == LEFT_TO_RIGHT for order in orders])
        segments = [(row["x"],) if self.lone_texts and not row["y"] else (row["x"], row["y"]) for row in rows]
        batch = CanvasBatch.from_segments(self.specials, segments)
        texts, rounds = self.objective.draw(Texts.of(batch, ways), left_to_right, generator)
        tensors = {
            "token_ids": batch.token_ids,
            "segment_ids": batch.segment_ids,
            "valid": batch.valid,
            "ways": torch.tensor([_WAYS.index(way) for way in ways]),
            "generated": texts.generated,
            "rounds": rounds,
            "left_to_right": left_to_right,
            ITEMS: texts.lengths + 1.0,
        }
        if texts.marked is not None and texts.unmarked is not None:
            tensors |= {"marked": texts.marked, "unmarked": texts.unmarked}
        return tensors | {"follows": labels_of(rows)} if self.next_sentence else tensors


def _pick(mix: Mapping[_Choice, float], noise: float) -> _Choice:
    """Return the choice at a point of the mix's unit interval."""
    total, reached = sum(mix.values()), 0.0
    for way, weight in mix.items():
        reached += weight / total
        if noise < reached:
            return way
    return way


class KermitFamily:
    """How KERMIT is built, trained and used."""

    name = "kermit"
    tasks: tuple[str, ...] = ("translation", "pretraining")
    model_type: str | None = "kermit"
    model_settings: type[FamilySettings] = KermitSettings
    objective_settings: type[Settings] = ObjectiveSettings
    decoding_settings: type[Any] = DecodingChoices
    mixes_orders = True

    def check(self, recipe: Recipe) -> None:
        """Check that every source can serve its factorizations, and that objective, model and decoding agree."""
        mixes_of(recipe)
        if recipe.data.validation is not None:
            _mix(recipe.data.validation, recipe, "data.validation")
        model = recipe.model
        assert isinstance(model, KermitSettings)
        _check_objective(recipe, model)
        serial = not isinstance(recipe.decoding, DecodingChoices) or recipe.decoding.strategy is Strategy.SERIAL
        if model.termination is Termination.SEQUENCE and not serial:
            raise RecipeError("decoding.strategy: a model with model.termination: sequence decodes only serially")

    def build(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """A new model, or one warm-started from an encoder."""
        settings = recipe.model
        assert isinstance(settings, KermitSettings)
        choices = {
            "slot_vector": settings.slot_vector,
            "copy_width": settings.copy_width,
            "cached_context": settings.cached_context,
            "blank_width": settings.blank_width,
            "orders": _all_orders(recipe) if settings.cached_context else None,
            "termination": str(settings.termination),
            "positions": settings.positions,
            "label_smoothing": _objective(recipe).label_smoothing,
        }
        if settings.trunk_from is not None:
            encoder = settings.load(AutoModel)
            model = made("model", lambda: KermitForInsertion.from_encoder(encoder, tokenizer, **choices))
        else:
            choices |= special_token_settings(tokenizer, cached_context=settings.cached_context)
            choices["trunk_config"] = new_trunk_config(settings, tokenizer)
            model = made("model.trunk", lambda: KermitForInsertion(KermitConfig(**choices)))
            made("model.trunk", lambda: refuse_unfit_at_work(model.kermit))
        return add_next_sentence_head(model) if asks_next_sentence(recipe) else model

    def load(self, path: Path) -> PreTrainedModel:
        """A saved KERMIT model."""
        return load_next_sentence_head(load_whole(KermitForInsertion, path), path)

    def collator(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Collator:
        """Draws factorizations and kept sets."""
        specials = specials_of(tokenizer)
        termination = getattr(recipe.model, "termination", Termination.SLOT)
        if getattr(recipe.model, "cached_context", False):
            return GenerationCollator(
                specials,
                _objective(recipe).generation,
                mixes_of(recipe),
                orders_of(recipe),
                lone_texts=recipe.task == "pretraining",
                next_sentence=asks_next_sentence(recipe),
            )
        return InsertionCollator(
            specials,
            _objective(recipe).build(termination),
            mixes_of(recipe),
            lone_texts=recipe.task == "pretraining",
            next_sentence=asks_next_sentence(recipe),
        )

    def loss(self, model: nn.Module, batch: dict[str, Tensor], recipe: Recipe) -> Tensor:
        """The objective, summed over texts."""
        inner = inner_model(model)
        ways = [_WAYS[number] for number in batch["ways"].tolist()]
        canvases = CanvasBatch(
            batch["token_ids"],
            batch["segment_ids"],
            batch["valid"],
            torch.zeros_like(batch["valid"]),
            inner.specials,
        )
        texts = Texts.of(canvases, ways)
        if inner.config.cached_context:
            texts = replace(
                texts, generated=batch["generated"], marked=batch.get("marked"), unmarked=batch.get("unmarked")
            )
            targets = _objective(recipe).generation.build(texts, batch["rounds"], batch["left_to_right"], inner.lay_out)
            inputs = targets.model_inputs()
        else:
            objective = _objective(recipe).build(inner.termination)
            if isinstance(objective, SlotObjective) and not model.training:
                objective = objective.of_every_slot()
            inputs = objective.build(texts, batch["kept"]).model_inputs()
        with output_of(inner.base_model) as hidden:
            loss: Tensor = model(**inputs, num_items_in_batch=1).loss
        if (follows := batch.get("follows")) is not None:
            loss = loss + next_sentence_loss(inner, hidden.value, follows, torch.ones_like(loss).expand(len(follows)))
        return loss

    def recover(self, model: PreTrainedModel, held_out: HeldOutBatch) -> Recovered:
        """Predict every slot of the canvases without the dropped tokens."""
        texts, dropped = held_out.texts, held_out.dropped
        if model.config.cached_context:
            texts = replace(texts, generated=dropped)  # all else is given
        canvases, slot = canvases_of(texts, texts.present & ~dropped)
        with output_of(model.base_model) as hidden:
            scores = model.score_slots(canvases)
        best, second = scores.content.topk(2).indices.unbind(1)
        said_end = best == model.specials.end_of_slot_id
        plane = torch.zeros_like(canvases.token_ids)
        token = plane.index_put((scores.rows, scores.slots), torch.where(said_end, second, best))
        found = dropped & (token.gather(1, slot) == texts.batch.token_ids)
        correct = dropped & (plane.scatter_add(1, slot, found.long()).gather(1, slot) > 0)
        missing = plane.scatter_add(1, slot, dropped.long())[scores.rows, scores.slots]
        ends = model.termination is Termination.SLOT
        follows = None
        if getattr(model.config, "next_sentence", False):
            follows = next_sentence_logits(model, hidden.value).argmax(1) == 1
        return Recovered(correct, said_end if ends else None, missing == 0 if ends else None, follows)

    def facade(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Kermit:
        """Return the facade of an insertion model."""
        return Kermit(model, tokenizer)

    def decoding(self, config: Any, choices: Mapping[str, Any]) -> DecodingChoices:
        """Check decoding choices."""
        return DecodingChoices.of(choices).for_translating(getattr(config, "termination_penalty", None))


def mixes_of(recipe: Recipe) -> list[Mapping[Factorization, float]]:
    """Return what is generated from the texts of each source.

    Raises:
        RecipeError: a source cannot serve its factorizations.
    """
    return [_mix(source, recipe, f"data.train.{number}") for number, source in enumerate(recipe.data.train)]


def orders_of(recipe: Recipe) -> list[Mapping[str, float]]:
    """Return the insertion orders for the texts of each source.

    Raises:
        RecipeError: an order that the objective does not have.
    """
    own = _objective(recipe).prior
    found: list[Mapping[str, float]] = []
    for number, source in enumerate(recipe.data.train):
        mix = source.orders or recipe.orders or {own: 1.0}
        for name in mix:
            if name not in (own, LEFT_TO_RIGHT):
                place = "orders" if source.orders is None else f"data.train.{number}.orders"
                raise RecipeError(f"{place}: {name!r} is neither left_to_right nor objective.prior, {own}")
        found.append(mix)
    return found


def _check_objective(recipe: Recipe, model: KermitSettings) -> None:
    """Raise for an objective that contradicts the model, or orders that have no effect."""
    objective = _objective(recipe)
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
    elif isinstance(recipe.decoding, DecodingChoices):
        ordered = recipe.decoding.strategy is Strategy.LEFT_TO_RIGHT
        if not any((order == LEFT_TO_RIGHT) == ordered for order in _all_orders(recipe)):
            raise RecipeError(
                f"decoding.strategy: {recipe.decoding.strategy} does not go with the orders that are trained,"
                f" {', '.join(_all_orders(recipe))}; change one of them"
            )


def _all_orders(recipe: Recipe) -> list[str]:
    return sorted({order for mix in orders_of(recipe) for order in mix})


def _mix(source: SourceSettings, recipe: Recipe, place: str) -> Mapping[Factorization, float]:
    try:
        return source.mix(recipe.factorizations)
    except ValueError as error:
        raise RecipeError(f"{place}.factorizations: {error}") from error


def _objective(recipe: Recipe) -> ObjectiveSettings:
    assert isinstance(recipe.objective, ObjectiveSettings)
    return recipe.objective


KERMIT = KermitFamily()
