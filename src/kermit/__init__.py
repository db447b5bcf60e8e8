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
        Factorization as Factorization,
        Insertion as Insertion,
        Segment as Segment,
        SpecialTokens as SpecialTokens,
    )
    from kermit.canvas_batch import CanvasBatch as CanvasBatch
    from kermit.decoding import (
        Constraints as Constraints,
        DecodingSettings as DecodingSettings,
        Ranking as Ranking,
        Sampling as Sampling,
        Strategy as Strategy,
        decode as decode,
    )
    from kermit.errors import KermitError as KermitError
    from kermit.modeling import (
        KermitConfig as KermitConfig,
        KermitForInsertion as KermitForInsertion,
        KermitForSequenceClassification as KermitForSequenceClassification,
        KermitModel as KermitModel,
    )
    from kermit.objective import LowerBoundObjective as LowerBoundObjective, SlotObjective as SlotObjective
    from kermit.orders import (
        BalancedTreePrior as BalancedTreePrior,
        LeftToRightPrior as LeftToRightPrior,
        OrderPrior as OrderPrior,
        UniformPrior as UniformPrior,
    )
    from kermit.pipeline import Kermit as Kermit
    from kermit.results import Generation as Generation, Score as Score
    from kermit.slots import InsertionModel as InsertionModel, Termination as Termination
    from kermit.texts import Texts as Texts

_HOMES = {
    "BalancedTreePrior": "orders",
    "Canvas": "canvas",
    "CanvasBatch": "canvas_batch",
    "Constraints": "decoding",
    "DecodingSettings": "decoding",
    "Factorization": "canvas",
    "Generation": "results",
    "Insertion": "canvas",
    "InsertionModel": "slots",
    "Kermit": "pipeline",
    "KermitConfig": "modeling",
    "KermitError": "errors",
    "KermitForInsertion": "modeling",
    "KermitForSequenceClassification": "modeling",
    "KermitModel": "modeling",
    "LeftToRightPrior": "orders",
    "LowerBoundObjective": "objective",
    "OrderPrior": "orders",
    "Ranking": "decoding",
    "Sampling": "decoding",
    "Score": "results",
    "Segment": "canvas",
    "SlotObjective": "objective",
    "SpecialTokens": "canvas",
    "Strategy": "decoding",
    "Termination": "slots",
    "Texts": "texts",
    "UniformPrior": "orders",
    "decode": "decoding",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kermit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kermit.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
