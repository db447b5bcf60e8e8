"""The description of a model, from its config alone."""

import pytest

from kermit.engines.model_info import CONFIG_DEFAULTS, info_from_config
from kermit.errors import ModelError
from kermit.modeling import KermitConfig

SIZES = {"vocab_size": 10, "hidden_size": 4, "max_positions": 64}


def test_missing_config_keys_have_the_defaults_of_the_config_class() -> None:
    for name, value in CONFIG_DEFAULTS.items():
        assert getattr(KermitConfig, name) == value, name
    told, untold = KermitConfig(), {"model_type": "kermit"}
    assert info_from_config(told.to_dict(), **SIZES) == info_from_config(untold, **SIZES)


def test_limits_follow_from_the_positions() -> None:
    restarting = info_from_config({"model_type": "kermit"}, **SIZES)
    assert (restarting.max_segment_length, restarting.max_length) == (62, None)
    running_on = info_from_config({"model_type": "kermit", "positions": "continue"}, **SIZES)
    assert (running_on.max_segment_length, running_on.max_length) == (None, 64)
    unlimited = info_from_config({"model_type": "kermit"}, **SIZES | {"max_positions": None})
    assert (unlimited.max_segment_length, unlimited.max_length) == (None, None)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "bert"}, "of type bert, not kermit"),
        ({}, "of type None, not kermit"),
        ({"model_type": "kermit", "termination": "never"}, "termination must be one of slot, sequence"),
        ({"model_type": "kermit", "languages": ["en", "de"]}, "config.json is invalid"),
        ({"model_type": "kermit", "sep_token_id": 1}, "must be four different token ids"),
    ],
)
def test_a_broken_config_is_rejected(config: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError if "token ids" not in message else ValueError, match=message):
        info_from_config(config, **SIZES)
