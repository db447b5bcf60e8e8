"""KERMIT as a family of models that recipes train, translators ask and pretraining judges: canvases in, insertions out.

The collator draws, for every text of a batch, what is generated of it and which tokens are kept, takes its process's
share of the texts, and builds what the model's forward takes. No chance is left after the drawing, so the texts of a
step are the same on any number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerFast

from kermit.canvas import CanvasBatch, Factorization, SpecialTokens, Termination
from kermit.canvas.arrays import Array
from kermit.data.batching import WHOLE, RankShare
from kermit.data.tokenizer import blank_id
from kermit.decoding import DRAWING_TEMPERATURE, DecodingSettings, Ranking, Sampling, Strategy
from kermit.decoding.asking import ask_canvases, states_of
from kermit.engines.engine import LEFT_TO_RIGHT, Engine
from kermit.engines.torch_engine import TorchEngine
from kermit.errors import DecodingError, RecipeError
from kermit.folders import load_whole
from kermit.modeling import KermitConfig, KermitForInsertion, special_token_settings, specials_of
from kermit.modeling.next_sentence import (
    add_next_sentence_head,
    load_next_sentence_head,
    next_sentence_logits,
    next_sentence_loss,
)
from kermit.modeling.taps import inner_model
from kermit.modeling.trunk import refuse_unfit_at_work
from kermit.objectives.generations import GenerationObjective
from kermit.objectives.objective import Objective
from kermit.objectives.texts import Texts, canvases_of
from kermit.pipeline import Kermit
from kermit.tasks.held_out import HeldOutBatch, Recovered, labels_of
from kermit.tasks.pretraining import ArticleData
from kermit.tasks.translation import Direction, Translation
from kermit.training.families import ITEMS, Collator
from kermit.training.objectives import ObjectiveName
from kermit.training.objectives import ObjectiveSettings as ObjectiveSettings
from kermit.training.objectives import PriorName as PriorName
from kermit.training.recipe import Recipe, refuse_orders
from kermit.training.settings import FamilySettings, Settings, SourceSettings
from kermit.training.trunks import TrunkSettings, made, new_trunk_config

if TYPE_CHECKING:
    from kermit.data.encoding import Row

Choice = TypeVar("Choice")


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


class InsertionDecoding(Settings):
    """How insertion models decode; with a `temperature` tokens are drawn instead of taking the best.

    Of `candidates` that many are decoded for each text, and the best by `ranking` and `length_reward` is kept.
    """

    strategy: Strategy = Strategy.PARALLEL
    termination_penalty: float | None = None
    temperature: PositiveFloat | None = None
    top_k: PositiveInt | None = None
    top_p: PositiveFloat | None = None
    max_rounds: PositiveInt | None = None
    max_tokens: PositiveInt | None = None
    max_repeats: PositiveInt | None = None
    candidates: PositiveInt = 1
    ranking: Ranking | None = None
    length_reward: float | None = None
    batch_size: PositiveInt = 64
    seed: int = 0

    @model_validator(mode="after")
    def _nothing_in_vain(self) -> InsertionDecoding:
        if self.seed and self.candidates == 1 and not self._drawn():
            raise ValueError("seed is for draws, and the best tokens are taken; leave it out, or set a temperature")
        return self

    def _drawn(self) -> bool:
        return any(value is not None for value in (self.temperature, self.top_k, self.top_p))

    def build(self) -> DecodingSettings:
        """The decoder's settings."""
        sampling = None
        if self._drawn():
            sampling = Sampling(self.temperature or DRAWING_TEMPERATURE, self.top_k, self.top_p)
        return DecodingSettings(
            strategy=self.strategy,
            sampling=sampling,
            termination_penalty=self.termination_penalty,
            max_rounds=self.max_rounds,
            max_tokens=self.max_tokens,
            max_repeats=self.max_repeats,
            candidates=self.candidates,
            ranking=self.ranking,
            length_reward=self.length_reward,
        )


@dataclass(frozen=True)
class InsertionCollator:
    """Rows to training canvases, for models without cached context.

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

    def __call__(
        self, rows: Sequence[Row], generator: np.random.Generator, share: RankShare = WHOLE
    ) -> dict[str, Array]:
        """Draw a batch, and return the share of one process."""
        noise = generator.random(len(rows)).tolist()
        ways = [_pick(self.mixes[row["source"]], value) for row, value in zip(rows, noise, strict=True)]
        texts = Texts.of(_complete(self.specials, rows, self.lone_texts), ways)
        kept = self.objective.sample_kept(texts, generator)
        left_out = generator.random(kept.shape)
        mine = share.rows(len(rows))
        canvases = self.objective.build(texts.select(mine), kept[mine], left_out[mine])
        arrays = canvases.model_inputs() | {ITEMS: np.ones(len(mine), dtype=np.float32)}
        return arrays | {"follows": labels_of(rows)[mine]} if self.next_sentence else arrays


@dataclass(frozen=True)
class GenerationCollator:
    """Rows to all rounds of a generation per text, for models with cached context.

    Args:
        specials: the ids that frame a canvas.
        objective: what draws the given part and the rounds.
        mixes: for each data source, what is generated from its texts, with weights.
        orders: for each data source, in which orders, with weights.
        blank_id: the token that marks a blank.
        blank_width: number of positions that a blank has room for.
        lone_texts: whether a row without y is a text of one segment, and not a pair whose other half is absent.
        next_sentence: whether rows say if y continues x.
    """

    specials: SpecialTokens
    objective: GenerationObjective
    mixes: Sequence[Mapping[Factorization, float]]
    orders: Sequence[Mapping[str, float]]
    blank_id: int
    blank_width: int
    lone_texts: bool = False
    next_sentence: bool = False

    def __call__(
        self, rows: Sequence[Row], generator: np.random.Generator, share: RankShare = WHOLE
    ) -> dict[str, Array]:
        """Draw a batch, and return the share of one process."""
        noise = generator.random((len(rows), 2)).tolist()
        ways = [_pick(self.mixes[row["source"]], value) for row, (value, _) in zip(rows, noise, strict=True)]
        orders = [_pick(self.orders[row["source"]], value) for row, (_, value) in zip(rows, noise, strict=True)]
        left_to_right = np.array([order == LEFT_TO_RIGHT for order in orders])
        texts = Texts.of(_complete(self.specials, rows, self.lone_texts), ways)
        texts, rounds = self.objective.draw(texts, left_to_right, generator)
        mine = share.rows(len(rows))
        texts = texts.select(mine)
        targets = self.objective.build(
            texts, rounds[mine], left_to_right[mine], blank_id=self.blank_id, blank_width=self.blank_width
        )
        arrays = targets.model_inputs() | {ITEMS: (texts.lengths + 1).astype(np.float32)}
        return arrays | {"follows": labels_of(rows)[mine]} if self.next_sentence else arrays


def _complete(specials: SpecialTokens, rows: Sequence[Row], lone_texts: bool) -> CanvasBatch:
    segments = [(row["x"],) if lone_texts and not row["y"] else (row["x"], row["y"]) for row in rows]
    return CanvasBatch.from_segments(specials, segments)


def _pick(mix: Mapping[Choice, float], noise: float) -> Choice:
    """The choice at a point of the mix's unit interval."""
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
    mixes_orders = True

    def check(self, recipe: Recipe) -> None:
        """Every source must be able to serve the factorizations asked of it, and the objective be one."""
        mixes_of(recipe)
        if recipe.data.validation is not None:
            _mix(recipe.data.validation, recipe, "data.validation")
        model = recipe.model
        assert isinstance(model, KermitSettings)
        _check_objective(recipe, model)
        check_decoding(recipe)
        serial = not isinstance(recipe.decoding, InsertionDecoding) or recipe.decoding.strategy is Strategy.SERIAL
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
        return add_next_sentence_head(model) if _asks_next_sentence(recipe) else model

    def load(self, path: Path) -> PreTrainedModel:
        """A saved KERMIT model."""
        return load_next_sentence_head(load_whole(KermitForInsertion, path), path)

    def collator(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Collator:
        """Draws factorizations and kept sets."""
        specials = specials_of(tokenizer)
        termination = getattr(recipe.model, "termination", Termination.SLOT)
        if isinstance(recipe.model, KermitSettings) and recipe.model.cached_context:
            return GenerationCollator(
                specials,
                _objective(recipe).generation,
                mixes_of(recipe),
                orders_of(recipe),
                blank_id=blank_id(tokenizer),
                blank_width=recipe.model.blank_width,
                lone_texts=recipe.task == "pretraining",
                next_sentence=_asks_next_sentence(recipe),
            )
        return InsertionCollator(
            specials,
            _objective(recipe).build(termination),
            mixes_of(recipe),
            lone_texts=recipe.task == "pretraining",
            next_sentence=_asks_next_sentence(recipe),
        )

    def loss(self, model: nn.Module, batch: dict[str, Tensor], recipe: Recipe) -> Tensor:
        """The objective, summed over texts."""
        follows = batch.pop("follows", None)
        output = model(**batch, num_items_in_batch=1)
        loss: Tensor = output.loss
        if follows is not None:
            each = torch.ones_like(loss).expand(len(follows))
            loss = loss + next_sentence_loss(inner_model(model), output.last_hidden_state, follows, each)
        return loss

    def recover(self, model: PreTrainedModel, held_out: HeldOutBatch) -> Recovered:
        """Ask every slot of the canvases without the dropped tokens."""
        engine = TorchEngine(model)
        canvases, found = recovered_by(engine, held_out)
        if not getattr(model.config, "next_sentence", False):
            return found
        states = torch.as_tensor(states_of(engine, canvases), device=model.device).to(model.dtype)
        return replace(found, follows=(next_sentence_logits(model, states).argmax(1) == 1).cpu().numpy())

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


def recovered_by(engine: Engine, held_out: HeldOutBatch) -> tuple[CanvasBatch, Recovered]:
    """Return the canvases without the dropped tokens, and what an engine makes of their slots."""
    texts, dropped = held_out.texts, held_out.dropped
    if engine.info.cached_context:
        texts = replace(texts, generated=dropped)  # all else is given
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
        return canvases, Recovered(correct)
    said_end = np.asarray(found.answer.end > found.answer.log_probs[:, 0])
    return canvases, Recovered(correct, said_end, ~missing[found.rows, found.slots])


def mixes_of(recipe: Recipe) -> list[Mapping[Factorization, float]]:
    """What is generated from the texts of each source.

    Raises:
        RecipeError: a source is asked for what it cannot serve.
    """
    return [_mix(source, recipe, f"data.train.{number}") for number, source in enumerate(recipe.data.train)]


def orders_of(recipe: Recipe) -> list[Mapping[str, float]]:
    """In which orders the texts of each source are inserted.

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
    """Raise for an objective that does not go with the model, or orders that would do nothing."""
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
    elif isinstance(recipe.decoding, InsertionDecoding):
        ordered = recipe.decoding.strategy is Strategy.LEFT_TO_RIGHT
        if not any((order == LEFT_TO_RIGHT) == ordered for order in _all_orders(recipe)):
            raise RecipeError(
                f"decoding.strategy: {recipe.decoding.strategy} does not go with the orders that are trained,"
                f" {', '.join(_all_orders(recipe))}; change one of them"
            )


def _all_orders(recipe: Recipe) -> list[str]:
    return sorted({order for mix in orders_of(recipe) for order in mix})


def check_decoding(recipe: Recipe) -> None:
    """Raise for decoding settings that the decoder refuses, before a training comes to its first evaluation."""
    if isinstance(recipe.decoding, InsertionDecoding):
        try:
            recipe.decoding.build()
        except DecodingError as error:
            raise RecipeError(f"decoding.{error}") from error


def _mix(source: SourceSettings, recipe: Recipe, place: str) -> Mapping[Factorization, float]:
    try:
        return source.mix(recipe.factorizations)
    except ValueError as error:
        raise RecipeError(f"{place}.factorizations: {error}") from error


def _objective(recipe: Recipe) -> ObjectiveSettings:
    assert isinstance(recipe.objective, ObjectiveSettings)
    return recipe.objective


def _asks_next_sentence(recipe: Recipe) -> bool:
    return isinstance(recipe.data, ArticleData) and recipe.data.next_sentence


KERMIT = KermitFamily()
