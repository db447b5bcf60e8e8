"""KERMIT: generative modelling of texts and pairs of texts by insertion.

The public names are imported on first use, so that ``import kermit`` costs nothing. It is all that transformers' Auto
classes need to load KERMIT's models.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kermit.registration import register_models

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kermit.canvas import Canvas, CanvasBatch, Factorization, Insertion, Segment, SpecialTokens, Termination
    from kermit.decoding import Constraints, DecodingSettings, Ranking, Sampling, Strategy, decode
    from kermit.engines import Engine
    from kermit.errors import KermitError
    from kermit.modeling import KermitConfig, KermitForInsertion, KermitForSequenceClassification, KermitModel
    from kermit.objectives import (
        BalancedTreePrior,
        GenerationObjective,
        LeftToRightPrior,
        LowerBoundObjective,
        OrderPrior,
        SlotObjective,
        Texts,
        UniformPrior,
    )
    from kermit.pipeline import Kermit
    from kermit.results import Generation, Score

_PLACES = {
    "kermit.canvas": (
        "Canvas",
        "CanvasBatch",
        "Factorization",
        "Insertion",
        "Segment",
        "SpecialTokens",
        "Termination",
    ),
    "kermit.decoding": ("Constraints", "DecodingSettings", "Ranking", "Sampling", "Strategy", "decode"),
    "kermit.engines": ("Engine",),
    "kermit.errors": ("KermitError",),
    "kermit.modeling": ("KermitConfig", "KermitForInsertion", "KermitForSequenceClassification", "KermitModel"),
    "kermit.objectives": (
        "BalancedTreePrior",
        "GenerationObjective",
        "LeftToRightPrior",
        "LowerBoundObjective",
        "OrderPrior",
        "SlotObjective",
        "Texts",
        "UniformPrior",
    ),
    "kermit.pipeline": ("Kermit",),
    "kermit.results": ("Generation", "Score"),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}

__all__ = [
    "BalancedTreePrior",
    "Canvas",
    "CanvasBatch",
    "Constraints",
    "DecodingSettings",
    "Engine",
    "Factorization",
    "Generation",
    "GenerationObjective",
    "Insertion",
    "Kermit",
    "KermitConfig",
    "KermitError",
    "KermitForInsertion",
    "KermitForSequenceClassification",
    "KermitModel",
    "LeftToRightPrior",
    "LowerBoundObjective",
    "OrderPrior",
    "Ranking",
    "Sampling",
    "Score",
    "Segment",
    "SlotObjective",
    "SpecialTokens",
    "Strategy",
    "Termination",
    "Texts",
    "UniformPrior",
    "decode",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'kermit' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACE_OF[name]), name)


register_models()
