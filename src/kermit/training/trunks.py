"""The trunk that a recipe names: a configuration of transformers for a new one, or a checkpoint to start from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import model_validator
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from kermit.errors import RecipeError
from kermit.training.settings import FamilySettings

T = TypeVar("T")


class TrunkSettings(FamilySettings):
    """The trunk, as a configuration of transformers or as a checkpoint to start from, a folder or a name on the Hub.

    Beside `trunk_from`, `trunk` holds what is to be different from the checkpoint's own configuration, such as dropout.
    """

    trunk: dict[str, Any] | None = None
    trunk_from: str | None = None

    @model_validator(mode="after")
    def _some_trunk(self) -> TrunkSettings:
        if self.trunk is None and self.trunk_from is None:
            raise ValueError("give trunk, a configuration, or trunk_from, a checkpoint to start from")
        if self.trunk_from is None and "model_type" not in (self.trunk or {}):
            raise ValueError("trunk needs a model_type, such as bert or modernbert")
        return self

    def load(self, kind: Any, **role: Any) -> PreTrainedModel:
        """The checkpoint as a model of one of transformers' kinds; `role` is what this kind of model needs."""
        assert self.trunk_from is not None
        place, changes = self.trunk_from, {**(self.trunk or {}), **role}
        config = made("model.trunk_from", lambda: AutoConfig.from_pretrained(place))
        if unknown := [name for name in self.trunk or {} if not hasattr(config, name)]:
            raise RecipeError(f"model.trunk: the configuration of {place} has no {', '.join(unknown)}")
        config = _changed(config, changes)
        return made("model.trunk_from", lambda: kind.from_pretrained(place, config=config, dtype="float32"))


def new_trunk_config(settings: TrunkSettings, tokenizer: PreTrainedTokenizerFast, **role: Any) -> PreTrainedConfig:
    """The configuration of a new trunk that reads what a tokenizer writes; `role` as in `TrunkSettings.load`."""
    assert settings.trunk is not None
    shape = dict(settings.trunk)
    tokens = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "cls_token_id": tokenizer.cls_token_id,
        "sep_token_id": tokenizer.sep_token_id,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
    }
    config = made("model.trunk", lambda: AutoConfig.for_model(shape.pop("model_type"), **tokens, **shape))
    return _changed(config, role)


def _changed(config: PreTrainedConfig, changes: dict[str, Any]) -> PreTrainedConfig:
    """The configuration with those of its attributes changed that it has."""
    for name, value in changes.items():
        if hasattr(config, name):
            setattr(config, name, value)
    return config


def made(place: str, make: Callable[[], T]) -> T:
    """What `make` makes of a key of the recipe; what transformers has against it is the user's to mend."""
    try:
        return make()
    except (OSError, ValueError, TypeError) as error:
        raise RecipeError(f"{place}: {error}") from error
