"""`kermit finetune glue`, `kermit evaluate glue` and `kermit submit glue`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kermit.cli import logs
from kermit.cli.options import Json
from kermit.cli.output import Results, check_file, check_folder
from kermit.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from kermit.tasks.glue.runs import Summary

finetune_app = typer.Typer(help="Finetune a model on a task.", no_args_is_help=True)
submit_app = typer.Typer(help="Write a submission for a task's test server.", no_args_is_help=True)

Data = Annotated[Path | None, typer.Option(help="Folder with CoLA, SST-2 and so on; by default glue in KERMIT_DATA.")]


@finetune_app.command("glue")
def finetune(
    model: Annotated[str, typer.Option(help="Folder or Hub name of a KERMIT model, masked or causal LM, or encoder.")],
    output: Annotated[Path, typer.Option(help="Folder for results and finetuned models.")],
    task: Annotated[str, typer.Option(help="Tasks such as CoLA,RTE, or all with data.")] = "all",
    data: Data = None,
    seeds: Annotated[str, typer.Option(help="Random seeds, such as 0,1,2; one run per seed.")] = "0",
    learning_rate: Annotated[float, typer.Option(min=0, help="Peak learning rate.")] = 3e-5,
    epochs: Annotated[int, typer.Option(min=1, help="Number of passes over the training examples.")] = 3,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per step.")] = 32,
    max_length: Annotated[int, typer.Option(min=5, help="Maximum number of tokens of a text or pair.")] = 128,
    subsample: Annotated[int | None, typer.Option(min=1, help="Train on N examples, drawn at random.")] = None,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="Precision of weights and arithmetic.")
    ] = "float32",
    scores_only: Annotated[
        bool, typer.Option("--scores-only", help="Save only results, not the finetuned models.")
    ] = False,
    json_: Json = False,
) -> None:
    """Finetune a model on tasks of GLUE and score it on dev; run again to resume.

    Example: kermit finetune glue --model my-model --task CoLA,RTE --data glue_data --seeds 0,1,2 --output runs/glue
    """
    check_folder("--output", output)
    if not all(seed.strip().isdecimal() for seed in seeds.split(",")):
        raise UsageError(f"--seeds {seeds}: write whole numbers separated by commas, such as 0,1,2")
    from dataclasses import asdict

    from rich.console import Console

    from kermit.provenance import write_json
    from kermit.tasks.glue.data import GlueData
    from kermit.tasks.glue.finetuning import Setting
    from kermit.tasks.glue.runs import choose_tasks, find_runs, finetune_all, summarise
    from kermit.training.settings import Precision

    found = GlueData.find(data)
    finetune_all(
        choose_tasks(task, found),
        model,
        found,
        output,
        seeds=[int(seed) for seed in seeds.split(",")],
        setting=Setting(learning_rate, epochs, batch_size, max_length, subsample, Precision(precision)),
        keep_models=not scores_only,
        progress=not logs.spoken.quiet,
    )
    summary = summarise([run.result for run in find_runs(output)])
    write_json(output / "summary.json", asdict(summary))
    if json_:
        Results().json(asdict(summary))
    else:
        Console().print(_table(summary))


def _table(summary: Summary) -> Table:
    from rich.table import Table

    out = Table("task", "metrics", "score", "seeds", title=f"GLUE, {summary.split}: {summary.model}")
    for task in summary.tasks:
        metrics = ", ".join(f"{name} {spread}" for name, spread in task.metrics.items())
        out.add_row(task.task, metrics, str(task.score), str(len(task.seeds)))
    if summary.average is not None:
        out.add_section()
        out.add_row("average", f"tasks: {len(summary.tasks)}", f"{summary.average:.2f}")
    return out


def evaluate(
    model: Annotated[str, typer.Option(help="Folder of a finetuned model.")],
    task: Annotated[str, typer.Option(help="Task; AX needs a model finetuned on MNLI.")],
    data: Data = None,
    split: Annotated[Literal["dev", "train"], typer.Option(help="Split; test labels are not public.")] = "dev",
    max_length: Annotated[
        int | None, typer.Option(help="Maximum number of tokens of a text or pair; by default that of finetuning.")
    ] = None,
    json_: Json = False,
) -> None:
    """Score a finetuned model on a task of GLUE.

    Example: kermit evaluate glue --model runs/glue/CoLA/seed-0 --task CoLA --data glue_data
    """
    from dataclasses import asdict

    from kermit.tasks.glue.data import GlueData
    from kermit.tasks.glue.runs import evaluate_finetuned as run
    from kermit.tasks.glue.table import Split, task_named

    shown = not logs.spoken.quiet
    result = run(model, task_named(task), GlueData.find(data), Split(split), max_length=max_length, progress=shown)
    if json_:
        Results().json(asdict(result))
        return
    metrics = ", ".join(f"{name} {value:.2f}" for name, value in result.metrics.items())
    typer.echo(f"{result.task} {result.split}: {metrics}, score {result.score:.2f} ({result.examples:,} examples)")
    typer.echo(result.signature)


@submit_app.command("glue")
def submit(
    runs: Annotated[Path, typer.Option(help="The output folder of `kermit finetune glue`.")],
    output: Annotated[Path, typer.Option(help="The zip to write.")] = Path("glue.zip"),
    data: Data = None,
    json_: Json = False,
) -> None:
    """Answer GLUE's test files and write the zip for its server.

    Example: kermit submit glue --runs runs/glue --data glue_data --output glue.zip
    """
    check_file("--output", output, in_new_folder=True)
    from dataclasses import asdict

    from kermit.tasks.glue.data import GlueData
    from kermit.tasks.glue.submission import submit as run

    files = run(runs, GlueData.find(data), output, progress=not logs.spoken.quiet)
    placeholders = [file.name for file in files if file.model is None]
    if placeholders:
        typer.secho(
            f"WARNING: no finetuned model for {', '.join(placeholders)}: these files hold placeholders, the same answer"
            " in every row; their scores, and the average, are meaningless",
            err=True,
            fg=typer.colors.RED,
        )
    if json_:
        Results().json({"path": str(output), "files": [asdict(file) for file in files]})
    else:
        typer.echo(f"{output}: {len(files) - len(placeholders)} files answered, {len(placeholders)} placeholders")
