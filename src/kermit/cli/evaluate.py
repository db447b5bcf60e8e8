"""`kermit evaluate TASK`: score a model on a task's test set."""

from __future__ import annotations

import typer

app = typer.Typer(help="Score a model on a task.", no_args_is_help=True)
