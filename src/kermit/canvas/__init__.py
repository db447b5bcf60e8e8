"""Canvases, batches of canvases, text with blanks, and rows of cached context. NumPy only; no model, no tokenizer."""

from kermit.canvas.batch import CanvasBatch
from kermit.canvas.blanks import BLANK, BlankedText
from kermit.canvas.canvas import Canvas, Factorization, Insertion, Segment, SpecialTokens, Termination

__all__ = [
    "BLANK",
    "BlankedText",
    "Canvas",
    "CanvasBatch",
    "Factorization",
    "Insertion",
    "Segment",
    "SpecialTokens",
    "Termination",
]
