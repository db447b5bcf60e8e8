"""Engines: the protocol through which the decoder uses a network, and its implementations."""

from kermit.engines.engine import Answer, Asked, Cache, Engine, ModelInfo, Rows

__all__ = ["Answer", "Asked", "Cache", "Engine", "ModelInfo", "Rows"]
