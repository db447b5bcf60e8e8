"""What requests ask and what answers hold. A request is checked here, once; what depends on the model, in `engine`.

Requests mirror the methods of `kermit.pipeline.Kermit`: lists of texts in, lists of results out.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from kermit.canvas import Factorization
from kermit.canvas.blanks import BlankedText
from kermit.decoding import DRAWING_TEMPERATURE, Finish, Strategy
from kermit.objectives.priors import PriorName
from kermit.results import Pooling, ScoreMethod

MAX_CHARACTERS = 20_000
MAX_SEED = 2**53 - 1
"""The largest whole number that every JSON reader keeps."""

RequestText = Annotated[str, StringConstraints(max_length=MAX_CHARACTERS)]
RequestTexts = Annotated[list[RequestText], Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
RequestSeed = Annotated[int, Field(ge=0, le=MAX_SEED, description="The first text's seed; the others follow.")]


class Schema(BaseModel):
    """Base of all that goes over the wire: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Request(Schema):
    """What is asked. Like requests, those that may share a batch, differ in their texts and in `own` alone."""

    own: ClassVar[frozenset[str]] = frozenset({"texts", "x", "y", "count", "seed", "trace", "stream"})

    @property
    def size(self) -> int:
        """How many texts or pairs it holds."""
        raise NotImplementedError

    @property
    def fragments(self) -> list[tuple[str, list[str]]]:
        """Every given text, by its place in the request, as the parts that are tokenised apart."""
        return []

    @property
    def likeness(self) -> Hashable:
        """Equal for requests that may share a batch."""
        shared = self.model_dump(exclude=set(self.own))
        return type(self), getattr(self, "y", None) is None, *shared.items()


class _OnTexts(Request):
    """RequestTexts, or pairs of texts."""

    x: RequestTexts
    y: RequestTexts | None = Field(default=None, description="The second sides, as many as the first.")

    @model_validator(mode="after")
    def _as_many(self) -> _OnTexts:
        if self.y is not None and len(self.x) != len(self.y):
            raise ValueError(f"{len(self.x)} texts in x and {len(self.y)} in y; give as many in both")
        return self

    @property
    def size(self) -> int:
        """How many texts or pairs it holds."""
        return len(self.x)

    @property
    def fragments(self) -> list[tuple[str, list[str]]]:
        """Every given text, by its place, as the parts that are tokenised apart."""
        return [(f"{name}.{n}", [text]) for name in ("x", "y") for n, text in enumerate(getattr(self, name) or ())]


class Generating(Request):
    """How to decode. With a temperature, top_k or top_p tokens are drawn; otherwise the best are taken."""

    strategy: Strategy | None = Field(
        default=None, description="The first of the model's strategies by default: parallel where it can."
    )
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
    seed: RequestSeed = 0
    trace: bool = Field(default=False, description="Whether to answer with every round's insertions.")
    stream: bool = Field(default=False, description="Whether to answer with server-sent events, round by round.")


class TranslateRequest(Generating):
    """The other side of each text."""

    texts: RequestTexts
    to: str = Field(max_length=100, description="A language of the model; x and y always work.")

    @property
    def size(self) -> int:
        """How many texts or pairs it holds."""
        return len(self.texts)

    @property
    def fragments(self) -> list[tuple[str, list[str]]]:
        """Every given text, by its place, as the parts that are tokenised apart."""
        return [(f"texts.{number}", [text]) for number, text in enumerate(self.texts)]


class InfillRequest(Generating, _OnTexts):
    """Fill the blanks, four underscores each; what is given stays as it is."""

    keep_words: bool = Field(default=True, description="Whether given words stay whole.")
    min_tokens_per_blank: int = Field(default=1, ge=0, le=1000)
    max_tokens_per_blank: Count | None = None

    @property
    def fragments(self) -> list[tuple[str, list[str]]]:
        """Every given text, by its place, as the parts that are tokenised apart."""
        whole = super().fragments
        return [(place, list(BlankedText.parse(text).fragments)) for place, (text,) in whole]


class CompleteRequest(Generating, _OnTexts):
    """Complete pairs from fragments on both sides, inserting anywhere."""

    y: RequestTexts
    temperature: float | None = Field(default=DRAWING_TEMPERATURE, ge=0.01, le=100, description="Null takes the best.")
    keep_words: bool = Field(default=True, description="Whether given words stay whole.")


class SampleRequest(Generating):
    """Draw texts from nothing."""

    count: int = Field(default=1, ge=1)
    segment: str = Field(default="both", max_length=100, description="Both, or a language (x and y always work).")
    temperature: float | None = Field(default=DRAWING_TEMPERATURE, ge=0.01, le=100, description="Null takes the best.")

    @property
    def size(self) -> int:
        """How many texts or pairs it holds."""
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
    orders: int = Field(default=16, ge=1, le=64, description="How many orders to draw a text.")
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
    """RequestTexts, or pairs, as vectors."""

    pooling: Pooling = "mean"


class InsertionRecord(Schema):
    """A token that was inserted, into a slot of the canvas before the round."""

    slot: int
    token_id: int
    text: str
    log_prob: float


class CanvasRecord(Schema):
    """A canvas: ids and texts of its tokens by side, and its open slots."""

    start: list[list[int]]
    start_text: list[list[str]]
    open_slots: list[int]


class TraceRecord(CanvasRecord):
    """The canvas at the start, what its sides are called, and the insertions of every round."""

    names: list[str]
    rounds: list[list[InsertionRecord]]


class Generated(Schema):
    """What came of one text or pair."""

    x: str | None
    y: str | None
    rounds: int
    tokens: int
    finish: Finish
    log_prob: float
    trace: TraceRecord | None = None


class GeneratedTexts(Schema):
    """One result a text, in order."""

    results: list[Generated]


class Scored(Schema):
    """The log-likelihood of one text; null where it cannot be generated at all."""

    log_prob: float | None
    method: ScoreMethod
    standard_error: float | None = Field(
        default=None,
        description="Of an importance-weighted estimate; null for other methods, for a single order, and where the"
        " prior leaves orders out, so that the estimate is a lower bound.",
    )


class TextScores(Schema):
    """One score a text, in order."""

    results: list[Scored]


class Vectors(Schema):
    """One vector a text, in order."""

    vectors: list[list[float]]


Reply = GeneratedTexts | TextScores | Vectors


class StartEvent(CanvasRecord):
    """The canvas of one text before its first round."""

    index: int


class RoundEvent(Schema):
    """What one round inserted into one text."""

    index: int
    round: int
    insertions: list[InsertionRecord]


class ModelCard(Schema):
    """What a caller should know of the model."""

    name: str
    languages: dict[Literal["x", "y"], str]
    factorizations: list[Factorization] | None = Field(description="What it was trained for; null if not known.")
    strategies: list[Strategy] = Field(description="What it can decode with, the default first.")
    orders: list[str] | None = Field(description="The insertion orders it was trained with; null if not known.")
    cached_context: bool = Field(description="Whether it reads what is given once per text.")
    parameters: int | None
    vocabulary: int
    max_tokens: int
    max_texts: int


class Models(Schema):
    """The models that are served."""

    models: list[ModelCard]


class Health(Schema):
    """Whether requests are taken."""

    status: Literal["ok", "stopping", "broken"]


class Problem(Schema):
    """What is wrong, where, and what to do."""

    detail: str
    limit: int | None = Field(default=None, description="The number that was exceeded, where there is one.")
