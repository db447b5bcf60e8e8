"""`Engine`: what the decoder, the likelihoods and the facade ask of a network, one call per round.

Everything above an engine is NumPy: canvases, rows, rounds, choosing, limits, ranking. An engine turns rows of tokens
into what the network says about slots. It knows no canvas and no text. `kermit.engines.torch_engine` runs a model of
torch, `kermit.engines.onnx_engine` an exported file.
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
    """What a model is, as far as generating with it is concerned; all of it comes from `config.json`.

    Args:
        specials: the ids that frame a canvas or are never content, end-of-slot among them.
        vocab_size: number of tokens.
        hidden_size: width of hidden states.
        termination: per slot, or per sequence.
        orders: names of the insertion orders that it was trained with; None if unknown.
        cached_context: whether given tokens attend to given tokens only.
        blank_id: the token that marks a blank; None without cached context.
        blank_room: the positions that a blank leaves for what is inserted.
        restarts: whether positions restart in segment Y.
        max_length: most tokens of a whole canvas; None if unlimited.
        max_segment_length: most content tokens of a segment; None if unlimited.
        languages: names of segments X and Y.
        factorizations: what it was trained to generate; empty if unknown.
        strategy: the name of the decoding strategy that suits it best; None for the first that it can use.
        termination_penalty: what translating takes off the log-probability of ending, unless told otherwise.
        parameters: number of weights; None if unknown.
        model_type: of its config; another than `kermit` is a relative that inserts too.
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
    termination_penalty: float = 0.0
    parameters: int | None = None
    model_type: str = MODEL_TYPE
    precision: str = "float32"

    @property
    def inserts_in_rounds(self) -> bool:
        """Whether it was trained to insert in rounds; if its orders are unknown, it was."""
        return self.orders is None or bool(self.orders - {LEFT_TO_RIGHT})

    @property
    def inserts_left_to_right(self) -> bool:
        """Whether it was trained to insert from left to right."""
        return self.orders is not None and LEFT_TO_RIGHT in self.orders


class Cache(Protocol):
    """What an engine keeps of tokens that were read, so that later tokens can attend to them. Opaque to its users."""

    @property
    def length(self) -> int:
        """Number of places per row, padding included."""
        ...

    def select(self, rows: Integers) -> Cache:
        """Return the cache of some rows, in that order; a row may be repeated (candidates share what was given)."""
        ...

    def first(self, length: int) -> Cache:
        """Return the cache of the first `length` places of every row."""
        ...


@dataclass(frozen=True)
class Rows:
    """Tokens to read, after those of a cache.

    Args:
        token_ids: (batch, length), padded.
        segment_ids: (batch, length), 0 or 1.
        positions: (batch, length) float32; fractions only with cached context.
        orders: (batch, length), 0 for given tokens and without cached context, 1 for the tokens of a block, 2 for those
            of a left-to-right block.
        mask: (batch, length, past + length) bool, what each token sees; padding sees itself, so that no row is empty.
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
    """The slots that a call asks about, and what it wants to know of them.

    Args:
        left: (slots,) the left neighbours, as row * (past + length) + place.
        right: (slots,) the right neighbours, likewise.
        top: number of best tokens to return, 1 or more; end-of-slot is not one of them.
        full: whether to return the log-probabilities of the whole vocabulary.
        wanted: (slots,) a token per slot whose log-probability to return, or None.
        keep: whether to return a cache, if the engine has one.
    """

    left: Integers
    right: Integers
    top: int = 1
    full: bool = False
    wanted: Integers | None = None
    keep: bool = True


@dataclass(frozen=True)
class Answer:
    """What a network says; log-probabilities are normalised over the vocabulary with end-of-slot, in float32.

    Args:
        tokens: (slots, top) the best tokens, descending; ties by the smaller id.
        log_probs: (slots, top) theirs.
        end: (slots,) that of end-of-slot; -inf with termination per sequence.
        location: (slots,) logits of the location.
        stop: (batch,) logit of stopping beside the locations; None with termination per slot.
        content: (slots, vocab) log-probabilities where `full`, end-of-slot's included, -inf at what may never be
            inserted; else None.
        wanted: (slots,) log-probabilities of the wanted tokens; None if none were asked for.
        cache: of everything that was read, `past` included; None if the engine keeps none or was not asked to.
    """

    tokens: Integers
    log_probs: Floats
    end: Floats
    location: Floats
    stop: Floats | None
    content: Floats | None = None
    wanted: Floats | None = None
    cache: Cache | None = None

    @classmethod
    def of(
        cls, content: Floats, asked: Asked, end_id: int, location: Floats | None = None, stop: Floats | None = None
    ) -> Answer:
        """Answer from log-probabilities of the whole vocabulary: for engines that have them as an array.

        Args:
            content: (slots, vocab), end-of-slot's included.
            asked: what the call wants to know.
            end_id: the id of end-of-slot.
            location: (slots,) logits of the location; all alike by default.
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
        """What the model is."""
        ...

    @property
    def caches(self) -> bool:
        """Whether it takes and returns caches; if not, every call must hold all tokens."""
        ...

    def ask(self, rows: Rows, asked: Asked) -> Answer:
        """Read rows and answer for slots."""
        ...

    def hidden(self, rows: Rows) -> Floats:
        """Return the final states of rows, (batch, length, hidden); those of padding mean nothing."""
        ...
