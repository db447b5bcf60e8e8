"""Requests, validated here once; what depends on the model is checked in `served_model`.

Requests mirror the methods of `kermit.pipeline.Kermit`: lists of texts in, lists of results out (`answers`).
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable
from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from kermit.canvas import Factorization
from kermit.canvas.blanks import BlankedText
from kermit.decoding import DRAWING_TEMPERATURE, Ranking, Strategy, TracedInsertion, TracedRounds
from kermit.objectives.priors import PriorName
from kermit.results import Pooling, ScoreMethod
from kermit.serving.answers import Schema

MAX_CHARACTERS = 20_000
MAX_CANDIDATES = 32
MAX_SEED = 2**53 - 1
"""The largest whole number that every JSON reader keeps."""

RequestText = Annotated[str, StringConstraints(max_length=MAX_CHARACTERS)]
RequestTexts = Annotated[list[RequestText], Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
RequestSeed = Annotated[int, Field(ge=0, le=MAX_SEED, description="The first text's seed; the others follow.")]


class Request(Schema):
    """A request. Requests that may share a batch differ only in their texts and in `own`."""

    own: ClassVar[frozenset[str]] = frozenset({"texts", "x", "y", "count", "seed", "trace", "stream"})

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, body: object) -> object:
        """Refuse unknown fields, with the name that was probably meant."""
        unknown = [name for name in body if name not in cls.model_fields] if isinstance(body, dict) else []
        if unknown:
            raise PydanticCustomError("unknown_field", "{what}", {"what": "; ".join(map(cls._unknown, unknown))})
        return body

    @classmethod
    def _unknown(cls, name: str) -> str:
        close = difflib.get_close_matches(name, cls.model_fields, n=1)
        known = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(cls.model_fields)}"
        return f"unknown field {name[:100]!r}; {known}"

    @property
    def size(self) -> int:
        """Number of texts or pairs."""
        raise NotImplementedError

    @property
    def fragments(self) -> list[tuple[str, list[str]]]:
        """Every given text, by its place in the request, as the parts that are tokenised apart."""
        return []

    @property
    def likeness(self) -> Hashable:
        """Equal for requests that may share a batch."""
        shared = self.model_dump(exclude=set(self.own))
        return type(self), self._sides, *shared.items()

    @property
    def _sides(self) -> tuple[bool, bool]:
        """Whether texts of each side are given."""
        return getattr(self, "x", None) is not None, getattr(self, "y", None) is not None


class _OnTexts(Request):
    """Texts, or pairs of texts."""

    x: RequestTexts | None = Field(default=None, description="Texts, or the first sides of pairs.")
    y: RequestTexts | None = Field(default=None, description="The second sides, as many as the first; or alone.")
    side: str | None = Field(
        default=None, max_length=100, description="The language of texts that are given alone as x; x by default."
    )

    @model_validator(mode="after")
    def _as_many(self) -> _OnTexts:
        if self.x is None and self.y is None:
            raise ValueError("no text is given; give x, y or both")
        if self.x is not None and self.y is not None and len(self.x) != len(self.y):
            raise ValueError(f"{len(self.x)} texts in x and {len(self.y)} in y; give as many in both")
        if self.side is not None and (self.x is None or self.y is not None):
            raise ValueError("side is the language of texts that are given alone as x; leave it out")
        return self

    @property
    def size(self) -> int:
        """Number of texts or pairs."""
        return len(self.x or self.y or ())

    @property
    def fragments(self) -> list[tuple[str, list[str]]]:
        """Every given text, by its place, as the parts that are tokenised apart."""
        return [(f"{name}.{n}", [text]) for name in ("x", "y") for n, text in enumerate(getattr(self, name) or ())]


class Decided(Schema):
    """An insertion that is already decided; records of a trace can be sent as they are."""

    slot: int = Field(ge=1, le=1_000_000, description="In the canvas at the start of its round.")
    token_id: int = Field(ge=0, le=10_000_000)
    text: RequestText | None = Field(default=None, description="Ignored.")
    log_prob: float = Field(default=0.0, ge=-1e6, le=0)


DecidedRounds = Annotated[list[Annotated[list[Decided], Field(max_length=1000)]], Field(max_length=1000)]


def rounds_of(decided: DecidedRounds) -> TracedRounds:
    """Return decided rounds as the decoder takes them."""
    return tuple(
        tuple(TracedInsertion(one.slot, one.token_id, one.log_prob) for one in insertions) for insertions in decided
    )


class Generating(Request):
    """How to decode. With a temperature, top_k or top_p tokens are drawn; otherwise the best are taken."""

    choices: ClassVar[tuple[str, ...]] = (
        *("strategy", "termination_penalty", "temperature", "top_k", "top_p", "max_rounds", "max_tokens"),
        *("candidates", "ranking"),
    )
    """The fields that are decoding settings."""

    strategy: Strategy | None = Field(default=None, description="The first of the model's strategies by default.")
    termination_penalty: float | None = Field(
        default=None,
        ge=-100,
        le=100,
        description="Taken off the log-probability of ending; the model's own for translating, none otherwise.",
    )
    temperature: float | None = Field(default=None, ge=0.01, le=100)
    top_k: Count | None = None
    top_p: float | None = Field(default=None, ge=0.001, le=1)
    max_rounds: Count | None = None
    max_tokens: Count | None = Field(
        default=None,
        description="Insert at most this many; by default the service's limit, for a translation of n tokens 2 n + 10.",
    )
    candidates: int = Field(
        default=1, ge=1, le=MAX_CANDIDATES, description="Decode this many texts each and keep the best."
    )
    ranking: Ranking | None = Field(default=None, description="What the best candidate is best at; `again` by default.")
    begun: list[DecidedRounds] | None = Field(
        default=None,
        description="For each text the rounds that are already decided; decoding continues after them.",
    )
    seed: RequestSeed = 0
    trace: bool = Field(default=False, description="Whether to answer with every round's insertions.")
    stream: bool = Field(
        default=False,
        description="Whether to answer with server-sent events, round by round; of candidates only the result.",
    )

    @property
    def likeness(self) -> Hashable:
        """Equal for requests that may share a batch; one with decided rounds is decoded alone."""
        shared = self.model_dump(exclude={*self.own, "begun"})
        alone = None if self.begun is None else id(self)
        return type(self), self._sides, alone, *shared.items()

    @model_validator(mode="after")
    def _ranked_candidates(self) -> Generating:
        if self.candidates == 1 and self.ranking is not None:
            raise ValueError("ranking needs several candidates; set candidates, or leave it out")
        return self

    @model_validator(mode="after")
    def _begun_for_all(self) -> Generating:
        if self.begun is not None and len(self.begun) != self.size:
            raise ValueError(f"begun has rounds for {len(self.begun)} texts, not {self.size}; give one list per text")
        return self


class TranslateRequest(Generating):
    """The other side of each text."""

    texts: RequestTexts
    to: str = Field(max_length=100, description="A language of the model; x and y always work.")
    split_sentences: bool = Field(
        default=True, description="Whether a text of several sentences is translated sentence by sentence."
    )

    @model_validator(mode="after")
    def _begun_whole(self) -> TranslateRequest:
        if self.begun is not None and self.split_sentences and "split_sentences" in self.model_fields_set:
            raise ValueError("begun continues a text as a whole; leave split_sentences out, or set it to false")
        return self

    @property
    def splits(self) -> bool:
        """Whether texts are split into sentences."""
        return self.split_sentences and self.begun is None

    @property
    def size(self) -> int:
        """Number of texts or pairs."""
        return len(self.texts)

    @property
    def fragments(self) -> list[tuple[str, list[str]]]:
        """Every given text, by its place, as the parts that are tokenised apart."""
        return [(f"texts.{number}", [text]) for number, text in enumerate(self.texts)]


class _OnFragments(Generating, _OnTexts):
    """Texts with places where text may be inserted."""

    keep_words: bool = Field(default=True, description="Whether given words stay whole.")

    @property
    def fragments(self) -> list[tuple[str, list[str]]]:
        """Every given text, by its place, as the parts that are tokenised apart."""
        whole = super().fragments
        return [(place, list(BlankedText.parse(text).fragments)) for place, (text,) in whole]


class InfillRequest(_OnFragments):
    """Fill the blanks, four underscores each; what is given stays as it is. Every text needs a blank."""

    min_tokens_per_blank: int = Field(default=1, ge=0, le=1000)
    max_tokens_per_blank: Count | None = None


class CompleteRequest(_OnFragments):
    """Complete pairs: text may be inserted at `...` or at a blank, and a side that is empty is written whole."""

    temperature: float | None = Field(default=DRAWING_TEMPERATURE, ge=0.01, le=100, description="Null takes the best.")


class SampleRequest(Generating):
    """Draw texts from nothing."""

    count: int = Field(default=1, ge=1)
    segment: str = Field(default="both", max_length=100, description="Both, or a language (x and y always work).")
    temperature: float | None = Field(default=DRAWING_TEMPERATURE, ge=0.01, le=100, description="Null takes the best.")

    @property
    def size(self) -> int:
        """Number of texts or pairs."""
        return self.count


class ScoreRequest(_OnTexts):
    """How likely texts are, in nats."""

    factorization: Factorization | None = Field(
        default=None, description="What is scored; all that is given by default."
    )
    method: ScoreMethod = "importance"
    prior: PriorName = Field(default=PriorName.UNIFORM, description="Where orders are drawn from.")
    temperature: float = Field(
        default=1.0, ge=0.01, le=100, description="Of the balanced tree; 1 for the other priors. Best as in training."
    )
    orders: int = Field(default=16, ge=1, le=64, description="Number of orders to draw per text.")
    seed: int = Field(default=0, ge=0, le=MAX_SEED, description="Of the drawing; the same for every text.")

    @model_validator(mode="after")
    def _drawn_orders(self) -> ScoreRequest:
        instead = {"exact": "sums over all of them", "left_to_right": "scores one of them"}.get(self.method)
        if instead and (drawing := self.model_fields_set & {"prior", "temperature", "orders", "seed"}):
            names = ", ".join(sorted(drawing))
            raise ValueError(f"{names}: for drawn orders, and the method {self.method} {instead}; leave it out")
        return self

    @model_validator(mode="after")
    def _tree_of_temperature(self) -> ScoreRequest:
        if self.prior is not PriorName.BALANCED_TREE and self.temperature != 1:
            raise ValueError("temperature is the balanced tree's; leave it out, or ask for the prior balanced_tree")
        return self


class EmbedRequest(_OnTexts):
    """Texts, or pairs, as vectors."""

    pooling: Pooling = "mean"


class AlternativesRequest(Request):
    """What else could be inserted into a slot of a canvas, as a trace describes it up to some round."""

    start: Annotated[list[list[Annotated[int, Field(ge=0, le=10_000_000)]]], Field(min_length=1, max_length=2)] = Field(
        description="The tokens of each side at the start."
    )
    open_slots: list[int] = Field(description="The open slots at the start.")
    rounds: DecidedRounds = Field(default_factory=list, description="The rounds up to the slot's.")
    slot: int = Field(ge=1, le=1_000_000, description="An open slot of the canvas after these rounds.")
    strategy: Strategy | None = Field(default=None, description="As in the request that the trace is of.")
    count: int = Field(default=8, ge=1, le=100)

    own: ClassVar[frozenset[str]] = frozenset()

    @property
    def size(self) -> int:
        """Number of canvases."""
        return 1

    @property
    def likeness(self) -> Hashable:
        """Differs for each request: they are answered one by one."""
        return type(self), id(self)
