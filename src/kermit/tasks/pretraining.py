"""The task of pretraining: plain text in pairs of segments, as in BERT (section 4.2 of the paper).

`data` names articles (`kermit.data.articles`), which are split into sentences and packed differently in every epoch
(`kermit.data.packing`). The best model is the one with the lowest validation loss; the recovery of held-out tokens,
which are the same for models of all families, is also reported (`kermit.tasks.held_out`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from pydantic import Field, PositiveInt
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from kermit.canvas import Factorization
from kermit.data.articles import ArticleSource, read_paragraphs
from kermit.data.batching import SPECIALS_PER_ROW
from kermit.data.joint_tokenizer import end_of_slot_id
from kermit.data.packing import PackedText
from kermit.data.plain import Report
from kermit.data.sentences import encode_articles
from kermit.errors import RecipeError
from kermit.families.base import PretrainingFamily
from kermit.loading import position_limit
from kermit.modeling import specials_of
from kermit.tasks.held_out import HELD_OUT_SEED, judge
from kermit.training.settings import EvaluationSettings, SourceSettings, TextSettings
from kermit.training.task import BestMetric, Evaluator
from kermit.validated_settings import FactorizationMix, Fraction

if TYPE_CHECKING:
    from kermit.training.recipe import LoadedRecipe, Recipe


class ArticleSettings(ArticleSource, SourceSettings):
    """One corpus of articles."""


class ArticleData(TextSettings):
    """The articles to train and validate on, and how they are packed.

    `max_tokens` is the length of a packed pair, including special tokens; `short_rate` is the share of pairs that are
    shorter on purpose.
    """

    train: tuple[ArticleSettings, ...] = Field(min_length=1)
    validation: ArticleSettings | None = None
    max_tokens: int = Field(default=128, ge=8)
    short_rate: Fraction = 0.1


class PretrainingEvaluation(EvaluationSettings):
    """When to evaluate the model, and on how many pairs of the validation text, evenly spaced."""

    texts: PositiveInt = 200


class PretrainingTask:
    """Reads and packs articles, and evaluates models on held-out tokens."""

    name = "pretraining"
    data_settings: type[TextSettings] = ArticleData
    evaluation_settings: type[EvaluationSettings] = PretrainingEvaluation
    factorizations: FactorizationMix = {Factorization.JOINT: 1.0}  # noqa: RUF012
    decodes = False
    best = BestMetric("loss", "loss", higher=False)

    def check(self, recipe: Recipe) -> None:
        """Check that both segments are generated."""
        if set(recipe.factorizations) != {Factorization.JOINT}:
            raise RecipeError(
                "factorizations: must be joint in pretraining, which drops tokens of the whole text; leave it out"
            )

    def texts(self, loaded: LoadedRecipe) -> Iterator[str]:
        """Yield every paragraph."""
        for source in loaded.sources:
            for paragraph in read_paragraphs(source, Report(loaded.recipe.data.on_bad)):
                yield paragraph.text

    def training_text(self, loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> PackedText:
        """Encode all articles; they are packed differently in every epoch."""
        return _packed(loaded.sources, loaded.recipe, tokenizer, seed=loaded.recipe.seed)

    def validation_text(self, loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> PackedText | None:
        """Encode and pack the validation articles; the pairs do not depend on the recipe's seed."""
        recipe = loaded.recipe
        if recipe.data.validation is None:
            return None
        source = recipe.data.validation.under(loaded.data)
        return _packed([source], recipe, tokenizer, seed=HELD_OUT_SEED, limit=recipe.evaluation.texts)

    def evaluator(self, loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> Evaluator | None:
        """Return an evaluator of the recovery of held-out tokens."""
        text = self.validation_text(loaded, tokenizer)
        if text is None:
            return None
        rows = text.epoch(0).fetch(range(len(text)))
        specials, family = specials_of(tokenizer), cast("PretrainingFamily", loaded.family)
        return lambda model: judge(family, model, specials, rows)

    def describe(self, model: PreTrainedModel, recipe: Recipe) -> None:
        """Check that the model has enough positions for a packed pair."""
        positions = position_limit(model)
        if positions is not None and positions < recipe.data.max_tokens:
            raise RecipeError(
                f"data.max_tokens: {recipe.data.max_tokens} is more than the model's {positions} positions"
            )


def _packed(
    sources: Sequence[ArticleSource],
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerFast,
    *,
    seed: int,
    limit: int | None = None,
) -> PackedText:
    data: ArticleData = recipe.data
    end_of_slot_id(tokenizer)  # added for all families, so that they share the cache of encoded text
    room = data.max_tokens - SPECIALS_PER_ROW
    return PackedText(
        encode_articles(sources, tokenizer, max_tokens=room // 2, on_bad=data.on_bad),
        room=room,
        short_rate=data.short_rate,
        seed=seed,
        limit=limit,
    )


PRETRAINING = PretrainingTask()
