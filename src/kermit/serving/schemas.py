"""Requests and their validation; what depends on the model is checked in `served_model`.

Requests mirror the methods of `kermit.pipeline.Kermit`: lists of texts in, lists of results out (`answers`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from kermit.arguments import GivenTexts
from kermit.canvas import Factorization
from kermit.canvas.blanks import BlankedText
from kermit.decoding import DEFAULT_SAMPLING, Ranking, Strategy, TracedInsertion, TracedRounds
from kermit.errors import nearest
from kermit.objectives.priors import PriorName
from kermit.results import Pooling, ScoreMethod
from kermit.serving.answers import Schema

MAX_CHARACTERS = 20_000
MAX_CANDIDATES = 32
MAX_SEED = 2**53 - 1
"""The largest integer that every JSON parser represents exactly."""

RequestText = Annotated[str, StringConstraints(max_length=MAX_CHARACTERS)]
RequestTexts = Annotated[list[RequestText], Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
RequestSeed = Annotated[
    int, Field(ge=0, le=MAX_SEED, description="The first text's seed; the others count up from it.")
]


class Request(Schema):
    """A request. Requests that may share a batch differ only in their texts and in `own`."""

    own: ClassVar[frozenset[str]] = frozenset({"texts", "x", "y", "count", "seed", "trace", "stream", "begun"})

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, body: object) -> object:
        """Refuse unknown fields, and suggest the field that was probably meant."""
        known = list(cls.model_fields)
        if isinstance(body, dict) and (unknown := [name for name in body if name not in known]):
            hints = [nearest(name, known) or f"; known: {', '.join(known)}" for name in unknown]
            wrong = [f"unknown field {name[:100]!r}{hint}" for name, hint in zip(unknown, hints, strict=True)]
            raise PydanticCustomError("unknown_field", "{what}", {"what": "; ".join(wrong)})
        return body

    @property
    def given(self) -> dict[str, list[str]]:
        """The texts of each field that is set."""
        fields = ((name, getattr(self, name, None)) for name in ("texts", "x", "y"))
        return {name: texts for name, texts in fields if texts is not None}

    @property
    def size(self) -> int:
        """Number of texts or pairs."""
        return max(map(len, self.given.values()), default=1)

    @property
    def fragments(self) -> list[tuple[str, list[str]]]:
        """Every given text, by its place in the request, as the parts that are tokenized separately."""
        return [(f"{name}.{n}", [text]) for name, texts in self.given.items() for n, text in enumerate(texts)]

    @property
    def likeness(self) -> Hashable:
        """Equal for requests that may share a batch; a request with decided rounds is decoded alone."""
        alone = None if getattr(self, "begun", None) is None else id(self)
        return type(self), tuple(self.given), alone, *self.model_dump(exclude=set(self.own)).items()


class _OnTexts(Request):
    """Texts, or pairs of texts."""

    x: RequestTexts | None = Field(default=None, description="Texts, or the first sides of pairs.")
    y: RequestTexts | None = Field(default=None, description="The second sides of the pairs, or texts without x.")
    side: str | None = Field(
        default=None, max_length=100, description="The language of texts given as x without y; x by default."
    )

    @model_validator(mode="after")
    def _as_many(self) -> _OnTexts:
        GivenTexts.of(self.x, self.y, self.side)
        return self


class Decided(Schema):
    """An insertion already decided; the insertions of a trace can be sent unchanged."""

    slot: int = Field(ge=1, le=1_000_000, description="In the canvas at the start of its round.")
    token_id: int = Field(ge=0, le=10_000_000)
    text: RequestText | None = Field(default=None, description="Ignored.")
    log_prob: float = Field(default=0.0, ge=-1e6, le=0)


DecidedRounds = Annotated[list[Annotated[list[Decided], Field(max_length=1000)]], Field(max_length=1000)]


def rounds_of(decided: DecidedRounds) -> TracedRounds:
    """Convert decided rounds to the decoder's type."""
    return tuple(
        tuple(TracedInsertion(one.slot, one.token_id, one.log_prob) for one in insertions) for insertions in decided
    )


class Generating(Request):
    """Decoding options. With temperature, top_k or top_p, tokens are sampled; otherwise the best are taken."""

    strategy: Strategy | None = Field(default=None, description="By default the first of the model's strategies.")
    termination_penalty: float | None = Field(
        default=None,
        ge=-100,
        le=100,
        description="Subtracted from the log-probability of ending; by default the model's own for translation,"
        " otherwise none.",
    )
    early_finish: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="In parallel decoding, the probability that a round completes a text, from which it ends without"
        " asking again; 1 always asks again.",
    )
    temperature: float | None = Field(default=None, ge=0.01, le=100)
    top_k: Count | None = None
    top_p: float | None = Field(default=None, ge=0.001, le=1)
    max_rounds: Count | None = None
    max_tokens: Count | None = Field(
        default=None,
        description="The maximum number of insertions; by default the service's limit, or 2 n + 10 for the translation"
        " of n tokens.",
    )
    beams: int = Field(
        default=1, ge=1, le=MAX_CANDIDATES, description="The number of beams, for the strategy `left_to_right`."
    )
    candidates: int = Field(
        default=1, ge=1, le=MAX_CANDIDATES, description="The number of candidates per text; the best is kept."
    )
    ranking: Ranking | None = Field(default=None, description="How candidates are ranked; `again` by default.")
    begun: list[DecidedRounds] | None = Field(
        default=None, description="The rounds already decided for each text; decoding continues after them."
    )
    seed: RequestSeed = 0
    trace: bool = Field(default=False, description="Whether to return every round's insertions.")
    stream: bool = Field(
        default=False,
        description="Whether to stream server-sent events, one per round; with candidates or beams, only the result.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Generating:
        if self.candidates == 1 and self.ranking is not None:
            raise ValueError("ranking needs several candidates; set candidates, or remove it")
        if self.begun is not None and len(self.begun) != self.size:
            raise ValueError(f"begun has rounds for {len(self.begun)} texts, not {self.size}; give one list per text")
        return self


class TranslateRequest(Generating):
    """Translate texts: p(y given x) or p(x given y)."""

    texts: RequestTexts
    to: str = Field(max_length=100, description="A language of the model; x and y always work.")
    split_sentences: bool = Field(
        default=True, description="Whether to translate a text of several sentences sentence by sentence."
    )
    recase: bool = Field(
        default=True,
        description="Whether to read a sentence in capitals in sentence case and write its translation in capitals.",
    )

    @model_validator(mode="after")
    def _begun_whole(self) -> TranslateRequest:
        if self.begun is not None and self.split_sentences and "split_sentences" in self.model_fields_set:
            raise ValueError("begun continues a whole text; remove split_sentences, or set it to false")
        return self

    @property
    def splits(self) -> bool:
        """Whether texts are split into sentences."""
        return self.split_sentences and self.begun is None


class _OnFragments(Generating, _OnTexts):
    """Texts with open places."""

    keep_words: bool = Field(default=True, description="Whether given words stay whole.")

    @property
    def fragments(self) -> list[tuple[str, list[str]]]:
        """Every given text, by its place in the request, as the parts that are tokenized separately."""
        whole = super().fragments
        return [(place, list(BlankedText.parse(text).fragments)) for place, (text,) in whole]


class InfillRequest(_OnFragments):
    """Fill the blanks of texts or pairs. A blank is four underscores; every text or pair needs at least one."""

    min_tokens_per_blank: int = Field(default=1, ge=0, le=1000)
    max_tokens_per_blank: Count | None = None


class _Drawing(Generating):
    """Sampling by default."""

    temperature: float | None = Field(
        default=None,
        ge=0.01,
        le=100,
        description=f"Without temperature, top_k and top_p, {DEFAULT_SAMPLING.temperature} with a top_p of"
        f" {DEFAULT_SAMPLING.top_p}; null takes the best tokens.",
    )

    @model_validator(mode="before")
    @classmethod
    def _sampled(cls, body: object) -> object:
        if isinstance(body, dict) and not {"temperature", "top_k", "top_p"} & body.keys():
            return body | vars(DEFAULT_SAMPLING)
        return body


class CompleteRequest(_Drawing, _OnFragments):
    """Complete pairs from fragments: text is inserted at `...` and blanks, and an empty side is generated whole."""


class SampleRequest(_Drawing):
    """Sample pairs from p(x, y), or one side from p(x) or p(y)."""

    count: int = Field(default=1, ge=1)
    segment: str = Field(default="both", max_length=100, description="Both, or a language (x and y always work).")

    @property
    def size(self) -> int:
        """Number of texts or pairs."""
        return self.count


class ScoreRequest(_OnTexts):
    """The log-likelihood of texts or pairs, in nats."""

    factorization: Factorization | None = Field(
        default=None, description="Which sides to score, and which to condition on; by default all are scored."
    )
    method: ScoreMethod = "importance"
    prior: PriorName = Field(default=PriorName.UNIFORM, description="The distribution that orders are drawn from.")
    temperature: float = Field(
        default=1.0,
        ge=0.01,
        le=100,
        description="Of the balanced tree, best the one used in training; 1 for the other priors.",
    )
    orders: int = Field(default=16, ge=1, le=64, description="Number of orders to draw per text.")
    seed: int = Field(default=0, ge=0, le=MAX_SEED, description="The seed of the orders; the same for every text.")

    @model_validator(mode="after")
    def _consistent(self) -> ScoreRequest:
        instead = {"exact": "sums over all orders", "left_to_right": "scores one order"}.get(self.method)
        if instead and (drawing := self.model_fields_set & {"prior", "temperature", "orders", "seed"}):
            names = ", ".join(sorted(drawing))
            raise ValueError(f"{names}: only for random orders, but method {self.method} {instead}; remove it")
        if self.prior is not PriorName.BALANCED_TREE and self.temperature != 1:
            raise ValueError("temperature only applies to prior balanced_tree; remove it, or set that prior")
        return self


class EmbedRequest(_OnTexts):
    """Embed texts or pairs as the network's pooled hidden states."""

    pooling: Pooling = "mean"


class AlternativesRequest(Request):
    """List what else could be inserted into a slot, given a trace up to some round; pick one with `begun`."""

    start: Annotated[list[list[Annotated[int, Field(ge=0, le=10_000_000)]]], Field(min_length=1, max_length=2)] = Field(
        description="The tokens of each side of the initial canvas."
    )
    open_slots: list[int] = Field(description="The open slots of the initial canvas.")
    rounds: DecidedRounds = Field(default_factory=list, description="The rounds before the insertion in question.")
    slot: int = Field(ge=1, le=1_000_000, description="An open slot of the canvas after these rounds.")
    strategy: Strategy | None = Field(default=None, description="The strategy of the request that made the trace.")
    count: int = Field(default=8, ge=1, le=100)

    @property
    def likeness(self) -> Hashable:
        """Unique for each request: they are answered one by one."""
        return type(self), id(self)
