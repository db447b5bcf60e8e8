"""Run the application: listen, serve, and shut down without losing accepted requests."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import os
import signal
import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from kermit.errors import ServingError
from kermit.serving.service import Service

logger = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """A server that, on shutdown, answers accepted requests and refuses new ones with 503."""

    def __init__(self, app: FastAPI) -> None:
        self.service: Service = app.state.service
        grace = math.ceil(self.service.settings.deadline) + 5
        super().__init__(
            uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=grace, lifespan="on")
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; a second SIGINT exits at once, because the worker thread cannot be interrupted."""
        if self.should_exit and sig == signal.SIGINT:
            os._exit(128 + sig)
        self.should_exit = True
        self.service.stop_accepting()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer accepted requests while new ones are still refused with 503, then close."""
        self.service.stop_accepting()
        while self.service.busy:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise a ServingError if it cannot listen on that address."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=1024)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ServingError(
            f"cannot listen on {host}, port {port}: {error}; choose others with --host and --port (0 for any free port)"
        ) from error


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(app: FastAPI, host: str, port: int) -> None:
    """Serve an application until SIGTERM or SIGINT; port 0 is any free port."""
    service: Service = app.state.service
    with listen(host, port) as door:
        if service.settings.token is None and not is_loopback(host):
            logger.warning("warning: other machines can reach %s without a token; set one with KERMIT_TOKEN", host)
        where = f"[{host}]" if ":" in host else host
        logger.info("%s at http://%s:%d", service.card.name, where, door.getsockname()[1])
        Server(app).run(sockets=[door])
