"""The parts of a recipe that are the same for every task and family of models, each a small validated record.

Field names are the recipe's keys. What differs between tasks (the text, the evaluation) is declared by the task, what
differs between families (the model's shape, the objective, the decoding) by the family, as subclasses of `Settings`;
`kermit.training.recipe` puts the parts together.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from kermit.canvas import Factorization
from kermit.data.plain import OnBad

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
FactorizationMix = dict[Factorization, PositiveFloat]
OrderMix = Annotated[dict[str, PositiveFloat], Field(min_length=1)]


class Settings(BaseModel):
    """Base of every part of a recipe: unknown keys are errors, nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def changed(self, *names: str) -> list[str]:
        """Which of these settings are not those that are taken by default."""
        return [name for name in names if getattr(self, name) != type(self).model_fields[name].default]

    def for_validation(self) -> Settings:
        """Return the settings without what only training leaves to chance; an objective may have such."""
        return self


class SourceSettings(Settings):
    """Base of a task's source of text; `weight` is how often an epoch holds each of its texts.

    `orders` overrides the recipe's mix of insertion orders for these texts.
    """

    name: str = ""
    weight: PositiveFloat = 1.0
    orders: OrderMix | None = None

    def mix(self, default: FactorizationMix) -> FactorizationMix:
        """What is generated from these texts, given what the recipe says of all."""
        return default

    def checksums(self, data: Path) -> dict[str, str]:
        """A hash of all that is read, file by file as the recipe names them; none where a change may go unnoticed."""
        return {}


class TextSettings(Settings):
    """Base of a task's `data`: the text to train on and to validate with."""

    train: tuple[SourceSettings, ...] = Field(min_length=1)
    validation: SourceSettings | None = None
    max_tokens: PositiveInt = 128
    on_bad: OnBad = OnBad.ERROR

    @model_validator(mode="after")
    def _validation_once(self) -> TextSettings:
        if self.validation is not None and self.validation.weight != 1:
            raise ValueError("validation.weight: every validation text is judged once; leave it out")
        return self


class TokenizerSettings(Settings):
    """A tokenizer to train (`vocab_size`, on `texts` or else on all training files), or one to load (`path`).

    With `split_digits` every digit is a token of its own. With `replaces` the tokenizer takes the place of the one that
    `init_from` was trained with.
    """

    vocab_size: PositiveInt | None = None
    texts: tuple[str, ...] = ()
    split_digits: bool = False
    path: str | None = None
    replaces: bool = False

    @model_validator(mode="after")
    def _train_or_load(self) -> TokenizerSettings:
        if (self.vocab_size is None) == (self.path is None):
            raise ValueError("give either vocab_size, to train one, or path, to load one")
        if self.path is not None and self.texts:
            raise ValueError("texts are for training one, and path loads one that is trained; leave them out")
        if self.path is not None and self.split_digits:
            raise ValueError("split_digits applies only when training a tokenizer; leave it out, or give vocab_size")
        return self


class BatchSettings(Settings):
    """The size of a step: tokens a batch with specials and padding, and batches a step."""

    tokens: PositiveInt = 4096
    accumulate: PositiveInt = 1


class OptimizerName(StrEnum):
    """The optimisers on offer."""

    ADAMW = "adamw"
    MUON = "muon"


class OptimizerSettings(Settings):
    """AdamW for everything, or Muon for the matrices of the layers with AdamW for the rest.

    `muon_learning_rate` is Muon's own peak, scaled so that AdamW's is comparable; both follow the same schedule.
    """

    name: OptimizerName = OptimizerName.ADAMW
    learning_rate: PositiveFloat = 1e-3
    muon_learning_rate: PositiveFloat = 1e-3
    momentum: Share = 0.95
    betas: tuple[Share, Share] = (0.9, 0.98)
    epsilon: PositiveFloat = 1e-9
    weight_decay: NotNegative = 0.01
    clip_norm: NotNegative = 1.0

    @model_validator(mode="after")
    def _nothing_in_vain(self) -> OptimizerSettings:
        if self.name is not OptimizerName.MUON:
            for name in self.changed("muon_learning_rate", "momentum"):
                raise ValueError(f"{name} is for muon, and {self.name} has none; leave it out, or set name: muon")
        return self


class ScheduleName(StrEnum):
    """How the learning rate goes after the warm-up."""

    INVERSE_SQRT = "inverse_sqrt"
    COSINE = "cosine"
    LINEAR = "linear"
    CONSTANT = "constant"


class ScheduleSettings(Settings):
    """How long, and with which learning rate: a linear warm-up, the named course, a linear cool-down to `final`.

    `cooldown_steps` are the last of `max_steps`; `final` is the fraction of the peak that is left at the end of
    cosine, linear or a cool-down.
    """

    name: ScheduleName = ScheduleName.INVERSE_SQRT
    max_steps: PositiveInt
    max_minutes: PositiveFloat | None = None
    warmup_steps: Annotated[int, Field(ge=0)] = 1000
    cooldown_steps: Annotated[int, Field(ge=0)] = 0
    final: Fraction = 0.0

    @model_validator(mode="after")
    def _room_to_cool_down(self) -> ScheduleSettings:
        if self.cooldown_steps and self.warmup_steps + self.cooldown_steps > self.max_steps:
            raise ValueError(
                f"cooldown_steps: {self.cooldown_steps} and {self.warmup_steps} warmup_steps are more than all"
                f" {self.max_steps} max_steps; lower one of them"
            )
        return self

    @model_validator(mode="after")
    def _nothing_in_vain(self) -> ScheduleSettings:
        if self.final and not self.cooldown_steps and self.name in (ScheduleName.INVERSE_SQRT, ScheduleName.CONSTANT):
            raise ValueError(
                f"final is where a course ends, and {self.name} goes on; leave it out, or add cooldown_steps"
            )
        return self


class AveragingSettings(Settings):
    """Which weights are evaluated and kept: an exponential moving average, the mean of the last checkpoints, or last.

    With `ema` the average is warmed up, so that early steps are soon forgotten.
    """

    ema: Share | None = None
    checkpoints: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _one(self) -> AveragingSettings:
        if self.ema is not None and self.checkpoints > 1:
            raise ValueError("choose ema or checkpoints, not both")
        return self


class EvaluationSettings(Settings):
    """When to judge the model on the validation text, and on how many of its texts."""

    every: PositiveInt = 1000
    texts: PositiveInt = 500


class CheckpointSettings(Settings):
    """When to write a checkpoint to resume from, and how many to keep."""

    every: PositiveInt = 500
    keep: PositiveInt = 2


class Precision(StrEnum):
    """Number formats of the forward and backward pass; weights stay float32."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class RuntimeSettings(Settings):
    """What decides the speed and not the result."""

    precision: Precision = Precision.FLOAT32
    gradient_checkpointing: bool = False
    fast_dropout: bool = True
    workers: Annotated[int, Field(ge=0)] = 0
    log_every: PositiveInt = 50


class FamilySettings(Settings):
    """Base of a family's model settings; `family` names it."""

    family: str
