"""The routes of LibreTranslate's public API, so that its clients work with this service: translate, languages, detect.

Bodies are JSON or an HTML form. Errors are ``{"error": ...}`` with 400, 403, 429 or 503, as its clients expect. What
this service cannot do honestly it refuses: HTML, and detecting languages other than the model's two.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qs

from fastapi import APIRouter, Request as HttpRequest
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError

from kermit.canvas import Factorization
from kermit.decoding import Strategy
from kermit.decoding.candidates import CANDIDATE_TEMPERATURE
from kermit.errors import DataError, KermitError, ModelError
from kermit.results import ScoreMethod
from kermit.serving.answers import GeneratedTexts, Problem, Schema, TextScores
from kermit.serving.guards import hung_up, is_token
from kermit.serving.refusals import RefusalError, TokenError
from kermit.serving.schemas import RequestText, RequestTexts, ScoreRequest, TranslateRequest
from kermit.serving.service import Service
from kermit.text.languages import language_name
from kermit.text.splitting import split_text

DETECTION_CHARACTERS = 300
"""Of a text whose language is detected, this many are read."""


class LibreTranslateRequest(BaseModel):
    """What to translate; other fields of LibreTranslate are ignored."""

    q: RequestText | RequestTexts
    source: str = Field(max_length=100, description="A language code, or `auto`.")
    target: str = Field(max_length=100)
    format: Literal["text"] = Field(default="text", description="HTML is not supported.")
    alternatives: int = Field(default=0, ge=0, le=10, description="Number of further translations to draw.")
    api_key: str | None = Field(default=None, description="The service's token, if it has one.")


class DetectRequest(BaseModel):
    """The text whose language is asked for."""

    q: Annotated[RequestText, Field(min_length=1)]
    api_key: str | None = None


class Detection(Schema):
    """A language and how sure the model is, in percent; it knows only its own two."""

    language: str
    confidence: float


class LibreTranslation(Schema):
    """A translation, or a list of them where a list was sent."""

    translatedText: str | list[str]  # noqa: N815
    detectedLanguage: Detection | list[Detection] | None = None  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None


class Language(Schema):
    """A language and those that it can be translated into."""

    code: str
    name: str
    targets: list[str]


class LibreTranslateError(Schema):
    """What is wrong."""

    error: str


_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": LibreTranslateError, "description": "A wrong value, or a text that is too long."},
    403: {"model": LibreTranslateError, "description": "No API key, or a wrong one."},
    413: {"model": Problem, "description": "The request has too many bytes."},
    429: {"model": LibreTranslateError, "description": "The queue is full."},
    503: {"model": LibreTranslateError, "description": "The deadline has passed, or the service is stopping."},
}


def routes(service: Service) -> APIRouter:
    """Create the routes."""
    router = APIRouter(tags=["LibreTranslate"])
    calls = _Calls(service)

    @router.get("/languages")
    async def languages() -> list[Language]:
        """List the model's languages."""
        return calls.languages()

    @router.post(
        "/translate", response_model=LibreTranslation, responses=_ERRORS, openapi_extra=_body(LibreTranslateRequest)
    )
    async def translate(http: HttpRequest) -> Any:
        """Translate as LibreTranslate does."""
        try:
            asked = await _read(http, LibreTranslateRequest, service)
            answer = await calls.translate(asked, http)
        except KermitError as error:
            return _refused(error)
        return JSONResponse(answer.model_dump(exclude_none=True))

    @router.post("/detect", response_model=list[Detection], responses=_ERRORS, openapi_extra=_body(DetectRequest))
    async def detect(http: HttpRequest) -> Any:
        """Tell which of the model's two languages a text is in."""
        try:
            asked = await _read(http, DetectRequest, service)
            return await calls.detect(asked.q, http)
        except KermitError as error:
            return _refused(error)

    return router


Body = TypeVar("Body", LibreTranslateRequest, DetectRequest)


class _Calls:
    """LibreTranslate's calls as requests of this service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.codes = service.card.languages["x"], service.card.languages["y"]

    def languages(self) -> list[Language]:
        trained = self.service.card.factorizations
        ways = {Factorization.Y_GIVEN_X: (0, 1), Factorization.X_GIVEN_Y: (1, 0)}
        known = [way for way in ways if not trained or way in trained or Factorization.JOINT in trained]
        return [
            Language(
                code=code,
                name=language_name(code),
                targets=[self.codes[ways[way][1]] for way in known if ways[way][0] == side],
            )
            for side, code in enumerate(self.codes)
        ]

    async def translate(self, asked: LibreTranslateRequest, http: HttpRequest) -> LibreTranslation:
        texts = asked.q if isinstance(asked.q, list) else [asked.q]
        self._check("target", asked.target)
        detected = []
        if asked.source == "auto":
            detected = [(await self.detect(text, http))[0] for text in texts]
        else:
            self._check("source", asked.source)
        sources = [one.language for one in detected] or [asked.source] * len(texts)
        to_translate = [text for text, source in zip(texts, sources, strict=True) if source != asked.target]
        found = await self._translated(to_translate, asked.target, http)
        drawn = await self._drawn(to_translate, asked.target, asked.alternatives, found, http)
        left, others = iter(found), iter(drawn)
        translated = [
            text if source == asked.target else next(left) for text, source in zip(texts, sources, strict=True)
        ]
        alternatives = [[] if source == asked.target else next(others) for source in sources]
        if isinstance(asked.q, str):
            return LibreTranslation(
                translatedText=translated[0],
                detectedLanguage=detected[0] if detected else None,
                alternatives=alternatives[0] if asked.alternatives else None,
            )
        return LibreTranslation(
            translatedText=translated,
            detectedLanguage=detected or None,
            alternatives=alternatives if asked.alternatives else None,
        )

    async def detect(self, text: str, http: HttpRequest) -> list[Detection]:
        """Compare p(x) and p(y) of the beginning of a text; both languages, the likelier first."""
        card = self.service.card
        trained = card.factorizations
        if trained and Factorization.JOINT not in trained and not {Factorization.X, Factorization.Y} <= set(trained):
            raise ModelError("this model cannot detect languages; name the source language")
        sentences = split_text(text, self.codes[0]).sentences
        if not sentences:
            raise DataError("there is no text whose language could be detected")
        part = " ".join(sentences)[:DETECTION_CHARACTERS]
        method: ScoreMethod = "left_to_right" if Strategy.LEFT_TO_RIGHT in card.strategies else "importance"
        sides = {Factorization.X: ([part], [""]), Factorization.Y: ([""], [part])}
        scores = []
        for way, (x, y) in sides.items():
            asked = ScoreRequest(x=x, y=y, factorization=way, method=method)
            answer = await self.service.answer(asked, lambda: hung_up(http))
            assert isinstance(answer, TextScores)
            [score] = answer.results
            scores.append(-math.inf if score.log_prob is None else score.log_prob)
        peak = max(*scores, -1e30)
        weights = [math.exp(score - peak) for score in scores]
        total = sum(weights) or 1.0
        found = [
            Detection(language=code, confidence=round(100 * weight / total, 1))
            for code, weight in zip(self.codes, weights, strict=True)
        ]
        return sorted(found, key=lambda one: -one.confidence)

    def _check(self, name: str, code: str) -> None:
        if code not in self.codes:
            raise ModelError(f"{name}: {code!r} is not supported; this model knows {' and '.join(self.codes)}")

    async def _translated(self, texts: list[str], to: str, http: HttpRequest, **drawing: Any) -> list[str]:
        if not texts:
            return []
        answer = await self.service.answer(TranslateRequest(texts=texts, to=to, **drawing), lambda: hung_up(http))
        assert isinstance(answer, GeneratedTexts)
        return [(result.y if to == self.codes[1] else result.x) or "" for result in answer.results]

    async def _drawn(
        self, texts: list[str], to: str, count: int, found: list[str], http: HttpRequest
    ) -> list[list[str]]:
        """Draw further translations of each text, without repeats."""
        others: list[list[str]] = [[] for _ in texts]
        for seed in range(1, count + 1):
            drawn = await self._translated(texts, to, http, temperature=CANDIDATE_TEMPERATURE, seed=seed * len(texts))
            for known, best, text in zip(others, found, drawn, strict=True):
                if text != best and text not in known:
                    known.append(text)
        return others


async def _read(http: HttpRequest, kind: type[Body], service: Service) -> Body:
    """Read a body, JSON or form, and check its API key."""
    content = await http.body()
    is_json = http.headers.get("content-type", "").partition(";")[0].strip() == "application/json"
    try:
        text = content.decode()
        values = json.loads(text) if is_json else _form(text)
        asked = kind.model_validate(values)
    except ValidationError as error:
        places = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors()[:5]]
        raise DataError("; ".join(f"{place}: {told}" if place else told for place, told in places)) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"the body is neither JSON nor a form: {error}") from error
    bearer = http.headers.get("authorization", "").removeprefix("Bearer ")
    if not is_token(asked.api_key or bearer, service.settings.token):
        raise TokenError("give the service's token as api_key")
    return asked


def _form(text: str) -> dict[str, Any]:
    fields = parse_qs(text, keep_blank_values=True, max_num_fields=1000)
    return {name: values if name == "q" and len(values) > 1 else values[0] for name, values in fields.items()}


def _refused(error: KermitError) -> JSONResponse:
    status = error.status if isinstance(error, RefusalError) else 400
    headers = {}
    if isinstance(error, RefusalError) and error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    status = {TokenError.status: 403, 422: 400}.get(status, status)
    return JSONResponse(LibreTranslateError(error=str(error)).model_dump(), status, headers)


def _body(kind: type[BaseModel]) -> dict[str, Any]:
    """Describe a body for OpenAPI."""
    schema = kind.model_json_schema()
    kinds = ("application/json", "application/x-www-form-urlencoded")
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}
