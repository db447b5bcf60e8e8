"""Read the properties of a model from its `config.json`: no torch, no transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kermit.canvas import SpecialTokens, Termination
from kermit.canvas.blank_room import BlankRoom
from kermit.engines.engine import MODEL_TYPE, ModelInfo
from kermit.errors import KermitError, ModelError, in_a_line, member_of

CONFIG_DEFAULTS: Mapping[str, Any] = {
    "cached_context": False,
    "blank_token_id": None,
    "blank_width": 16,
    "position_limit": None,
    "termination": "slot",
    "positions": "restart",
    "cls_token_id": 1,
    "sep_token_id": 2,
    "pad_token_id": 0,
    "end_of_slot_token_id": 3,
    "never_generated": (),
    "languages": None,
    "factorizations": None,
    "orders": None,
    "predicts_completion": False,
    "strategy": None,
    "termination_penalty": 0.0,
}
"""The defaults of `kermit.modeling.KermitConfig`."""


def info_from_config(
    config: Mapping[str, Any],
    *,
    vocab_size: int,
    hidden_size: int,
    max_positions: int | None,
    parameters: int | None = None,
) -> ModelInfo:
    """Combine the contents of a config with properties that only the network has."""
    if config.get("model_type") != MODEL_TYPE:
        raise ModelError(f"config.json describes a model of type {config.get('model_type')}, not {MODEL_TYPE}")
    chosen = {name: config.get(name, default) for name, default in CONFIG_DEFAULTS.items()}
    try:
        cached = bool(chosen["cached_context"])
        blank: int | None = chosen["blank_token_id"]
        others = frozenset(chosen["never_generated"]) | (frozenset() if blank is None else {blank})
        restarts = chosen["positions"] == "restart"
        languages = chosen["languages"] or {"x": "x", "y": "y"}
        return ModelInfo(
            specials=SpecialTokens(
                chosen["cls_token_id"],
                chosen["sep_token_id"],
                chosen["pad_token_id"],
                chosen["end_of_slot_token_id"],
                others,
            ),
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            termination=member_of(Termination, chosen["termination"], "config.json: termination", ModelError),
            orders=None if chosen["orders"] is None else frozenset(chosen["orders"]),
            cached_context=cached,
            blank_id=blank if cached else None,
            blank_room=BlankRoom(chosen["blank_width"], chosen["position_limit"]),
            restarts=restarts,
            max_length=None if restarts else max_positions,
            max_segment_length=max_positions - 2 if restarts and max_positions is not None else None,
            languages=(languages["x"], languages["y"]),
            factorizations=frozenset(chosen["factorizations"] or ()),
            strategy=chosen["strategy"],
            predicts_completion=chosen["predicts_completion"],
            termination_penalty=chosen["termination_penalty"],
            parameters=parameters,
        )
    except KermitError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"config.json is invalid: {in_a_line(error)}") from error
