"""Engines: the protocol that the decoder sees a network through, and what implements it."""

from kermit.engines.engine import Answer, Asked, Cache, Engine, ModelInfo, Rows

__all__ = ["Answer", "Asked", "Cache", "Engine", "ModelInfo", "Rows"]
