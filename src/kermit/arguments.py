"""Arguments of the methods of `kermit.pipeline.Kermit`: one text or many, of either side or both, and options.

One string gives one result; any iterable of strings, generators included, gives a list. Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from kermit.canvas import Factorization, Segment
from kermit.decoding import DEFAULT_SAMPLING, DecodingSettings, OnRound, TracedRounds
from kermit.decoding.flat_settings import DecodingChoices
from kermit.errors import DataError, DecodingError
from kermit.objectives.orders import OrderPrior
from kermit.results import ScoreMethod

TextOrTexts = str | Iterable[str]
SettingsLike = DecodingSettings | Mapping[str, Any] | Any
"""Decoding settings, or a mapping of their flat names to values; a family with its own search has its own settings."""


class GenerationOptions(TypedDict, total=False):
    """Options of every method that generates.

    Attributes:
        settings: how to decode: `DecodingSettings`, or a mapping such as ``{"temperature": 0.7}``.
        seeds: one seed per text, for sampling; 0, 1, 2, ... by default.
        begun: the rounds already decided for each text, as in a trace; decoding continues after them.
        trace: whether to record the rounds.
        on_progress: called with the number of texts just finished.
        on_round: called after every round; see `kermit.decoding.decode`.
    """

    settings: SettingsLike | None
    seeds: Iterable[int] | None
    begun: Iterable[TracedRounds] | None
    trace: bool
    on_progress: Callable[[int], object] | None
    on_round: OnRound | None


class TranslationOptions(GenerationOptions, total=False):
    """Options of translating.

    Attributes:
        split_sentences: whether to translate a text of several sentences sentence by sentence; True by default.
            With `begun` or `on_round`, texts are translated whole.
        recase: whether to read a sentence in capitals in sentence case and write its translation in capitals; True by
            default.
    """

    split_sentences: bool
    recase: bool


class FillingOptions(GenerationOptions, total=False):
    """Options of infilling and completing.

    Attributes:
        side: the language of texts given without their other side; ``x`` by default.
        keep_words: whether given words stay whole; True by default. Nothing is glued to a word unless a blank touches
            it.
    """

    side: str | None
    keep_words: bool


class ScoreOptions(TypedDict, total=False):
    """Options of scoring.

    Attributes:
        side: the language of texts given without their other side; ``x`` by default.
        factorization: which sides to score, and which to condition on; by default everything given is scored.
        method: ``importance`` by default; ``exact`` for short texts, ``bound`` or ``paper_bound``; or
            ``left_to_right``, exact under that order.
        prior: the distribution that orders are drawn from; uniform by default.
        orders: number of orders to draw; 16 by default.
        seed: of the random orders; every text starts from it. 0 by default.
        on_batch: called after every batch of canvases; raise an exception in it to stop.
    """

    side: str | None
    factorization: Factorization | str | None
    method: ScoreMethod
    prior: OrderPrior | None
    orders: int
    seed: int
    on_batch: Callable[[], object] | None


def check_options(options: Mapping[str, Any], kind: Any = GenerationOptions) -> None:
    """Raise `TypeError` for an unknown option, as Python does for an unknown argument."""
    known = sorted(kind.__optional_keys__)
    for name in options:
        if name not in known:
            raise TypeError(f"unexpected keyword argument {name!r}; known: {', '.join(known)}")


@dataclass(frozen=True)
class GivenTexts:
    """Texts of either side, None if it was not given; `single` is whether one string was given, for one result."""

    x: list[str] | None
    y: list[str] | None
    single: bool

    @classmethod
    def of(
        cls, x: TextOrTexts | None, y: TextOrTexts | None = None, side: str | None = None, *, on_y: bool = False
    ) -> GivenTexts:
        """Read and check texts; `x` alone is of the language `side`, which is the second if `on_y`."""
        if side is not None and (x is None or y is not None):
            raise DataError("side can only be given with x alone; remove it, or give x without y")
        if x is not None and y is not None and isinstance(x, str) is not isinstance(y, str):
            raise DataError("one side is a single text and the other is a list; give two texts or two lists")
        single = isinstance(y if x is None else x, str)
        first, second = _read(x), _read(y)
        if first is None and second is None:
            raise DataError("no text given; give x, y or both")
        if first is not None and second is not None and len(first) != len(second):
            raise DataError(f"{len(first)} texts in x but {len(second)} in y; give the same number of both")
        return cls(None, first, single) if on_y and second is None else cls(first, second, single)

    @property
    def texts(self) -> list[str]:
        """The texts of the only side."""
        texts = self.y if self.x is None else self.x
        assert texts is not None
        return texts

    @property
    def alone(self) -> Segment | None:
        """The only side that was given; None for pairs."""
        if self.x is not None and self.y is not None:
            return None
        return Segment.X if self.y is None else Segment.Y

    def pairs(self, absent: str | None) -> list[tuple[str, str | None]]:
        """Return the texts as pairs; `absent` stands for a missing second side, an empty text for a missing first."""
        first = [""] * len(self.texts) if self.x is None else self.x
        second = [absent] * len(self.texts) if self.y is None else self.y
        return list(zip(first, second, strict=True))

    def result(self, results: Any) -> Any:
        """Return the only result for a single text, otherwise all of them."""
        return results[0] if self.single else results


def _read(texts: TextOrTexts | None) -> list[str] | None:
    if texts is None:
        return None
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | Mapping):
        raise DataError(f"texts must be a string or an iterable of strings, not {type(texts).__name__}")
    found = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(found):
        if not isinstance(text, str):
            raise DataError(f"must be a string, not {type(text).__name__}", text=number)
    return found


def settings_from(choices: object, *, draws: bool = False) -> DecodingSettings:
    """Build decoding settings from a mapping of flat names.

    With `draws`, tokens are sampled: as `DEFAULT_SAMPLING` if no option of sampling is named, and not at all if the
    temperature is None.
    """
    if not isinstance(choices, Mapping):
        raise DecodingError(
            "settings must be DecodingSettings or a mapping such as {'temperature': 0.7}, not"
            f" {type(choices).__name__}"
        )
    if "seed" in choices:
        raise DecodingError("settings have no seed; give seeds, one per text")
    chosen = dict(choices)
    if draws and not {"temperature", "top_k", "top_p"} & chosen.keys():
        chosen |= vars(DEFAULT_SAMPLING)
    return DecodingChoices.of(chosen).settings()
