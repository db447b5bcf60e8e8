"""What stands before every route: the token, a limit on bytes, headers that keep a browser strict, and counting."""

from __future__ import annotations

import secrets
import time

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kermit.serving.answers import Problem
from kermit.serving.metrics import Metrics

_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' blob:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
_SWAGGER = {"style-src": "'self' 'unsafe-inline'", "img-src": "'self' data:"}  # what Swagger UI needs
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def is_token(shown: str | None, token: str | None) -> bool:
    """Return whether a caller may come in; everybody may where there is no token."""
    return token is None or (shown is not None and secrets.compare_digest(shown.encode(), token.encode()))


async def hung_up(request: Request) -> None:
    """Wait until the caller has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _policy(path: str) -> str:
    policy = _POLICY | (_SWAGGER if path == "/docs" else {})
    return "; ".join(f"{name} {value}" for name, value in policy.items())


class SecurityHeaders:
    """Adds the headers that keep a browser strict, and has it ask again for what may have changed."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers["Content-Security-Policy"] = _policy(scope["path"])
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        await self.app(scope, receive, with_headers)


class BodyLimit:
    """Refuses requests of too many bytes, whether they say so beforehand or not."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self.app, self.most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, if it is small enough."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        detail = f"the request has more than {self.most} bytes; split it"
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdecimal() or int(declared) > self.most:
            problem = Problem(detail=detail, limit=self.most)
            await JSONResponse(problem.model_dump(), 413)(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.most:
                raise HTTPException(413, detail)
            return message

        await self.app(scope, counted, send)


class Observer:
    """Counts requests and how long they take, by route and status."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path", "other")  # a few names, whatever paths callers make up
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - began)
