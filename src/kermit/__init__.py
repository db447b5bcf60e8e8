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
    from kermit.objectives import (
        BalancedTreePrior as BalancedTreePrior,
        GenerationObjective as GenerationObjective,
        LeftToRightPrior as LeftToRightPrior,
        LowerBoundObjective as LowerBoundObjective,
        OrderPrior as OrderPrior,
        SlotObjective as SlotObjective,
        Texts as Texts,
        UniformPrior as UniformPrior,
    )
    from kermit.pipeline import Kermit as Kermit
    from kermit.results import Generation as Generation, Score as Score

_HOMES = {
    "BalancedTreePrior": "objectives",
    "Canvas": "canvas",
    "CanvasBatch": "canvas",
    "Constraints": "decoding",
    "DecodingSettings": "decoding",
    "Engine": "engines",
    "Factorization": "canvas",
    "Generation": "results",
    "GenerationObjective": "objectives",
    "Insertion": "canvas",
    "Kermit": "pipeline",
    "KermitConfig": "modeling",
    "KermitError": "errors",
    "KermitForInsertion": "modeling",
    "KermitForSequenceClassification": "modeling",
    "KermitModel": "modeling",
    "LeftToRightPrior": "objectives",
    "LowerBoundObjective": "objectives",
    "OrderPrior": "objectives",
    "Ranking": "decoding",
    "Sampling": "decoding",
    "Score": "results",
    "Segment": "canvas",
    "SlotObjective": "objectives",
    "SpecialTokens": "canvas",
    "Strategy": "decoding",
    "Termination": "canvas",
    "Texts": "objectives",
    "UniformPrior": "objectives",
    "decode": "decoding",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kermit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kermit.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
