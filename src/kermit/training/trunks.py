"""The trunk that a recipe names: a configuration of transformers for a new one, or a checkpoint to start from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import model_validator
from transformers import AutoConfig, PreTrainedConfig, PreTrainedTokenizerFast

from kermit.errors import RecipeError
from kermit.training.settings import FamilySettings

T = TypeVar("T")


class TrunkSettings(FamilySettings):
    """The trunk, as a configuration of transformers or as a checkpoint to start from, a folder or a name on the Hub."""

    trunk: dict[str, Any] | None = None
    trunk_from: str | None = None

    @model_validator(mode="after")
    def _one_trunk(self) -> TrunkSettings:
        if (self.trunk is None) == (self.trunk_from is None):
            raise ValueError("give either trunk, a configuration, or trunk_from, a checkpoint to start from")
        if self.trunk is not None and "model_type" not in self.trunk:
            raise ValueError("trunk needs a model_type, such as bert or modernbert")
        return self


def new_trunk_config(shape: dict[str, Any], tokenizer: PreTrainedTokenizerFast) -> PreTrainedConfig:
    """The configuration of a new trunk that reads what a tokenizer writes."""
    shape = dict(shape)
    with_tokens = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "cls_token_id": tokenizer.cls_token_id,
        "sep_token_id": tokenizer.sep_token_id,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
    }
    return made("trunk", lambda: AutoConfig.for_model(shape.pop("model_type"), **with_tokens, **shape))


def made(key: str, make: Callable[[], T]) -> T:
    """What `make` makes of the recipe's key `model.KEY`; what transformers has against it is the user's to mend."""
    try:
        return make()
    except (OSError, ValueError, TypeError) as error:
        raise RecipeError(f"model.{key}: {error}") from error
