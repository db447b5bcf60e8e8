"""Decoding: canvases with open slots to finished texts."""

from kermit.decoding.decoder import check_lengths, decode
from kermit.decoding.rounds import Decoded, OnRound
from kermit.decoding.settings import (
    DEFAULT_SAMPLING,
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
from kermit.decoding.strategies import strategies_of, with_strategy
from kermit.decoding.trace import Trace, TracedInsertion, TracedRounds, TracedToken

__all__ = [
    "DEFAULT_SAMPLING",
    "LENGTH_REWARD",
    "MAX_REPEATS",
    "MAX_TOKENS",
    "Constraints",
    "Decoded",
    "DecodingSettings",
    "Finish",
    "OnRound",
    "Ranking",
    "Sampling",
    "Strategy",
    "Trace",
    "TracedInsertion",
    "TracedRounds",
    "TracedToken",
    "check_lengths",
    "decode",
    "strategies_of",
    "with_strategy",
]
