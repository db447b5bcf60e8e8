"""The trunk that a recipe names: a configuration of transformers for a new one, or a checkpoint to start from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from huggingface_hub.errors import StrictDataclassError
from pydantic import model_validator
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from kermit.errors import RecipeError, in_a_line, nearest
from kermit.folders import lacking_in_trunk
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
        _refuse_unknown([name for name in self.trunk or {} if not hasattr(config, name)], config)
        config = _changed(config, changes)
        wanted = {"config": config, "dtype": "float32", "output_loading_info": True}
        model, report = made("model.trunk_from", lambda: kind.from_pretrained(place, **wanted))
        if lacking := lacking_in_trunk(model, report):
            raise RecipeError(
                f"model.trunk_from: {place} lacks {len(lacking)} weights of its trunk ({', '.join(lacking[:3])}), which"
                " would be random numbers; name a whole checkpoint"
            )
        return model


def new_trunk_config(settings: TrunkSettings, tokenizer: PreTrainedTokenizerFast, **role: Any) -> PreTrainedConfig:
    """The configuration of a new trunk that reads what a tokenizer writes; `role` as in `TrunkSettings.load`."""
    assert settings.trunk is not None
    shape = dict(settings.trunk)
    kind = str(shape.pop("model_type"))
    if kind not in CONFIG_MAPPING:
        raise RecipeError(f"model.trunk.model_type: transformers has no {kind!r}{nearest(kind, list(CONFIG_MAPPING))}")
    tokens = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "cls_token_id": tokenizer.cls_token_id,
        "sep_token_id": tokenizer.sep_token_id,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
    }
    for name in tokens.keys() & shape:
        raise RecipeError(f"model.trunk.{name}: it follows from the tokenizer; leave it out")
    config = made("model.trunk", lambda: AutoConfig.for_model(kind, **tokens, **shape))
    usual = made("model.trunk", CONFIG_MAPPING[kind])
    _refuse_unknown([name for name in shape if not hasattr(usual, name) and not _is_read(name, type(usual))], usual)
    return _changed(config, role)


def _is_read(name: str, kind: type[PreTrainedConfig]) -> bool:
    """Whether a kind of configuration makes something of a key that it does not keep, such as an older name."""
    return any(f'"{name}"' in inspect.getsource(base) for base in kind.__mro__ if issubclass(base, PreTrainedConfig))


def _refuse_unknown(names: Sequence[str], config: PreTrainedConfig) -> None:
    """Raise for keys that a configuration does not have: nothing would come of them."""
    for name in names:
        guess = nearest(name, sorted(config.to_dict()))
        raise RecipeError(f"model.trunk.{name}: the configuration of {config.model_type} has no such key{guess}")


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
    except (OSError, ValueError, TypeError, KeyError, StrictDataclassError) as error:
        raise RecipeError(f"{place}: {in_a_line(error)}") from error
