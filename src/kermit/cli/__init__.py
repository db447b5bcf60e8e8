"""The command line: `kermit VERB ...`, one thin file a verb.

Nothing heavy is imported until a verb runs, so that `kermit --help` answers at once. A `KermitError` is the user's to
mend: it is printed without a traceback, and the exit code is 2.
"""

from __future__ import annotations

import sys

import typer

from kermit.cli import distill, evaluate, generate, train, translate
from kermit.errors import KermitError

app = typer.Typer(
    name="kermit",
    help="KERMIT: generative modelling of texts and pairs of texts by insertion.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("train")(train.train)
app.command("translate")(translate.translate)
app.command("infill")(generate.infill)
app.command("complete")(generate.complete)
app.command("sample")(generate.sample)
app.command("distill")(distill.distill)
app.add_typer(evaluate.app, name="evaluate")


@app.callback()
def _global(
    context: typer.Context,
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error, and more of the log."),
) -> None:
    context.obj = {"debug": debug}


def main() -> None:
    """Run the command line; the entry point of the `kermit` command."""
    try:
        app()
    except KermitError as error:
        if "--debug" in sys.argv:
            raise
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
