"""The application: routes and errors over HTTP; `service` answers the requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import fastapi_swagger
from fastapi import APIRouter, Depends, FastAPI, Request as HttpRequest, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.sse import EventSourceResponse, format_sse_event
from fastapi.staticfiles import StaticFiles
from starlette.middleware.cors import CORSMiddleware

from kermit import __version__
from kermit.errors import KermitError
from kermit.pipeline import Kermit
from kermit.serving import answers, libretranslate, schemas
from kermit.serving.guards import Guard, hung_up, is_token
from kermit.serving.http_errors import TokenError, status_and_headers
from kermit.serving.service import Event, Service
from kermit.serving.settings import ServiceSettings

STATIC = Path(__file__).parent / "static"
SWAGGER = Path(fastapi_swagger.__file__).parent / "resources"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

_VERBS: dict[str, tuple[type[schemas.Request], type[answers.Reply]]] = {
    "translate": (schemas.TranslateRequest, answers.GeneratedTexts),
    "infill": (schemas.InfillRequest, answers.GeneratedTexts),
    "complete": (schemas.CompleteRequest, answers.GeneratedTexts),
    "sample": (schemas.SampleRequest, answers.GeneratedTexts),
    "alternatives": (schemas.AlternativesRequest, answers.Alternatives),
    "score": (schemas.ScoreRequest, answers.TextScores),
    "embed": (schemas.EmbedRequest, answers.Vectors),
}
"""The request and the answer of each verb."""

_PROBLEMS = answers.described(
    answers.Problem,
    {
        400: "The body is not valid JSON.",
        401: "Missing or wrong bearer token.",
        413: "The request has too many bytes.",
        422: "An invalid value, or a text that is too long.",
        429: "The queue is full; Retry-After says when to try again.",
        503: "The deadline has passed, or the service is stopping.",
    },
)
_EVENT = {
    "type": "object",
    "properties": {
        "event": {"enum": ["start", "round", "result", "error"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["event", "data"],
}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One result per text; with `stream`, events as rounds finish, then the results.",
        "content": {"text/event-stream": {"itemSchema": _EVENT}},
    }
}


def create_app(kermit: Kermit, settings: ServiceSettings | None = None) -> FastAPI:
    """Create the application that serves a model; it owns the pipeline from now on."""
    service = Service(kermit, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="KERMIT",
        version=__version__,
        description="Translate, infill, complete, sample, score and embed texts and pairs of texts.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.add_exception_handler(KermitError, _refuse)
    app.add_exception_handler(RequestValidationError, _explain)
    app.include_router(_open_routes(service))
    app.include_router(_guarded_routes(service))
    app.include_router(libretranslate.routes(service))
    app.mount("/static/swagger", StaticFiles(directory=SWAGGER), name="swagger")
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_middleware(Guard, most=service.settings.max_body, metrics=service.metrics)
    if service.settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.settings.cors,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def _open_routes(service: Service) -> APIRouter:
    """Create the routes that need no token."""
    router = APIRouter()

    @router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @router.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(STATIC / "docs.html")

    @router.get("/healthz", responses={503: {"model": answers.Health}}, tags=["service"])
    async def healthz(response: Response) -> answers.Health:
        """Whether the service accepts requests."""
        if not service.stopping and not service.broken:
            return answers.Health(status="ok")
        response.status_code = 503
        return answers.Health(status="stopping" if service.stopping else "broken")

    return router


def _guarded_routes(service: Service) -> APIRouter:
    """Create the routes that need the token, if one is set."""
    router = APIRouter(dependencies=[Depends(_guard(service.settings.token))])

    @router.get("/v1/models", responses={401: _PROBLEMS[401]}, tags=["model"])
    async def models() -> answers.Models:
        """The served model, its languages and its limits."""
        return answers.Models(models=[service.card])

    @router.get("/metrics", responses={401: _PROBLEMS[401], 200: {"content": {"text/plain": {}}}}, tags=["service"])
    async def metrics() -> Response:
        """Counters, for Prometheus."""
        return Response(service.metrics.text(), media_type=PROMETHEUS)

    for name, (kind, answer) in _VERBS.items():
        responses = _PROBLEMS | (_STREAM if issubclass(kind, schemas.Generating) else {})
        route = router.post(f"/v1/{name}", response_model=answer, responses=responses, name=name, tags=["model"])
        route(_endpoint(service, kind))
    return router


def _endpoint(service: Service, kind: type[schemas.Request]) -> Callable[..., Any]:
    """Create the function that answers one kind of request."""

    async def answer(asked: Any, http: Any) -> Any:
        if not getattr(asked, "stream", False):
            return await service.answer(asked, lambda: hung_up(http))
        events = service.stream(asked, lambda: hung_up(http))
        first = await anext(events)
        return EventSourceResponse(_as_sse(first, events), headers={"Cache-Control": "no-store"})

    answer.__annotations__ = {"asked": kind, "http": HttpRequest}  # FastAPI reads these and the docstring
    answer.__doc__ = kind.__doc__
    return answer


def _guard(token: str | None) -> Callable[..., None]:
    """Create a dependency that admits only callers with the token, or everybody if none is set."""

    def check(shown: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]) -> None:
        if not is_token(None if shown is None else shown.credentials, token):
            raise TokenError("missing or wrong token; send the header Authorization: Bearer TOKEN")

    return check


async def _as_sse(first: Event, events: AsyncGenerator[Event]) -> AsyncIterator[bytes]:
    async with aclosing(events):
        yield _sse(first)
        try:
            async for event in events:
                yield _sse(event)
        except KermitError as error:
            yield format_sse_event(event="error", data_str=_problem(error).model_dump_json())


def _sse(event: Event) -> bytes:
    name = {answers.StartEvent: "start", answers.RoundEvent: "round"}.get(type(event), "result")
    return format_sse_event(event=name, data_str=event.model_dump_json())


def _problem(error: KermitError) -> answers.Problem:
    return answers.Problem(detail=str(error), limit=error.limit)


async def _refuse(http: HttpRequest, error: Exception) -> JSONResponse:
    """Answer with an error of the service or of the model."""
    assert isinstance(error, KermitError)
    return JSONResponse(_problem(error).model_dump(), *status_and_headers(error))


async def _explain(http: HttpRequest, error: Exception) -> JSONResponse:
    """Answer with what is wrong in a request, and where."""
    assert isinstance(error, RequestValidationError)
    wrong, status = [], 422
    for problem in error.errors():
        place = ".".join(str(part) for part in problem["loc"] if part != "body")
        message = str(problem["msg"]).removeprefix("Value error, ")
        if problem["type"] == "json_invalid":
            place, status = "", 400
            message = f"the body is not JSON: {problem['ctx']['error']} at character {problem['loc'][-1]}"
        elif not place and problem["type"] not in ("value_error", "unknown_field"):
            message = "the body must be a JSON object, sent with Content-Type: application/json"
        wrong.append(f"{place}: {message}" if place else message)
    return JSONResponse(answers.Problem(detail="; ".join(wrong[:5])).model_dump(), status)
