"""KERMIT: generative modelling of texts and pairs of texts by insertion.

Public names are imported on first use, so that ``import kermit`` is fast and needs no torch. Importing
``kermit.modeling`` registers KERMIT's models with the Auto classes of transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kermit.canvas import Canvas, CanvasBatch, Factorization, Insertion, Segment, SpecialTokens, Termination
    from kermit.decoding import Constraints, DecodingSettings, Ranking, Sampling, Strategy, decode
    from kermit.engines import Engine
    from kermit.errors import KermitError
    from kermit.modeling import KermitConfig, KermitForInsertion, KermitForSequenceClassification, KermitModel
    from kermit.objectives.generations import GenerationObjective
    from kermit.objectives.objective import LowerBoundObjective, SlotObjective
    from kermit.objectives.orders import BalancedTreePrior, LeftToRightPrior, OrderPrior, UniformPrior
    from kermit.objectives.training_canvases import Texts
    from kermit.pipeline import Kermit
    from kermit.results import Generation, Score

__all__ = [
    "BalancedTreePrior", "Canvas", "CanvasBatch", "Constraints", "DecodingSettings", "Engine", "Factorization",
    "Generation", "GenerationObjective", "Insertion", "Kermit", "KermitConfig", "KermitError", "KermitForInsertion",
    "KermitForSequenceClassification", "KermitModel", "LeftToRightPrior", "LowerBoundObjective", "OrderPrior",
    "Ranking", "Sampling", "Score", "Segment", "SlotObjective", "SpecialTokens", "Strategy", "Termination", "Texts",
    "UniformPrior", "decode",
]  # fmt: skip

_NAMES = {
    "canvas": "Canvas CanvasBatch Factorization Insertion Segment SpecialTokens Termination",
    "decoding": "Constraints DecodingSettings Ranking Sampling Strategy decode",
    "engines": "Engine",
    "errors": "KermitError",
    "modeling": "KermitConfig KermitForInsertion KermitForSequenceClassification KermitModel",
    "objectives.generations": "GenerationObjective",
    "objectives.objective": "LowerBoundObjective SlotObjective",
    "objectives.orders": "BalancedTreePrior LeftToRightPrior OrderPrior UniformPrior",
    "objectives.training_canvases": "Texts",
    "pipeline": "Kermit",
    "results": "Generation Score",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kermit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kermit.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
