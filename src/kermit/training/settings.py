"""The sections of a recipe that are the same for every task and family.

Field names are the recipe's keys. A task defines the sections `data` and `evaluation`, a family `model`, `objective`
and `decoding`; `kermit.training.recipe` combines them.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from kermit.data.plain import OnBad
from kermit.validated_settings import FactorizationMix, Fraction, NotNegative, OrderMix, Settings, Share

Seed = Annotated[int, Field(ge=0, lt=2**32)]


class SourceSettings(Settings):
    """Base of a task's source of text; `weight` is the number of times each text occurs per epoch.

    `orders` overrides the recipe's mix of insertion orders for these texts, `infilling` that of the objective.
    """

    name: str = ""
    weight: PositiveFloat = 1.0
    orders: OrderMix | None = None
    infilling: Fraction | None = None

    def mix(self, default: FactorizationMix) -> FactorizationMix:
        """Return the factorizations of these texts, given those of the recipe."""
        return default

    def under(self, folder: Path) -> Self:
        """Return the source with relative paths resolved against a folder."""
        return self

    def checksum(self) -> str:
        """Return a checksum of the texts and of how they are read."""
        raise NotImplementedError

    def checksums(self, data: Path) -> dict[str, str]:
        """Return a checksum of each file, by its name in the recipe; empty if changes are not detected."""
        return {}


class TextSettings(Settings):
    """Base of a task's `data`: the text to train on and to validate with."""

    train: tuple[SourceSettings, ...] = Field(min_length=1)
    validation: SourceSettings | None = None
    max_tokens: PositiveInt = 128
    on_bad: OnBad = OnBad.ERROR

    @property
    def sources(self) -> dict[str, SourceSettings]:
        """The sources of both, by their place in a recipe."""
        found = {f"data.train.{number}": source for number, source in enumerate(self.train)}
        return found if self.validation is None else found | {"data.validation": self.validation}

    @model_validator(mode="after")
    def _validation_once(self) -> TextSettings:
        if self.validation is not None and self.validation.weight != 1:
            raise ValueError("validation.weight: every validation text counts once; leave it out")
        return self


class TokenizerSettings(Settings):
    """A tokenizer to train (`vocab_size`, on `texts` or else on all training files), or one to load (`path`).

    With `split_digits` every digit is a separate token. With `replaces` the tokenizer replaces that of the model
    `init_from`.
    """

    vocab_size: PositiveInt | None = None
    texts: tuple[str, ...] = ()
    split_digits: bool = False
    path: str | None = None
    replaces: bool = False

    @model_validator(mode="after")
    def _train_or_load(self) -> TokenizerSettings:
        if (self.vocab_size is None) == (self.path is None):
            raise ValueError("give either vocab_size, to train a tokenizer, or path, to load one")
        if self.path is not None and self.texts:
            raise ValueError("texts apply only when training a tokenizer, but path loads one; leave them out")
        if self.path is not None and self.split_digits:
            raise ValueError("split_digits applies only when training a tokenizer; leave it out, or give vocab_size")
        return self


class BatchSettings(Settings):
    """The size of a step: tokens per batch, including special tokens and padding, and batches per step."""

    tokens: PositiveInt = 4096
    accumulate: PositiveInt = 1


class OptimizerSettings(Settings):
    """AdamW for everything, or Muon for the matrices of the layers with AdamW for the rest.

    `muon_learning_rate` is Muon's peak, comparable in scale to AdamW's; both follow the same schedule.
    """

    name: Literal["adamw", "muon"] = "adamw"
    learning_rate: PositiveFloat = 1e-3
    muon_learning_rate: PositiveFloat = 1e-3
    momentum: Share = 0.95
    betas: tuple[Share, Share] = (0.9, 0.98)
    epsilon: PositiveFloat = 1e-9
    weight_decay: NotNegative = 0.01
    clip_norm: NotNegative = 1.0

    @model_validator(mode="after")
    def _nothing_in_vain(self) -> OptimizerSettings:
        if self.name != "muon":
            for name in self.changed("muon_learning_rate", "momentum"):
                raise ValueError(f"{name} applies only to muon; leave it out, or set name: muon")
        return self


class ScheduleSettings(Settings):
    """Length and learning rate: a linear warm-up, the named shape, a linear cool-down to `final`.

    `cooldown_steps` are the last of `max_steps`; `final` is the fraction of the peak at the end of cosine, linear or a
    cool-down.
    """

    name: Literal["inverse_sqrt", "cosine", "linear", "constant"] = "inverse_sqrt"
    max_steps: PositiveInt
    max_minutes: PositiveFloat | None = None
    warmup_steps: Annotated[int, Field(ge=0)] = 1000
    cooldown_steps: Annotated[int, Field(ge=0)] = 0
    final: Fraction = 0.0

    @model_validator(mode="after")
    def _consistent(self) -> ScheduleSettings:
        if self.cooldown_steps and self.warmup_steps + self.cooldown_steps > self.max_steps:
            raise ValueError(
                f"cooldown_steps: {self.cooldown_steps} cooldown_steps and {self.warmup_steps} warmup_steps exceed"
                f" {self.max_steps} max_steps; lower one of them"
            )
        if self.final and not self.cooldown_steps and self.name in ("inverse_sqrt", "constant"):
            raise ValueError(
                f"final has no effect on {self.name} without a cool-down; leave it out, or add cooldown_steps"
            )
        return self


class AveragingSettings(Settings):
    """The decay of the moving average of the weights that is evaluated and saved; None for the last weights.

    The decay is lower in the first steps, so that they quickly lose their influence.
    """

    ema: Share | None = None


class EvaluationSettings(Settings):
    """When to evaluate the model on the validation text, and on how many texts."""

    every: PositiveInt = 1000
    texts: PositiveInt = 500


class CheckpointSettings(Settings):
    """When to write a checkpoint, and how many to keep."""

    every: PositiveInt = 500
    keep: PositiveInt = 2


class Precision(StrEnum):
    """Data type of the forward and backward pass; weights stay float32."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class RuntimeSettings(Settings):
    """Settings that affect speed, not what is learned."""

    precision: Precision = Precision.FLOAT32
    gradient_checkpointing: bool = False
    workers: Annotated[int, Field(ge=0)] = 0
    log_every: PositiveInt = 50
