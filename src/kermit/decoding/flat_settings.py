"""Decoding settings under flat names, as recipes, `--set NAME=VALUE` and requests give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from kermit.decoding.settings import DEFAULT_SAMPLING, LENGTH_REWARD, DecodingSettings, Ranking, Sampling, Strategy
from kermit.decoding.strategies import strategies_of
from kermit.engines.engine import ModelInfo
from kermit.errors import DecodingError, member_of, nearest


@dataclass(frozen=True)
class DecodingChoices:
    """How to decode, with plain values; see `DecodingSettings`.

    A temperature, top_k or top_p draws tokens instead of taking the best ones.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  # a section of recipes

    strategy: Strategy | None = None
    termination_penalty: float | None = None
    early_finish: float | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    max_rounds: int | None = None
    max_tokens: int | None = None
    max_repeats: int | None = None
    beams: int = 1
    candidates: int = 1
    ranking: Ranking | None = None
    length_reward: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _ENUMS:
                if value is not None:
                    member = member_of(_ENUMS[field.name], value, field.name, DecodingError)
                    object.__setattr__(self, field.name, member)
            elif value is not None:
                kind, name = (int, "a whole number") if field.name in _WHOLE else (int | float, "a number")
                if isinstance(value, bool) or not isinstance(value, kind):
                    raise DecodingError(f"{field.name} must be {name}, not {value!r}")
        settings = self.settings()  # which checks the values
        if self.seed and not settings.draws:
            raise DecodingError("seed has no effect without sampling; leave it out, or set a temperature")

    @classmethod
    def of(cls, choices: Mapping[str, Any]) -> DecodingChoices:
        """Check choices by name; None stands for the default."""
        names = [field.name for field in fields(cls)]
        known = [name for name in names if name != "seed"]  # verbs have an option for it
        for name in choices:
            if name not in names:
                raise DecodingError(
                    f"unknown decoding setting {name!r}{nearest(name, known)}; known: {', '.join(known)}"
                )
        return cls(**{name: value for name, value in choices.items() if value is not None})

    def settings(self) -> DecodingSettings:
        """Return the decoder's settings."""
        sampling = None
        if any(value is not None for value in (self.temperature, self.top_k, self.top_p)):
            temperature = DEFAULT_SAMPLING.temperature if self.temperature is None else self.temperature
            sampling = Sampling(temperature, self.top_k, self.top_p)
        shared = {field.name for field in fields(self)} & {field.name for field in fields(DecodingSettings)}
        return DecodingSettings(sampling=sampling, **{name: getattr(self, name) for name in shared})

    def seeds(self, count: int) -> range:
        """Return one seed per text: the first text's is `seed`, the others follow."""
        return range(self.seed, self.seed + count)

    def record(self) -> dict[str, Any]:
        """Return the choices as plain data, for signatures and manifests."""
        return asdict(self)


_Chosen = TypeVar("_Chosen", DecodingChoices, DecodingSettings)


def for_translating(info: ModelInfo, chosen: _Chosen) -> _Chosen:
    """Complete choices or settings by what translating with a model uses by default."""
    found = replace(chosen, strategy=chosen.strategy or strategies_of(info)[0])
    if found.termination_penalty is None and found.strategy is not Strategy.LEFT_TO_RIGHT:
        found = replace(found, termination_penalty=info.termination_penalty)
    if found.candidates > 1 and found.length_reward is None:
        found = replace(found, length_reward=LENGTH_REWARD)
    return found


_ENUMS: Mapping[str, Any] = {"strategy": Strategy, "ranking": Ranking}
_WHOLE = ("top_k", "max_rounds", "max_tokens", "max_repeats", "beams", "candidates", "seed")
