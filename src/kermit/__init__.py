"""KERMIT: generative modelling of texts and pairs of texts by insertion.

Public names are imported on first use, so that ``import kermit`` is fast and needs no torch. Importing
``kermit.modeling`` registers KERMIT's models with the Auto classes of transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kermit.canvas import (
        Canvas as Canvas,
        CanvasBatch as CanvasBatch,
        Factorization as Factorization,
        Insertion as Insertion,
        Segment as Segment,
        SpecialTokens as SpecialTokens,
        Termination as Termination,
    )
    from kermit.decoding import (
        Constraints as Constraints,
        DecodingSettings as DecodingSettings,
        Ranking as Ranking,
        Sampling as Sampling,
        Strategy as Strategy,
        decode as decode,
    )
    from kermit.engines import Engine as Engine
    from kermit.errors import KermitError as KermitError
    from kermit.modeling import (
        KermitConfig as KermitConfig,
        KermitForInsertion as KermitForInsertion,
        KermitForSequenceClassification as KermitForSequenceClassification,
        KermitModel as KermitModel,
    )
    from kermit.objectives.generations import GenerationObjective as GenerationObjective
    from kermit.objectives.objective import LowerBoundObjective as LowerBoundObjective, SlotObjective as SlotObjective
    from kermit.objectives.orders import (
        BalancedTreePrior as BalancedTreePrior,
        LeftToRightPrior as LeftToRightPrior,
        OrderPrior as OrderPrior,
        UniformPrior as UniformPrior,
    )
    from kermit.objectives.training_canvases import Texts as Texts
    from kermit.pipeline import Kermit as Kermit
    from kermit.results import Generation as Generation, Score as Score

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

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kermit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kermit.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
