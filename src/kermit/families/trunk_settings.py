"""The trunk of a recipe's model: a configuration of transformers for a new one, or a checkpoint to start from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import PositiveInt, model_validator
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from kermit.errors import RecipeError, in_a_line, nearest
from kermit.loading import lacking_in_trunk, library_errors
from kermit.validated_settings import FamilySettings, Share

_T = TypeVar("_T")


class EncoderDecoderSettings(FamilySettings):
    """The shape of a new model with an encoder and a decoder."""

    width: PositiveInt = 512
    feedforward: PositiveInt = 2048
    encoder_layers: PositiveInt = 6
    decoder_layers: PositiveInt = 6
    heads: PositiveInt = 8
    dropout: Share = 0.1

    @model_validator(mode="after")
    def _whole_heads(self) -> EncoderDecoderSettings:
        if self.width % self.heads:
            raise ValueError(f"heads: a width of {self.width} cannot be divided by {self.heads}; change one of them")
        return self


class TrunkSettings(FamilySettings):
    """The trunk: a configuration of transformers, or a checkpoint to start from (a folder or a name on the Hub).

    With `trunk_from`, `trunk` holds changes to the checkpoint's own configuration, such as dropout.
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
        """Load the checkpoint as a model of a class of transformers; `role` are configuration values that it needs."""
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
                " would be random; use a complete checkpoint"
            )
        return model


def new_trunk_config(settings: TrunkSettings, tokenizer: PreTrainedTokenizerFast, **role: Any) -> PreTrainedConfig:
    """Return the configuration of a new trunk for a tokenizer; `role` as in `TrunkSettings.load`."""
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
    """Return whether a configuration class reads a key that it does not store, such as an older name."""
    return any(f'"{name}"' in inspect.getsource(base) for base in kind.__mro__ if issubclass(base, PreTrainedConfig))


def _refuse_unknown(names: Sequence[str], config: PreTrainedConfig) -> None:
    """Raise for the first unknown key of a configuration, if there are any."""
    if names:
        guess = nearest(names[0], sorted(config.to_dict()))
        raise RecipeError(f"model.trunk.{names[0]}: unknown key for a {config.model_type} configuration{guess}")


def _changed(config: PreTrainedConfig, changes: dict[str, Any]) -> PreTrainedConfig:
    """Set the attributes that a configuration has, and ignore the others."""
    for name, value in changes.items():
        if hasattr(config, name):
            setattr(config, name, value)
    return config


def made(place: str, make: Callable[[], _T]) -> _T:
    """Call `make`; turn what transformers raises into a RecipeError about the recipe's key at `place`."""
    wrong: tuple[type[Exception], ...] = (TypeError, *library_errors())
    try:
        return make()
    except wrong as error:
        raise RecipeError(f"{place}: {in_a_line(error)}") from error
