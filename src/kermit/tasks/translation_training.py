"""The task of translation: pairs of texts, evaluated by BLEU on the validation pairs (section 4.1).

`data` names parallel text, and unpaired text for the marginals; `evaluation.directions` are the directions to evaluate.
The best model is the one with the highest mean BLEU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from statistics import fmean
from typing import TYPE_CHECKING, cast

from pydantic import Field, model_validator
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from kermit.canvas import Factorization
from kermit.data.encoding import EncodedText, encode_sources
from kermit.data.parallel import Pair, TextSource, read_pairs
from kermit.data.plain import Report
from kermit.errors import RecipeError
from kermit.families.base import TranslationFamily
from kermit.pipeline import Kermit
from kermit.tasks.translation import Direction, directions_of, evaluate_translation
from kermit.text.tokenizer import encode_texts
from kermit.training.settings import EvaluationSettings, SourceSettings, TextSettings
from kermit.training.task import BestMetric, Evaluator
from kermit.validated_settings import FactorizationMix, Settings

if TYPE_CHECKING:
    from kermit.training.recipe import LoadedRecipe, Recipe


class Languages(Settings):
    """Names of the two sides, as in `--to de`."""

    x: str = "x"
    y: str = "y"

    @model_validator(mode="after")
    def _two(self) -> Languages:
        if self.x == self.y:
            raise ValueError(
                f"x and y have the same name, {self.x}; use different names, such as {self.x} and {self.x}2"
            )
        return self


class PairSource(TextSource, SourceSettings):
    """One corpus; `factorizations` overrides the recipe's mix for its texts.

    For example, a teacher's translations are used only in their own direction.
    """

    factorizations: FactorizationMix | None = None

    def mix(self, default: FactorizationMix) -> FactorizationMix:
        """Return the factorizations of these texts; unpaired text supports only its own marginal."""
        if self.paired:
            return self.factorizations or default
        own = Factorization.X if self.sides[0] else Factorization.Y
        mix = self.factorizations or {own: 1.0}
        if set(mix) != {own}:
            raise ValueError(f"unpaired text of this side supports only {own.value}")
        return mix


class PairData(TextSettings):
    """The pairs to train and validate on; `max_tokens` limits each side, not counting special tokens."""

    languages: Languages = Languages()
    train: tuple[PairSource, ...] = Field(min_length=1)
    validation: PairSource | None = None


class TranslationEvaluation(EvaluationSettings):
    """When to translate the validation text, and how many texts; `directions` default to those being trained."""

    directions: tuple[str, ...] = ()


class TranslationTask:
    """Reads and encodes pairs, and evaluates models by translation."""

    name = "translation"
    data_settings: type[TextSettings] = PairData
    evaluation_settings: type[EvaluationSettings] = TranslationEvaluation
    factorizations: FactorizationMix = {Factorization.Y_GIVEN_X: 1.0}  # noqa: RUF012
    decodes = True
    best = BestMetric("bleu", "BLEU", higher=True)

    def check(self, recipe: Recipe) -> None:
        """Check that the directions to evaluate are trained."""
        languages: Languages = recipe.data.languages
        known = [str(way) for way in directions_of(trained(recipe), (languages.x, languages.y))]
        for number, text in enumerate(recipe.evaluation.directions):
            if text.strip() not in known:
                wanted = f"one of {', '.join(known)}" if known else "left out, as no translation is trained"
                raise RecipeError(f"evaluation.directions.{number}: must be {wanted}, not {text!r}")

    def texts(self, loaded: LoadedRecipe) -> Iterator[str]:
        """Yield both sides of every pair."""
        for source in loaded.sources:
            for pair in read_pairs(source, Report(loaded.recipe.data.on_bad)):
                yield from (side for side in (pair.x, pair.y) if side)

    def training_text(self, loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> EncodedText:
        """Encode all pairs."""
        return _encoded(loaded.sources, loaded, tokenizer)

    def validation_text(self, loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> EncodedText | None:
        """Encode the validation pairs."""
        validation = loaded.recipe.data.validation
        return None if validation is None else _encoded([validation.under(loaded.data)], loaded, tokenizer)

    def evaluator(self, loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> Evaluator | None:
        """Return an evaluator of BLEU, length ratio and rounds per direction, and of the mean BLEU."""
        recipe, data = loaded.recipe, loaded.recipe.data
        if data.validation is None or not data.validation.paired:
            return None
        languages = (data.languages.x, data.languages.y)
        directions = [Direction.parse(text) for text in recipe.evaluation.directions]
        directions = directions or directions_of(trained(recipe), languages)
        if not directions:
            return None
        source = data.validation.under(loaded.data)
        fitting = (pair for pair in read_pairs(source, Report(data.on_bad)) if _fits(pair, tokenizer, data.max_tokens))
        pairs = list(islice(fitting, recipe.evaluation.texts))
        family = cast("TranslationFamily", loaded.family)

        def judge(model: PreTrainedModel) -> Mapping[str, float]:
            facade = Kermit(family.runner(model, tokenizer), tokenizer)
            metrics: dict[str, float] = {}
            results = [evaluate_translation(facade, pairs, way, recipe.decoding)[0] for way in directions]
            for scores in results:
                metrics[f"bleu_{scores.direction}"] = scores.bleu
                metrics[f"length_ratio_{scores.direction}"] = scores.length_ratio
                metrics[f"rounds_{scores.direction}"] = scores.mean_rounds
            return {**metrics, "bleu": round(fmean(scores.bleu for scores in results), 3)}

        return judge

    def describe(self, model: PreTrainedModel, recipe: Recipe) -> None:
        """Record the names of the sides and the factorizations in the model's config."""
        model.config.languages = recipe.data.languages.model_dump()
        model.config.factorizations = sorted(factorization.value for factorization in trained(recipe))


def trained(recipe: Recipe) -> set[Factorization]:
    """Return the factorizations of all sources together."""
    return {factorization for source in recipe.data.train for factorization in source.mix(recipe.factorizations)}


def _fits(pair: Pair, tokenizer: PreTrainedTokenizerFast, most: int) -> bool:
    """Return whether both sides have at most `most` tokens."""
    return all(len(ids) <= most for ids in encode_texts(tokenizer, [pair.x or "", pair.y or ""]))


def _encoded(sources: Sequence[TextSource], loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> EncodedText:
    data = loaded.recipe.data
    return encode_sources(sources, tokenizer, max_tokens=data.max_tokens, on_bad=data.on_bad)


TRANSLATION = TranslationTask()
