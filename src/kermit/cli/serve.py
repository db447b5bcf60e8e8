"""`kermit serve`: a model as an HTTP service with a page."""

from __future__ import annotations

from typing import Annotated

import typer

from kermit.cli import logs
from kermit.cli.choices import Model, load_kermit


def serve(
    model: Model = None,
    host: Annotated[str, typer.Option(help="The address to listen on; by default this machine alone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 for any that is free.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None,
        typer.Option(help="Ask callers for this bearer token.", envvar="KERMIT_TOKEN", show_default=False),
    ] = None,
    queue: Annotated[int, typer.Option(help="How many texts may wait; beyond that the answer is 429.")] = 256,
    max_wait_ms: Annotated[float, typer.Option(help="How long a text may wait for others to join it.")] = 5.0,
    max_batch: Annotated[int, typer.Option(help="How many texts to decode together.")] = 32,
    deadline: Annotated[float, typer.Option(help="How many seconds a request may take.")] = 30.0,
    max_tokens: Annotated[int, typer.Option(help="The most tokens of a text, given or inserted.")] = 256,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Let pages of this origin call the service, such as https://example.com; * for all. Repeatable.",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of the model; as torch chooses by default.", show_default=False)
    ] = None,
) -> None:
    """Serve a model over HTTP, with a page at /; told to stop, it answers what it has accepted.

    Example: KERMIT_TOKEN=secret kermit serve --host 0.0.0.0
    """
    logs.set_up()
    from kermit.errors import ServingError

    try:
        from kermit.serving.app import create_app
        from kermit.serving.server import serve as run
        from kermit.serving.settings import ServiceSettings
    except ModuleNotFoundError as error:
        raise ServingError(
            f"serving needs the package {error.name}; install it with: pip install 'kermit-insertion[serve]'"
        ) from error

    settings = ServiceSettings(
        token or None, queue, max_batch, max_wait_ms, deadline, max_tokens, cors=tuple(cors or ())
    )
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    run(create_app(load_kermit(model), settings), host, port)
