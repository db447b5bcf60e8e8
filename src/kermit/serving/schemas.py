"""Requests, validated here once; what depends on the model is checked in `served_model`.

Requests mirror the methods of `kermit.pipeline.Kermit`: lists of texts in, lists of results out (`answers`).
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable
from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from kermit.arguments import GivenTexts
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

    own: ClassVar[frozenset[str]] = frozenset({"texts", "x", "y", "count", "seed", "trace", "stream", "begun"})

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
    def given(self) -> dict[str, list[str]]:
        """The texts of each field that holds some."""
        fields = ((name, getattr(self, name, None)) for name in ("texts", "x", "y"))
        return {name: texts for name, texts in fields if texts is not None}

    @property
    def size(self) -> int:
        """Number of texts or pairs."""
        return max(map(len, self.given.values()), default=1)

    @property
    def fragments(self) -> list[tuple[str, list[str]]]:
        """Every given text, by its place in the request, as the parts that are tokenised apart."""
        return [(f"{name}.{n}", [text]) for name, texts in self.given.items() for n, text in enumerate(texts)]

    @property
    def likeness(self) -> Hashable:
        """Equal for requests that may share a batch; one with decided rounds is decoded alone."""
        alone = None if getattr(self, "begun", None) is None else id(self)
        return type(self), tuple(self.given), alone, *self.model_dump(exclude=set(self.own)).items()


class _OnTexts(Request):
    """Texts, or pairs of texts."""

    x: RequestTexts | None = Field(default=None, description="Texts, or the first sides of pairs.")
    y: RequestTexts | None = Field(default=None, description="The second sides, as many as the first; or alone.")
    side: str | None = Field(
        default=None, max_length=100, description="The language of texts that are given alone as x; x by default."
    )

    @model_validator(mode="after")
    def _as_many(self) -> _OnTexts:
        GivenTexts.of(self.x, self.y, self.side)
        return self


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

    @model_validator(mode="after")
    def _consistent(self) -> Generating:
        if self.candidates == 1 and self.ranking is not None:
            raise ValueError("ranking needs several candidates; set candidates, or leave it out")
        if self.begun is not None and len(self.begun) != self.size:
            raise ValueError(f"begun has rounds for {len(self.begun)} texts, not {self.size}; give one list per text")
        return self


class TranslateRequest(Generating):
    """Translate texts: p(y given x) or p(x given y)."""

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


class _OnFragments(Generating, _OnTexts):
    """Texts with places where text may be inserted."""

    keep_words: bool = Field(default=True, description="Whether given words stay whole.")

    @property
    def fragments(self) -> list[tuple[str, list[str]]]:
        """Every given text, by its place, as the parts that are tokenised apart."""
        whole = super().fragments
        return [(place, list(BlankedText.parse(text).fragments)) for place, (text,) in whole]


class InfillRequest(_OnFragments):
    """Fill the blanks of texts or pairs, four underscores each; each text or pair needs one, and given text stays."""

    min_tokens_per_blank: int = Field(default=1, ge=0, le=1000)
    max_tokens_per_blank: Count | None = None


class CompleteRequest(_OnFragments):
    """Complete pairs from fragments: text is inserted at `...` and blanks, and an empty side is written whole."""

    temperature: float | None = Field(default=DRAWING_TEMPERATURE, ge=0.01, le=100, description="Null takes the best.")


class SampleRequest(Generating):
    """Draw pairs from p(x, y), or one side from p(x) or p(y)."""

    count: int = Field(default=1, ge=1)
    segment: str = Field(default="both", max_length=100, description="Both, or a language (x and y always work).")
    temperature: float | None = Field(default=DRAWING_TEMPERATURE, ge=0.01, le=100, description="Null takes the best.")

    @property
    def size(self) -> int:
        """Number of texts or pairs."""
        return self.count


class ScoreRequest(_OnTexts):
    """The log-likelihood of texts or pairs, in nats."""

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
    def _consistent(self) -> ScoreRequest:
        instead = {"exact": "sums over all of them", "left_to_right": "scores one of them"}.get(self.method)
        if instead and (drawing := self.model_fields_set & {"prior", "temperature", "orders", "seed"}):
            names = ", ".join(sorted(drawing))
            raise ValueError(f"{names}: for drawn orders, and the method {self.method} {instead}; leave it out")
        if self.prior is not PriorName.BALANCED_TREE and self.temperature != 1:
            raise ValueError("temperature is the balanced tree's; leave it out, or ask for the prior balanced_tree")
        return self


class EmbedRequest(_OnTexts):
    """Texts or pairs as vectors: the network's hidden states."""

    pooling: Pooling = "mean"


class AlternativesRequest(Request):
    """What else could be inserted into a slot, given a trace up to some round; to pick one, ask again with `begun`."""

    start: Annotated[list[list[Annotated[int, Field(ge=0, le=10_000_000)]]], Field(min_length=1, max_length=2)] = Field(
        description="The tokens of each side at the start."
    )
    open_slots: list[int] = Field(description="The open slots at the start.")
    rounds: DecidedRounds = Field(default_factory=list, description="The rounds up to the slot's.")
    slot: int = Field(ge=1, le=1_000_000, description="An open slot of the canvas after these rounds.")
    strategy: Strategy | None = Field(default=None, description="As in the request that the trace is of.")
    count: int = Field(default=8, ge=1, le=100)

    @property
    def likeness(self) -> Hashable:
        """Differs for each request: they are answered one by one."""
        return type(self), id(self)
