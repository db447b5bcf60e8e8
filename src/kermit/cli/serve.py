"""`kermit serve`: serve a model over HTTP, with a web page."""

from __future__ import annotations

from typing import Annotated

import typer

from kermit.cli.options import Model, load_kermit


def serve(
    model: Model = None,
    host: Annotated[str, typer.Option(help="Address to listen on; by default only this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 for any free one.", min=0, max=65535)] = 8000,
    token: Annotated[str | None, typer.Option(help="Require this bearer token.", envvar="KERMIT_TOKEN")] = None,
    queue: Annotated[int, typer.Option(help="Maximum number of waiting texts; beyond that the answer is 429.")] = 256,
    max_wait_ms: Annotated[
        float, typer.Option(help="How long a text may wait for others to share its batch, in milliseconds.")
    ] = 5.0,
    max_batch: Annotated[int, typer.Option(help="Maximum number of texts per batch.")] = 32,
    deadline: Annotated[float, typer.Option(help="How long a request may take, in seconds.")] = 30.0,
    max_tokens: Annotated[int, typer.Option(help="Maximum number of tokens of a text, given or inserted.")] = 256,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Origin whose pages may call the service, such as https://example.com; * for all. Repeatable.",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of CPU threads; by default 1, or torch's choice for a model without an ONNX file."
        ),
    ] = None,
) -> None:
    """Serve a model over HTTP, with a web page at /; on shutdown, accepted requests are still answered.

    Example: KERMIT_TOKEN=secret kermit serve --host 0.0.0.0
    """
    from kermit.serving.app import create_app
    from kermit.serving.server import serve as run
    from kermit.serving.settings import ServiceSettings

    settings = ServiceSettings(
        token or None, queue, max_batch, max_wait_ms, deadline, max_tokens, cors=tuple(cors or ())
    )
    run(create_app(load_kermit(model, threads), settings), host, port)
