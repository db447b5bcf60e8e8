"""Which strategies a model can decode with, and which one it uses if none is asked for."""

from __future__ import annotations

from dataclasses import replace

from kermit.canvas import Termination
from kermit.decoding.settings import DecodingSettings, Strategy
from kermit.engines.engine import ModelInfo
from kermit.errors import DecodingError, ModelError, member_of


def check_strategy(info: ModelInfo, settings: DecodingSettings) -> None:
    """Raise a DecodingError if the model was not trained for the strategy or for the ranking."""
    ordered = settings.strategy is Strategy.LEFT_TO_RIGHT
    if settings.strategy is not Strategy.SERIAL and info.termination is Termination.SEQUENCE:
        raise DecodingError(
            f"{settings.strategy} decoding needs slot termination, because each slot must predict its own end; "
            "decode this model serially, or train one with termination: slot"
        )
    if not (info.inserts_left_to_right if ordered else info.inserts_in_rounds):
        needed = "left_to_right among its orders" if ordered else "an order such as balanced_tree among its orders"
        other = "parallel or serial" if ordered else "left_to_right"
        raise DecodingError(
            f"{settings.strategy} decoding needs a model trained with {needed}; use the strategy {other}"
        )
    if settings.early_finish is not None:
        if settings.strategy is not Strategy.PARALLEL:
            raise DecodingError(f"early_finish needs the strategy parallel, not {settings.strategy}")
        if not info.predicts_completion:
            raise DecodingError(
                "early_finish needs a model that predicts completion (objective.completion_weight in its recipe);"
                " leave it out"
            )
    if settings.beams > 1 and not ordered:
        raise DecodingError(f"beams need the strategy left_to_right, not {settings.strategy}")
    if settings.ranked_by and settings.ranked_by.is_left_to_right and not info.inserts_left_to_right:
        raise DecodingError(
            f"ranking {settings.ranked_by} needs a model trained with left_to_right among its orders; rank by `again`"
        )


def with_strategy(info: ModelInfo, settings: DecodingSettings) -> DecodingSettings:
    """Return the settings with the model's own strategy where they name none."""
    return replace(settings, strategy=strategies_of(info)[0]) if settings.strategy is None else settings


def strategies_of(info: ModelInfo) -> list[Strategy]:
    """List the strategies that the model can decode with, the default first."""
    by_slot = info.termination is Termination.SLOT
    can = {
        Strategy.PARALLEL: by_slot and info.inserts_in_rounds,
        Strategy.SERIAL: info.inserts_in_rounds,
        Strategy.LEFT_TO_RIGHT: by_slot and info.inserts_left_to_right,
    }
    own = None if info.strategy is None else member_of(Strategy, info.strategy, "config.json: strategy", ModelError)
    return sorted((strategy for strategy, possible in can.items() if possible), key=lambda one: one is not own)
