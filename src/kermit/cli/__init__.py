"""The command line: `kermit VERB ...`, one thin file per verb or group of similar verbs.

Nothing heavy is imported until a verb runs, so that `kermit --help` and `kermit VERB --help` are fast. To add a verb,
write its function in a file of its own and register it below, in a panel of the help. Its docstring is its help: one
line that says what it does, and an example.

A `KermitError`, or a file that cannot be read or written, is printed to stderr without a traceback, with exit code 2;
`--debug` shows the traceback. Any other exception is a bug and is shown in full.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kermit.cli import augment, distill, embed, evaluate, export, generate, glue, info, logs, score, serve, trace, train
from kermit.cli.verbs import EVALUATE, SERVE, TRAIN, USE, Verbs
from kermit.errors import KermitError

app = typer.Typer(
    name="kermit",
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("translate", rich_help_panel=USE)(generate.translate)
app.command("infill", rich_help_panel=USE)(generate.infill)
app.command("complete", rich_help_panel=USE)(generate.complete)
app.command("sample", rich_help_panel=USE)(generate.sample)
app.command("score", rich_help_panel=USE)(score.score)
app.command("embed", rich_help_panel=USE)(embed.embed)
app.command("trace", rich_help_panel=USE)(trace.trace)
app.command("info", rich_help_panel=USE)(info.info)
app.command("train", rich_help_panel=TRAIN)(train.train)
app.command("distill", rich_help_panel=TRAIN)(distill.distill)
app.command("augment", rich_help_panel=TRAIN)(augment.augment)
app.add_typer(glue.finetune_app, name="finetune", rich_help_panel=TRAIN)
evaluate.evaluate_app.command("glue")(glue.evaluate)
app.add_typer(evaluate.evaluate_app, name="evaluate", rich_help_panel=EVALUATE)
app.command("serve", rich_help_panel=SERVE)(serve.serve)
app.command("export", rich_help_panel=SERVE)(export.export)
app.add_typer(glue.submit_app, name="submit", rich_help_panel=EVALUATE)


def _version(value: bool) -> None:
    if value:
        from kermit import __version__

        typer.echo(f"kermit {__version__}")
        raise typer.Exit


@app.callback()
def _everywhere(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks and a more detailed log.", callback=logs.hear)
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Show only results and errors: no progress, no log.", callback=logs.hear),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """KERMIT: generative modelling of texts and pairs of texts by insertion.

    Example: kermit translate --to de "A dog sleeps in the sun."
    """


_EXTRAS = {
    "train": ("accelerate", "datasets", "pydantic", "sacrebleu", "scipy", "sklearn", "torch", "transformers"),
    "serve": ("fastapi", "fastapi_swagger", "prometheus_client", "uvicorn"),
    "pictures": ("matplotlib",),
    "export": ("onnx", "onnxscript"),
    "distill": ("ctranslate2",),
    "gguf": ("gguf",),
}
"""The packages of each extra; inference needs none of them."""


def _message(error: Exception) -> str | None:
    """Return what to print for an error that the user can fix; None for a bug."""
    match error:
        case KermitError():
            return str(error)
        case OSError():
            return str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
        case ModuleNotFoundError():
            package = (error.name or "").partition(".")[0]
            for extra in (name for name, packages in _EXTRAS.items() if package in packages):
                install = f"pip install 'kermit-insertion[{extra}]'"
                return f"this command needs the package {package}; install it with: {install}"
    return None


def main() -> None:
    """Run the `kermit` command."""
    try:
        app(prog_name="kermit")
    except Exception as error:
        if (message := _message(error)) is None:
            raise
        if logs.spoken.debug:
            import traceback

            traceback.print_exc()
        else:
            print(f"error: {message}", file=sys.stderr)
        raise SystemExit(2) from None
