"""A saved model of any family, ready to translate.

`Translator.load` reads a folder with weights, config and tokenizer; the config's `model_type` names the family and its
`languages` say what the sides are called. The output folder of a training that is still running will do: its best
model so far is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from pydantic import ValidationError
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from kermit.canvas import Factorization
from kermit.data.parallel import Pair
from kermit.data.tokenizer import load_tokenizer
from kermit.decoding import LENGTH_REWARD, Ranking, Strategy
from kermit.errors import DecodingError, ModelError, nearest, placed
from kermit.folders import named_or_bundled, read_config, reading
from kermit.tasks.translation import Direction, Translation, TranslationScores, score_translations
from kermit.training.families import Family, family_of_model_type
from kermit.training.settings import Settings


class TranslationFamily(Family, Protocol):
    """A family whose models can be asked to translate."""

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
        """Translate the texts, in their order; `progress` is told how many more are done.

        The model is in evaluation mode. The result for a text must not depend on the others.
        """
        ...


@dataclass(frozen=True)
class Translator:
    """A model with its tokenizer, family and languages."""

    family: TranslationFamily
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    languages: tuple[str, str]

    @classmethod
    def load(
        cls, path: str | Path | None = None, device: str | None = None, dtype: torch.dtype = torch.float32
    ) -> Translator:
        """Load from a model folder, or from a training's output folder; onto a GPU where there is one.

        Without a path, the model that comes with the package. Half precision is faster where the machine has
        instructions for it; which texts share a batch can then change one by rounding.
        """
        folder = named_or_bundled(None if path is None else Path(path))
        config = read_config(folder)
        try:
            family = cast("TranslationFamily", family_of_model_type(config.get("model_type", "?")))
        except ModelError as error:
            raise ModelError(f"{folder}: {error}") from error
        with reading(folder):
            place = device or ("cuda" if torch.cuda.is_available() else "cpu")
            model = in_precision(family.load(folder), dtype).to(place).eval()
        languages = config.get("languages") or {"x": "x", "y": "y"}
        return cls(family, model, load_tokenizer(folder), (languages["x"], languages["y"]))

    def directions(self) -> list[Direction]:
        """The directions that the model was trained for."""
        trained = getattr(self.model.config, "factorizations", None) or [Factorization.JOINT.value]
        return directions_of([Factorization(name) for name in trained], self.languages)

    def direction_to(self, target: str) -> Direction:
        """The direction into a language; `x` and `y` always work."""
        target = dict(zip("xy", self.languages, strict=True)).get(target, target)
        if target not in self.languages:
            raise ModelError(
                f"the model's languages are {' and '.join(self.languages)}; it cannot translate to {target}"
            )
        source = self.languages[0] if target == self.languages[1] else self.languages[1]
        return self.check(Direction(source, target))

    def check(self, direction: Direction) -> Direction:
        """Return the direction if the model was trained for it."""
        if direction not in self.directions():
            known = ", ".join(str(known) for known in self.directions())
            raise ModelError(f"the model was not trained for {direction}, only for {known}")
        return direction

    def decoding(self, **choices: Any) -> Settings:
        """The family's decoding settings with these choices, and what else translating takes; unknown ones are errors.

        Those are the model's own termination penalty, except from left to right, and, where candidates are ranked, a
        length reward.
        """
        own = getattr(self.model.config, "termination_penalty", None)
        if choices.get("strategy") == Strategy.LEFT_TO_RIGHT:
            own = None
        given = {} if own is None else {"termination_penalty": own}
        if (choices.get("candidates") or 1) != 1 and "length_reward" in self.family.decoding_settings.model_fields:
            given["length_reward"] = LENGTH_REWARD
        given |= {key: value for key, value in choices.items() if value is not None}
        fields = [name for name in self.family.decoding_settings.model_fields if name != "seed"]
        known = ", ".join(fields)  # for a seed the command line has an option
        if unknown := [key for key in given if key not in (*fields, "seed")]:
            if unknown[0] == "strategy":
                raise DecodingError(
                    f"the family {self.family.name} does not insert, neither serially nor in parallel; leave it out"
                )
            raise DecodingError(
                f"the family {self.family.name} has no decoding setting {unknown[0]!r}{nearest(unknown[0], fields)};"
                f" known: {known}"
            )
        try:
            return self.family.decoding_settings(**given)
        except ValidationError as error:
            problem = error.errors()[0]
            key, what = ".".join(str(part) for part in problem["loc"]), problem["msg"].removeprefix("Value error, ")
            if not key:
                raise DecodingError(f"decoding settings of the family {self.family.name}: {what}") from error
            raise DecodingError(
                f"decoding setting {key!r} of the family {self.family.name}: {what}; known: {known}"
            ) from error

    def translate(
        self,
        texts: Sequence[str],
        direction: Direction,
        decoding: Settings | None = None,
        *,
        trace: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> list[Translation]:
        """Translate texts, in their order.

        Raises:
            ModelError: the model was not trained for the direction (or both of them, to rank both ways), or makes no
                rounds to trace.
        """
        self.check(direction)
        if trace and "strategy" not in self.family.decoding_settings.model_fields:
            raise ModelError(f"the family {self.family.name} does not insert; there are no rounds to trace")
        chosen = self.decoding() if decoding is None else decoding
        if getattr(chosen, "ranking", None) is Ranking.BOTH_WAYS:
            try:
                self.check(Direction(direction.target, direction.source))
            except ModelError as error:
                raise ModelError(f"ranking both_ways asks in both directions: {error}; rank by `again`") from error
        with torch.inference_mode():
            return self.family.translate(
                self.model, self.tokenizer, texts, direction, chosen, trace=trace, progress=progress
            )

    def evaluate(
        self,
        pairs: Sequence[Pair],
        direction: Direction,
        decoding: Settings | None = None,
        *,
        note: str = "",
        progress: Callable[[int], None] | None = None,
    ) -> tuple[TranslationScores, list[Translation]]:
        """Translate one side of the pairs and score it against the other; errors of a text name its place."""
        forward = direction == Direction(*self.languages)
        sources = [pair.x if forward else pair.y for pair in pairs]
        references = [pair.y if forward else pair.x for pair in pairs]
        start = time.perf_counter()
        with placed([pair.places[0 if forward else 1] for pair in pairs]):
            translations = self.translate(sources, direction, decoding, progress=progress)
        seconds = time.perf_counter() - start
        return score_translations(translations, references, direction, seconds=seconds, note=note), translations


def in_precision(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """Cast a model's weights, and leave what it computes positions from (rotary frequencies) as exact as it is."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def directions_of(factorizations: Collection[Factorization], languages: tuple[str, str]) -> list[Direction]:
    """The directions of translation that a mix of factorizations trains."""
    x, y = languages
    ways = {Factorization.Y_GIVEN_X: Direction(x, y), Factorization.X_GIVEN_Y: Direction(y, x)}
    return [way for name, way in ways.items() if {name, Factorization.JOINT} & set(factorizations)]
