"""The application: its routes and its errors, as HTTP has them. What a request means, `service` knows."""

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
from kermit.serving import libretranslate
from kermit.serving.answers import (
    Alternatives,
    GeneratedTexts,
    Health,
    Models,
    Problem,
    Reply,
    RoundEvent,
    StartEvent,
    TextScores,
    Vectors,
)
from kermit.serving.guards import BodyLimit, Observer, SecurityHeaders, hung_up, is_token
from kermit.serving.refusals import CallerGoneError, RefusalError, TokenError
from kermit.serving.schemas import (
    AlternativesRequest,
    CompleteRequest,
    EmbedRequest,
    Generating,
    InfillRequest,
    Request,
    SampleRequest,
    ScoreRequest,
    TranslateRequest,
)
from kermit.serving.service import Event, Service
from kermit.serving.settings import ServiceSettings

STATIC = Path(__file__).parent / "static"
SWAGGER = Path(fastapi_swagger.__file__).parent / "resources"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The body cannot be read."},
    401: {"model": Problem, "description": "No bearer token, or a wrong one."},
    413: {"model": Problem, "description": "The request has too many bytes."},
    422: {"model": Problem, "description": "A wrong value, or a text that is too long."},
    429: {"model": Problem, "description": "The queue is full; Retry-After says when to try again."},
    503: {"model": Problem, "description": "The deadline has passed, or the service is stopping."},
}
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
        "description": "One result per text; with `stream`, starts and rounds as they come, then the results.",
        "content": {"text/event-stream": {"itemSchema": _EVENT}},
    }
}


def create_app(kermit: Kermit, settings: ServiceSettings | None = None) -> FastAPI:
    """Create the application that serves a model.

    Args:
        kermit: the pipeline, which from now on belongs to the application.
        settings: its limits, its token and who may call it from a browser.
    """
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
    app.include_router(_model_routes(service))
    app.include_router(_measuring_routes(service))
    app.include_router(libretranslate.routes(service))
    app.mount("/static/swagger", StaticFiles(directory=SWAGGER), name="swagger")
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_middleware(BodyLimit, most=service.settings.max_body)
    app.add_middleware(Observer, metrics=service.metrics)
    app.add_middleware(SecurityHeaders)
    if service.settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.settings.cors,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def _open_routes(service: Service) -> APIRouter:
    """Routes that need no token."""
    router = APIRouter()

    @router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @router.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(STATIC / "docs.html")

    @router.get("/healthz", responses={503: {"model": Health}}, tags=["service"])
    async def healthz(response: Response) -> Health:
        """Whether requests are taken."""
        if not service.stopping and not service.broken:
            return Health(status="ok")
        response.status_code = 503
        return Health(status="stopping" if service.stopping else "broken")

    return router


def _model_routes(service: Service) -> APIRouter:
    """Routes that need the token, if one is set."""
    router = APIRouter(dependencies=[Depends(_guard(service.settings.token))])

    async def generate(asked: Generating, http: HttpRequest) -> Any:
        if not asked.stream:
            return await service.answer(asked, lambda: hung_up(http))
        events = service.stream(asked, lambda: hung_up(http))
        first = await anext(events, None)
        if first is None:
            raise CallerGoneError("the caller has gone")
        return EventSourceResponse(_as_sse(first, events), headers={"Cache-Control": "no-store"})

    @router.get("/v1/models", responses={401: _PROBLEMS[401]}, tags=["model"])
    async def models() -> Models:
        """The model that is served, its languages and its limits."""
        return Models(models=[service.card])

    @router.get("/metrics", responses={401: _PROBLEMS[401], 200: {"content": {"text/plain": {}}}}, tags=["service"])
    async def metrics() -> Response:
        """Counters, for Prometheus."""
        return Response(service.metrics.text(), media_type=PROMETHEUS)

    @router.post("/v1/translate", response_model=GeneratedTexts, responses=_PROBLEMS | _STREAM, tags=["model"])
    async def translate(asked: TranslateRequest, http: HttpRequest) -> Any:
        """The other side of each text: p(y given x) or p(x given y)."""
        return await generate(asked, http)

    @router.post("/v1/infill", response_model=GeneratedTexts, responses=_PROBLEMS | _STREAM, tags=["model"])
    async def infill(asked: InfillRequest, http: HttpRequest) -> Any:
        """Fill the blanks of texts or pairs; a blank is four underscores, and every text needs one."""
        return await generate(asked, http)

    @router.post("/v1/complete", response_model=GeneratedTexts, responses=_PROBLEMS | _STREAM, tags=["model"])
    async def complete(asked: CompleteRequest, http: HttpRequest) -> Any:
        """Complete pairs from fragments, inserting at `...` and blanks; a side that is empty is written whole."""
        return await generate(asked, http)

    @router.post("/v1/sample", response_model=GeneratedTexts, responses=_PROBLEMS | _STREAM, tags=["model"])
    async def sample(asked: SampleRequest, http: HttpRequest) -> Any:
        """Draw pairs from p(x, y), or one side from p(x) or p(y)."""
        return await generate(asked, http)

    return router


def _measuring_routes(service: Service) -> APIRouter:
    """Routes that generate nothing; they need the token, if one is set."""
    router = APIRouter(dependencies=[Depends(_guard(service.settings.token))])

    async def answer(asked: Request, http: HttpRequest) -> Reply:
        return await service.answer(asked, lambda: hung_up(http))

    @router.post("/v1/alternatives", response_model=Alternatives, responses=_PROBLEMS, tags=["model"])
    async def alternatives(asked: AlternativesRequest, http: HttpRequest) -> Any:
        """What else could be inserted into a slot; to pick one, repeat the request with `begun`."""
        return await answer(asked, http)

    @router.post("/v1/score", response_model=TextScores, responses=_PROBLEMS, tags=["model"])
    async def score(asked: ScoreRequest, http: HttpRequest) -> Any:
        """The log-likelihood of texts or pairs, in nats."""
        return await answer(asked, http)

    @router.post("/v1/embed", response_model=Vectors, responses=_PROBLEMS, tags=["model"])
    async def embed(asked: EmbedRequest, http: HttpRequest) -> Any:
        """Texts or pairs as vectors: the trunk's hidden states."""
        return await answer(asked, http)

    return router


def _guard(token: str | None) -> Callable[..., None]:
    """Make a dependency that admits only callers who show the token, or everybody where none is set."""

    def check(shown: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]) -> None:
        if not is_token(None if shown is None else shown.credentials, token):
            raise TokenError("show the service's token: Authorization: Bearer TOKEN")

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
    match event:
        case StartEvent():
            name = "start"
        case RoundEvent():
            name = "round"
        case _:
            name = "result"
    return format_sse_event(event=name, data_str=event.model_dump_json())


def _problem(error: KermitError) -> Problem:
    return Problem(detail=str(error), limit=error.limit)


async def _refuse(http: HttpRequest, error: Exception) -> JSONResponse:
    """Answer with a refusal, or with what the model cannot do."""
    assert isinstance(error, KermitError)
    status = error.status if isinstance(error, RefusalError) else 422
    headers = {}
    if isinstance(error, RefusalError) and error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if status == TokenError.status:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(_problem(error).model_dump(), status, headers)


async def _explain(http: HttpRequest, error: Exception) -> JSONResponse:
    """What is wrong with a request, by the place in it."""
    assert isinstance(error, RequestValidationError)
    wrong = []
    for problem in error.errors():
        if problem["type"] == "json_invalid":
            told = f"the body is not JSON: {problem['ctx']['error']} at character {problem['loc'][-1]}"
            return JSONResponse(Problem(detail=told).model_dump(), 400)
        if tuple(problem["loc"]) == ("body",) and problem["type"] not in ("value_error", "unknown_field"):
            told = "send a JSON object as the body, with Content-Type: application/json"
            return JSONResponse(Problem(detail=told).model_dump(), 422)
        place = ".".join(str(part) for part in problem["loc"] if part != "body")
        told = str(problem["msg"]).removeprefix("Value error, ")
        wrong.append(f"{place}: {told}" if place else told)
    return JSONResponse(Problem(detail="; ".join(wrong[:5])).model_dump(), 422)
