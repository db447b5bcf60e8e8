"""Decoding: canvases with open slots to finished texts."""

from kermit.decoding.rounds import Decoded, OnRound, check_lengths, decode, strategies_of
from kermit.decoding.settings import (
    DRAWING_TEMPERATURE,
    LENGTH_REWARD,
    MAX_REPEATS,
    MAX_TOKENS,
    Constraints,
    DecodingSettings,
    Finish,
    Ranking,
    Sampling,
    Strategy,
)
from kermit.decoding.trace import Rounds, Trace, TracedInsertion, TracedToken

__all__ = [
    "DRAWING_TEMPERATURE",
    "LENGTH_REWARD",
    "MAX_REPEATS",
    "MAX_TOKENS",
    "Constraints",
    "Decoded",
    "DecodingSettings",
    "Finish",
    "OnRound",
    "Ranking",
    "Rounds",
    "Sampling",
    "Strategy",
    "Trace",
    "TracedInsertion",
    "TracedToken",
    "check_lengths",
    "decode",
    "strategies_of",
]
