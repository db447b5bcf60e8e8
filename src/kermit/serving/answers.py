"""Answers of the service, and the events it sends while it works."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kermit.canvas import Factorization
from kermit.decoding import Finish, Strategy
from kermit.results import ScoreMethod


class Schema(BaseModel):
    """Base of everything that goes over the wire: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


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
    """What became of one text or pair."""

    x: str | None
    y: str | None
    rounds: int
    tokens: int
    finish: Finish = Field(description="Why it ended; anything but `finished` means that the text may be incomplete.")
    log_prob: float
    trace: TraceRecord | None = Field(
        default=None, description="Null for a text of several sentences: see `sentences`."
    )
    sentences: list[Generated] | None = Field(
        default=None, description="The results of the sentences of a translated text, where it has more than one."
    )


class GeneratedTexts(Schema):
    """One result per text, in order."""

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
    """One score per text, in order."""

    results: list[Scored]


class Vectors(Schema):
    """One vector per text, in order."""

    vectors: list[list[float]]


class Alternative(Schema):
    """A token that could be inserted into a slot."""

    token_id: int
    text: str
    log_prob: float


class Alternatives(Schema):
    """The most likely tokens of a slot, best first, and how likely it is that nothing belongs there."""

    results: list[Alternative]
    end_log_prob: float = Field(description="Of end-of-slot: nothing more belongs there.")


Reply = GeneratedTexts | TextScores | Vectors | Alternatives


class StartEvent(CanvasRecord):
    """The canvas of one text, or of one sentence of it, before its first round."""

    index: int
    sentence: int = 0


class RoundEvent(Schema):
    """What one round inserted into one text, or into one sentence of it."""

    index: int
    sentence: int = 0
    round: int
    insertions: list[InsertionRecord]


class ModelCard(Schema):
    """What a caller should know about the model."""

    name: str
    title: str | None = Field(default=None, description="The title of its card.")
    about: str | None = Field(default=None, description="What it knows, in the words of its card.")
    languages: dict[Literal["x", "y"], str]
    factorizations: list[Factorization] | None = Field(description="What it was trained for; null if unknown.")
    strategies: list[Strategy] = Field(description="What it can decode with, the default first.")
    orders: list[str] | None = Field(description="The insertion orders it was trained with; null if unknown.")
    cached_context: bool = Field(description="Whether it reads what is given once per text.")
    parameters: int | None
    vocabulary: int
    candidates: int = Field(description="The most candidates per text.")
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
    limit: int | None = Field(default=None, description="The limit that was exceeded, if any.")


def described(model: type[Schema], descriptions: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    """Return responses by status for OpenAPI."""
    return {status: {"model": model, "description": text} for status, text in descriptions.items()}
