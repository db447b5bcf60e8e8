"""Answers of the service, and the events that it streams."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kermit.canvas import Factorization
from kermit.decoding import Finish, Strategy
from kermit.results import ScoreMethod


class Schema(BaseModel):
    """Base of all requests and answers: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class InsertionRecord(Schema):
    """An inserted token; `slot` is in the canvas before the round."""

    slot: int
    token_id: int
    text: str
    log_prob: float


class CanvasRecord(Schema):
    """A canvas: ids and texts of its tokens per side, and its open slots."""

    start: list[list[int]]
    start_text: list[list[str]]
    open_slots: list[int]


class TraceRecord(CanvasRecord):
    """The initial canvas, the names of its sides, and the insertions of every round."""

    names: list[str]
    rounds: list[list[InsertionRecord]]


class Generated(Schema):
    """The result for one text or pair."""

    x: str | None
    y: str | None
    rounds: int
    tokens: int
    finish: Finish = Field(description="Why decoding ended; anything but `finished` may leave the text incomplete.")
    log_prob: float
    trace: TraceRecord | None = Field(
        default=None, description="Null for a text of several sentences: see `sentences`."
    )
    sentences: list[Generated] | None = Field(
        default=None, description="The results of the sentences of a translated text that has more than one."
    )


class GeneratedTexts(Schema):
    """One result per text, in order."""

    results: list[Generated]


class Scored(Schema):
    """The log-likelihood of one text; null if the model cannot generate it."""

    log_prob: float | None
    method: ScoreMethod
    standard_error: float | None = Field(
        default=None,
        description="Of an importance-weighted estimate; null for other methods, for a single order, and where the"
        " prior excludes some orders, which makes the estimate a lower bound.",
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
    """The most likely tokens of a slot, best first, and the log-probability that nothing belongs there."""

    results: list[Alternative]
    end_log_prob: float = Field(description="The log-probability of end-of-slot: nothing more belongs there.")


Reply = GeneratedTexts | TextScores | Vectors | Alternatives


class StartEvent(CanvasRecord):
    """The canvas of one text or sentence before its first round."""

    index: int
    sentence: int = 0


class RoundEvent(Schema):
    """The insertions of one round into one text or sentence."""

    index: int
    sentence: int = 0
    round: int
    insertions: list[InsertionRecord]


class ModelCard(Schema):
    """The model's properties and limits."""

    name: str
    title: str | None = Field(default=None, description="The title of its card.")
    about: str | None = Field(default=None, description="The first paragraph of its card.")
    languages: dict[Literal["x", "y"], str]
    factorizations: list[Factorization] | None = Field(description="What it was trained for; null if unknown.")
    strategies: list[Strategy] = Field(description="The decoding strategies it supports, the default first.")
    orders: list[str] | None = Field(description="The insertion orders it was trained with; null if unknown.")
    cached_context: bool = Field(description="Whether it reads the given part only once per text.")
    parameters: int | None
    vocabulary: int
    candidates: int = Field(description="The maximum number of candidates per text.")
    max_tokens: int
    max_texts: int


class Models(Schema):
    """The models that are served."""

    models: list[ModelCard]


class Health(Schema):
    """Whether the service accepts requests."""

    status: Literal["ok", "stopping", "broken"]


class Problem(Schema):
    """What is wrong, where, and what to do."""

    detail: str
    limit: int | None = Field(default=None, description="The limit that was exceeded, if any.")


def described(model: type[Schema], descriptions: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    """Return responses by status for OpenAPI."""
    return {status: {"model": model, "description": text} for status, text in descriptions.items()}
