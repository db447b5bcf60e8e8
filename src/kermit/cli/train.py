"""`kermit train RECIPE.yaml`: train a recipe's model, or resume."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kermit.cli import completion, logs
from kermit.cli.options import Json, set_option
from kermit.cli.output import Results, check_folder


def train(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder that the recipe's paths are relative to; KERMIT_DATA by default.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Output folder; runs/FOLDER/RECIPE by default.")] = None,
    set_: Annotated[
        list[str] | None, set_option("Change a key of the recipe, such as a.b=value.", completion.recipe_keys)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the last checkpoint in the output.")] = False,
    json_: Json = False,
) -> None:
    """Train the model of a recipe.

    Example: kermit train recipes/multi30k/joint.yaml --data data --output runs/joint
    """
    output = output or Path("runs") / recipe.parent.name / recipe.stem
    check_folder("--output", output)
    from kermit.training.recipe import load_recipe
    from kermit.training.run import train as run

    loaded = load_recipe(recipe, data=data, overrides=set_ or [])
    result = run(loaded, output, resume=resume)
    if result.stopped_by is not None:
        typer.echo(f"stopped by signal {result.stopped_by} at step {result.steps}; add --resume to continue", err=True)
        raise typer.Exit(128 + result.stopped_by)
    if not logs.is_main_process():
        return
    if json_:
        record = {"model": str(result.model), "steps": result.steps, "metric": result.metric.name, "best": result.best}
        Results().json(record)
        return
    best = "" if result.best is None else f", best validation {result.metric.title} {result.best:.6g}"
    typer.echo(f"{result.model}: {result.steps} steps{best}")
