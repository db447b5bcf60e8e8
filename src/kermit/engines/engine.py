"""`Engine`: the network as the decoder, the likelihoods and the facade use it, one call per round.

Everything above an engine is NumPy: canvases, rows, rounds, choosing, limits, ranking. An engine maps rows of tokens to
predictions for slots. It knows no canvas and no text. `kermit.engines.torch_engine` runs a torch model,
`kermit.engines.onnx_engine` an exported file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kermit.canvas import SpecialTokens, Termination
from kermit.canvas.arrays import Booleans, Floats, Integers
from kermit.canvas.blank_room import NO_ROOM, BlankRoom

MODEL_TYPE = "kermit"
"""The `model_type` of a KERMIT model's config."""

LEFT_TO_RIGHT = "left_to_right"
"""The name of the order in which spans are filled one after the other, each from left to right."""


@dataclass(frozen=True)
class ModelInfo:
    """The properties of a model that generation needs.

    Args:
        specials: the ids that frame a canvas or are never content, including end-of-slot.
        vocab_size: number of tokens.
        hidden_size: width of hidden states.
        termination: per slot, or per sequence.
        orders: names of the insertion orders it was trained with; None if unknown.
        cached_context: whether given tokens attend to given tokens only.
        blank_id: the token that marks a blank; None without cached context.
        blank_room: the positions that a blank reserves for insertions.
        restarts: whether positions restart in segment Y.
        max_length: maximum number of tokens of a canvas; None if unlimited.
        max_segment_length: maximum number of content tokens of a segment; None if unlimited.
        languages: names of segments X and Y.
        factorizations: what it was trained to generate; empty if unknown.
        strategy: the name of its default decoding strategy; None for the first that it supports.
        predicts_completion: whether its answers say if one token completes a slot.
        termination_penalty: by default subtracted from the log-probability of ending when translating.
        parameters: number of weights; None if unknown.
        model_type: from its config; anything but `kermit` is another family that inserts.
        precision: number format of its weights.
    """

    specials: SpecialTokens
    vocab_size: int
    hidden_size: int = 0
    termination: Termination = Termination.SLOT
    orders: frozenset[str] | None = None
    cached_context: bool = False
    blank_id: int | None = None
    blank_room: BlankRoom = NO_ROOM
    restarts: bool = True
    max_length: int | None = None
    max_segment_length: int | None = None
    languages: tuple[str, str] = ("x", "y")
    factorizations: frozenset[str] = frozenset()
    strategy: str | None = None
    predicts_completion: bool = False
    termination_penalty: float = 0.0
    parameters: int | None = None
    model_type: str = MODEL_TYPE
    precision: str = "float32"

    @property
    def inserts_in_rounds(self) -> bool:
        """Whether it was trained to insert in rounds; assumed if its orders are unknown."""
        return self.orders is None or bool(self.orders - {LEFT_TO_RIGHT})

    @property
    def inserts_left_to_right(self) -> bool:
        """Whether it was trained to insert from left to right."""
        return self.orders is not None and LEFT_TO_RIGHT in self.orders


class Cache(Protocol):
    """The states of tokens already read, for later tokens to attend to. Opaque to its users."""

    @property
    def length(self) -> int:
        """Number of places per row, padding included."""

    def select(self, rows: Integers) -> Cache:
        """Return the cache of some rows, in that order; a row may be repeated (candidates share the given part)."""

    def first(self, length: int) -> Cache:
        """Return the cache of the first `length` places of every row."""


@dataclass(frozen=True)
class Rows:
    """Tokens to read, after those of a cache.

    Args:
        token_ids: (batch, length), padded.
        segment_ids: (batch, length), 0 or 1.
        positions: (batch, length) float32; fractions only with cached context.
        orders: (batch, length), 0 for given tokens and without cached context, 1 for the tokens of a block, 2 for those
            of a left-to-right block.
        mask: (batch, length, past + length) bool, which tokens each token sees; padding sees itself, so that no row is
            empty.
        past: the cache of the tokens read before, or None.
    """

    token_ids: Integers
    segment_ids: Integers
    positions: Floats
    orders: Integers
    mask: Booleans
    past: Cache | None = None


@dataclass(frozen=True)
class Asked:
    """The slots that a call asks about, and what to return for them.

    Args:
        left: (slots,) the left neighbours, as row * (past + length) + place.
        right: (slots,) the right neighbours, likewise.
        top: number of best tokens to return, 1 or more; end-of-slot is not one of them.
        full: whether to return the log-probabilities of the whole vocabulary.
        wanted: (slots,) a token per slot whose log-probability to return, or None.
        keep: whether to return a cache, if the engine supports it.
    """

    left: Integers
    right: Integers
    top: int = 1
    full: bool = False
    wanted: Integers | None = None
    keep: bool = True


@dataclass(frozen=True)
class Answer:
    """A network's predictions; log-probabilities are normalised over the vocabulary with end-of-slot, in float32.

    Args:
        tokens: (slots, top) the best tokens, descending; ties go to the smaller id.
        log_probs: (slots, top) their log-probabilities.
        end: (slots,) the log-probability of end-of-slot; -inf with termination per sequence.
        location: (slots,) logits of the location.
        completion: (slots,) the log-probability that one token completes the slot, if one is missing; None if the model
            does not predict it.
        stop: (batch,) logit of stopping, beside the locations; None with termination per slot.
        content: (slots, vocab) log-probabilities if `full`, including end-of-slot, -inf at tokens that can never be
            inserted; otherwise None.
        wanted: (slots,) log-probabilities of the wanted tokens; None if none were requested.
        cache: of everything read, `past` included; None if the engine has none or `keep` is False.
    """

    tokens: Integers
    log_probs: Floats
    end: Floats
    location: Floats
    stop: Floats | None
    completion: Floats | None = None
    content: Floats | None = None
    wanted: Floats | None = None
    cache: Cache | None = None

    @classmethod
    def of(
        cls, content: Floats, asked: Asked, end_id: int, location: Floats | None = None, stop: Floats | None = None
    ) -> Answer:
        """Build an answer from log-probabilities of the whole vocabulary, for engines that have them as an array.

        Args:
            content: (slots, vocab), including end-of-slot.
            location: (slots,) logits of the location; all equal by default.
            stop: (batch,) logits of stopping, with termination per sequence.
        """
        others = content.copy()
        others[:, end_id] = -np.inf
        tokens = np.argsort(-others, axis=1, kind="stable")[:, : asked.top]
        return cls(
            tokens=tokens,
            log_probs=np.take_along_axis(others, tokens, 1),
            end=content[:, end_id],
            location=np.zeros(len(content), dtype=np.float32) if location is None else location,
            stop=stop,
            content=content if asked.full else None,
            wanted=None if asked.wanted is None else np.take_along_axis(content, asked.wanted[:, None], 1)[:, 0],
        )


class Engine(Protocol):
    """A network that reads rows."""

    @property
    def info(self) -> ModelInfo:
        """The model's properties."""

    @property
    def caches(self) -> bool:
        """Whether it takes and returns caches; if not, every call must contain all tokens."""

    def ask(self, rows: Rows, asked: Asked) -> Answer:
        """Read rows and answer for slots."""

    def hidden(self, rows: Rows) -> Floats:
        """Return the final states of rows, (batch, length, hidden); arbitrary at padding."""
