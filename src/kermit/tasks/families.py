"""KERMIT as a family of models that recipes train, translators ask and pretraining judges: canvases in, insertions out.

The collator draws, for every text of a batch, what is generated of it and which tokens are kept; both are rows, so a
batch can be shared by several processes. The canvases and their targets follow from those without further chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerFast

from kermit.canvas import Factorization, SpecialTokens
from kermit.canvas_batch import CanvasBatch
from kermit.decoding import DRAWING_TEMPERATURE, DecodingSettings, Ranking, Sampling, Strategy
from kermit.errors import DecodingError, RecipeError
from kermit.folders import load_whole
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
from kermit.slots import Termination
from kermit.tasks.held_out import HeldOutBatch, Recovered, labels_of
from kermit.tasks.pretraining import ArticleData
from kermit.tasks.translation import Direction, Translation
from kermit.texts import Texts, canvases_of
from kermit.training.families import ITEMS, Collator
from kermit.training.objectives import ObjectiveSettings as ObjectiveSettings
from kermit.training.objectives import PriorName as PriorName
from kermit.training.recipe import Recipe
from kermit.training.settings import FamilySettings, Settings, SourceSettings
from kermit.training.trunks import TrunkSettings, made, new_trunk_config

if TYPE_CHECKING:
    from kermit.data.encoding import Row

_WAYS = tuple(Factorization)


class KermitSettings(TrunkSettings):
    """The trunk and the head's choices."""

    slot_vector: Literal["right", "both"] = "right"
    slot_attention_heads: NonNegativeInt = 0
    copy_width: NonNegativeInt = 0
    termination: Termination = Termination.SLOT
    positions: Literal["restart", "continue"] = "restart"


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
    max_tokens: PositiveInt = 256
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
            candidates=self.candidates,
            ranking=self.ranking,
            length_reward=self.length_reward,
        )


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
        """Every source must be able to serve the factorizations asked of it, and the objective be one."""
        mixes_of(recipe)
        if recipe.data.validation is not None:
            _mix(recipe.data.validation, recipe, "data.validation")
        model = recipe.model
        assert isinstance(model, KermitSettings)
        made("objective", lambda: _objective(recipe).build(model.termination))
        check_decoding(recipe)
        parallel = isinstance(recipe.decoding, InsertionDecoding) and recipe.decoding.strategy is Strategy.PARALLEL
        if model.termination is Termination.SEQUENCE and parallel:
            raise RecipeError("decoding.strategy: a model with model.termination: sequence decodes serially alone")

    def build(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """A new model, or one warm-started from an encoder."""
        settings = recipe.model
        assert isinstance(settings, KermitSettings)
        choices = {
            "slot_vector": settings.slot_vector,
            "slot_attention_heads": settings.slot_attention_heads,
            "copy_width": settings.copy_width,
            "termination": str(settings.termination),
            "positions": settings.positions,
            "label_smoothing": _objective(recipe).label_smoothing,
        }
        if settings.trunk_from is not None:
            encoder = settings.load(AutoModel)
            model = made("model", lambda: KermitForInsertion.from_encoder(encoder, tokenizer, **choices))
        else:
            choices |= special_token_settings(tokenizer)
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
        return InsertionCollator(
            specials,
            _objective(recipe).build(termination),
            mixes_of(recipe),
            lone_texts=recipe.task == "pretraining",
            next_sentence=_asks_next_sentence(recipe),
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
        objective = _objective(recipe).build(inner.termination)
        if isinstance(objective, SlotObjective) and not model.training:
            objective = objective.of_every_slot()
        inputs = objective.build(Texts.of(canvases, ways), batch["kept"]).model_inputs()
        with output_of(inner.base_model) as hidden:
            loss: Tensor = model(**inputs, num_items_in_batch=1).loss
        if (follows := batch.get("follows")) is not None:
            loss = loss + next_sentence_loss(inner, hidden.value, follows, torch.ones_like(loss).expand(len(follows)))
        return loss

    def recover(self, model: PreTrainedModel, held_out: HeldOutBatch) -> Recovered:
        """Ask every slot of the canvases without the dropped tokens."""
        texts, dropped = held_out.texts, held_out.dropped
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
    return [_mix(source, recipe, f"data.train.{number}") for number, source in enumerate(recipe.data.train)]


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
