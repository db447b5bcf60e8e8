"""Routes compatible with LibreTranslate's API, for its clients: translate, languages, detect.

Bodies are JSON or an HTML form. Errors are ``{"error": ...}`` with 400, 403, 429 or 503, as its clients expect. HTML
and languages other than the model's two are refused.
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
from kermit.serving.answers import GeneratedTexts, Problem, Schema, TextScores, described
from kermit.serving.guards import hung_up, is_token
from kermit.serving.http_errors import TokenError, status_and_headers
from kermit.serving.schemas import RequestText, RequestTexts, ScoreRequest, TranslateRequest
from kermit.serving.service import Service
from kermit.text.languages import language_name
from kermit.text.splitting import split_text

DETECTION_CHARACTERS = 300
"""Number of characters read to detect a text's language."""


class LibreTranslateRequest(BaseModel):
    """Texts to translate; other fields of LibreTranslate are ignored."""

    q: RequestText | RequestTexts
    source: str = Field(max_length=100, description="A language code, or `auto`.")
    target: str = Field(max_length=100)
    format: Literal["text"] = Field(default="text", description="HTML is not supported.")
    alternatives: int = Field(default=0, ge=0, le=10, description="Number of further translations to sample.")
    api_key: str | None = Field(default=None, description="The service's token, if it has one.")


class DetectRequest(BaseModel):
    """A text whose language to detect."""

    q: Annotated[RequestText, Field(min_length=1)]
    api_key: str | None = None


class Detection(Schema):
    """One of the model's two languages, and the confidence in percent."""

    language: str
    confidence: float


class LibreTranslation(Schema):
    """A translation, or a list of them if a list was sent."""

    translatedText: str | list[str]  # noqa: N815
    detectedLanguage: Detection | list[Detection] | None = None  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None


class Language(Schema):
    """A language and the languages it can be translated into."""

    code: str
    name: str
    targets: list[str]


class LibreTranslateError(Schema):
    """What is wrong."""

    error: str


_ERRORS = described(
    LibreTranslateError,
    {
        400: "An invalid value, or a text that is too long.",
        403: "Missing or wrong API key.",
        429: "The queue is full.",
        503: "The deadline has passed, or the service is stopping.",
    },
) | described(Problem, {413: "The request has too many bytes."})
Body = TypeVar("Body", LibreTranslateRequest, DetectRequest)


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
        """Translate texts, with LibreTranslate's fields."""
        try:
            answer = await calls.translate(await _read(http, LibreTranslateRequest, service), http)
        except KermitError as error:
            return _refused(error)
        return JSONResponse(answer.model_dump(exclude_none=True))

    @router.post("/detect", response_model=list[Detection], responses=_ERRORS, openapi_extra=_body(DetectRequest))
    async def detect(http: HttpRequest) -> Any:
        """Detect which of the model's two languages a text is in."""
        try:
            return await calls.detect((await _read(http, DetectRequest, service)).q, http)
        except KermitError as error:
            return _refused(error)

    return router


class _Calls:
    """Answers LibreTranslate's calls with requests to this service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.codes = service.card.languages["x"], service.card.languages["y"]
        self.trained = {*(service.card.factorizations or Factorization)}

    def languages(self) -> list[Language]:
        (x, y), joint = self.codes, Factorization.JOINT
        to_y, to_x = ({way, joint} & self.trained for way in (Factorization.Y_GIVEN_X, Factorization.X_GIVEN_Y))
        return [
            Language(code=x, name=language_name(x), targets=[y] if to_y else []),
            Language(code=y, name=language_name(y), targets=[x] if to_x else []),
        ]

    async def translate(self, asked: LibreTranslateRequest, http: HttpRequest) -> LibreTranslation:
        """Translate texts that are not already in the target language, and sample distinct alternatives."""
        texts, target = [asked.q] if isinstance(asked.q, str) else asked.q, asked.target
        for name, code in (("target", target), ("source", asked.source)):
            if code not in self.codes and (name, code) != ("source", "auto"):
                raise ModelError(
                    f"{name}: unknown language {code!r}; the model's languages are {' and '.join(self.codes)}"
                )
        detected = [(await self.detect(text, http))[0] for text in texts] if asked.source == "auto" else []
        sources = [one.language for one in detected] or [asked.source] * len(texts)
        left = [number for number, source in enumerate(sources) if source != target]
        translated, others = list(texts), [list[str]() for _ in texts]
        for draw in range(1 + asked.alternatives if left else 0):
            drawing = {"temperature": CANDIDATE_TEMPERATURE, "seed": draw * len(left)} if draw else {}
            request = TranslateRequest.model_validate({"texts": [texts[n] for n in left], "to": target} | drawing)
            answer = await self.service.answer(request, lambda: hung_up(http))
            assert isinstance(answer, GeneratedTexts)
            for number, result in zip(left, answer.results, strict=True):
                text = (result.y if target == self.codes[1] else result.x) or ""
                if not draw:
                    translated[number] = text
                elif text not in (translated[number], *others[number]):
                    others[number].append(text)

        def of_one(values: list[Any]) -> Any:
            return values[0] if isinstance(asked.q, str) else values

        return LibreTranslation(
            translatedText=of_one(translated),
            detectedLanguage=of_one(detected) if detected else None,
            alternatives=of_one(others) if asked.alternatives else None,
        )

    async def detect(self, text: str, http: HttpRequest) -> list[Detection]:
        """Compare p(x) and p(y) of the beginning of a text; return both languages, the likelier first."""
        if Factorization.JOINT not in self.trained and not {Factorization.X, Factorization.Y} <= self.trained:
            raise ModelError("the model cannot detect languages; give the source language")
        sentences = split_text(text, self.codes[0]).sentences
        if not sentences:
            raise DataError("the text is empty; its language cannot be detected")
        part = " ".join(sentences)[:DETECTION_CHARACTERS]
        method: ScoreMethod = (
            "left_to_right" if Strategy.LEFT_TO_RIGHT in self.service.card.strategies else "importance"
        )
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
        raise DataError("; ".join(f"{place}: {text}" if place else text for place, text in places)) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"the body is neither JSON nor a form: {error}") from error
    bearer = http.headers.get("authorization", "").removeprefix("Bearer ")
    if not is_token(asked.api_key or bearer, service.settings.token):
        raise TokenError("missing or wrong token; send it as api_key")
    return asked


def _form(text: str) -> dict[str, Any]:
    fields = parse_qs(text, keep_blank_values=True, max_num_fields=1000)
    return {name: values if name == "q" and len(values) > 1 else values[0] for name, values in fields.items()}


def _refused(error: KermitError) -> JSONResponse:
    status, headers = status_and_headers(error)
    body = LibreTranslateError(error=str(error)).model_dump()
    return JSONResponse(body, {401: 403, 422: 400}.get(status, status), headers)


def _body(kind: type[BaseModel]) -> dict[str, Any]:
    """Describe a body for OpenAPI."""
    schema = kind.model_json_schema()
    kinds = ("application/json", "application/x-www-form-urlencoded")
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}
