"""`kermit finetune glue`, `kermit evaluate glue` and `kermit submit glue`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kermit.cli import logs, options
from kermit.cli.options import Json
from kermit.cli.output import check_file, check_folder
from kermit.errors import ModelError

finetune_app = typer.Typer(help="Finetune a model on a task.", no_args_is_help=True)
submit_app = typer.Typer(help="Write a submission for a task's test server.", no_args_is_help=True)

Data = Annotated[
    Path | None,
    typer.Option(help="Folder with CoLA, SST-2 and so on; by default glue in KERMIT_DATA, or else the Hub."),
]


@finetune_app.callback()
def _finetune() -> None:
    """Finetune a model on a task."""


@submit_app.callback()
def _submit() -> None:
    """Write a submission for a task's test server."""


@finetune_app.command("glue")
def finetune(
    model: Annotated[
        str,
        typer.Option(help="Folder or Hub name of a KERMIT model, masked or causal LM, or encoder.", show_default=False),
    ],
    output: Annotated[Path, typer.Option(help="Folder for results and finetuned models.", show_default=False)],
    task: Annotated[str, typer.Option(help="Task, several as CoLA,RTE, or all that have data.")] = "all",
    data: Data = None,
    seeds: Annotated[str, typer.Option(help="One finetuning per seed, such as 0,1,2.")] = "0",
    grid: Annotated[
        bool, typer.Option("--grid", help="Try BERT's learning rates, epochs and batch sizes; report the best on dev.")
    ] = False,
    learning_rate: Annotated[
        str | None, typer.Option(help="3e-5 by default; several, such as 5e-5,3e-5, are all tried.", show_default=False)
    ] = None,
    epochs: Annotated[str | None, typer.Option(help="3 by default; or several.", show_default=False)] = None,
    batch_size: Annotated[str | None, typer.Option(help="32 by default; or several.", show_default=False)] = None,
    max_length: Annotated[int, typer.Option(help="Maximum number of tokens of a text or pair.")] = 128,
    subsample: Annotated[int | None, typer.Option(help="Train on N examples, drawn at random.")] = None,
    precision: options.PrecisionOption = "float32",
    scores_only: Annotated[bool, typer.Option("--scores-only", help="Keep only results, no finetuned models.")] = False,
    json_: Json = False,
) -> None:
    """Finetune on tasks of GLUE and score on dev; run again to resume.

    Example: kermit finetune glue --model my-model --task CoLA,RTE --data glue_data --seeds 0,1,2 --output runs/glue
    """
    check_folder("--output", output)
    logs.set_up()
    import json
    from dataclasses import asdict, replace

    from rich.console import Console

    from kermit.provenance import write_json
    from kermit.tasks.glue.data import GlueData
    from kermit.tasks.glue.finetuning import BERT_GRID, Grid
    from kermit.tasks.glue.report import summarise, summary_table
    from kermit.tasks.glue.runs import choose_tasks, find_runs, finetune_all
    from kermit.training.settings import Precision

    several = {
        "learning_rates": _numbers(float, learning_rate, "--learning-rate"),
        "epochs": _numbers(int, epochs, "--epochs"),
        "batch_sizes": _numbers(int, batch_size, "--batch-size"),
    }
    chosen = replace(BERT_GRID if grid else Grid(), **{name: values for name, values in several.items() if values})
    found = GlueData.find(data)
    finetune_all(
        choose_tasks(task, found),
        model,
        found,
        output,
        seeds=_numbers(int, seeds, "--seeds"),
        settings=list(chosen.settings(max_length=max_length, subsample=subsample, precision=Precision(precision))),
        keep_models=not scores_only,
        progress=not logs.spoken.quiet,
    )
    summary = summarise([run.result for run in find_runs(output)])
    write_json(output / "summary.json", asdict(summary))
    if json_:
        typer.echo(json.dumps(asdict(summary), ensure_ascii=False))
    else:
        Console().print(summary_table(summary))


def evaluate(
    model: Annotated[str, typer.Option(help="Folder of a finetuned model.", show_default=False)],
    task: Annotated[str, typer.Option(help="Task; AX takes a model finetuned on MNLI.", show_default=False)],
    data: Data = None,
    split: Annotated[Literal["dev", "train"], typer.Option(help="Test labels are not public.")] = "dev",
    max_length: Annotated[
        int | None, typer.Option(help="Maximum number of tokens of a text or pair; as in finetuning by default.")
    ] = None,
    json_: Json = False,
) -> None:
    """Score a finetuned model on a task of GLUE.

    Example: kermit evaluate glue --model runs/glue/CoLA/seed-0/SETTING --task CoLA --data glue_data
    """
    logs.set_up()
    import json
    from dataclasses import asdict

    from kermit.tasks.glue.data import GlueData
    from kermit.tasks.glue.runs import evaluate_finetuned as run
    from kermit.tasks.glue.table import Split, task_named

    result = run(
        model,
        task_named(task),
        GlueData.find(data),
        Split(split),
        max_length=max_length,
        progress=not logs.spoken.quiet,
    )
    if json_:
        typer.echo(json.dumps(asdict(result), ensure_ascii=False))
        return
    metrics = ", ".join(f"{name} {value:.2f}" for name, value in result.metrics.items())
    typer.echo(f"{result.task} {result.split}: {metrics}, score {result.score:.2f} ({result.examples:,} examples)")
    typer.echo(result.signature)


@submit_app.command("glue")
def submit(
    runs: Annotated[Path, typer.Option(help="The output folder of `kermit finetune glue`.", show_default=False)],
    output: Annotated[Path, typer.Option(help="The zip to write.")] = Path("glue.zip"),
    data: Data = None,
    json_: Json = False,
) -> None:
    """Answer GLUE's test files and write the zip for its server.

    Example: kermit submit glue --runs runs/glue --data glue_data --output glue.zip
    """
    check_file("--output", output, in_new_folder=True)
    logs.set_up()
    import json

    from kermit.tasks.glue.data import GlueData
    from kermit.tasks.glue.submission import submit as run

    result = run(runs, GlueData.find(data), output, progress=not logs.spoken.quiet)
    if result.placeholders:
        typer.secho(
            f"WARNING: {', '.join(result.placeholders)} have no finetuned model and hold placeholders, the same answer"
            " in every row; their scores, and the average, are meaningless",
            err=True,
            fg=typer.colors.RED,
        )
    if json_:
        typer.echo(json.dumps(result.to_json(), ensure_ascii=False))
    else:
        answered = len(result.files) - len(result.placeholders)
        typer.echo(f"{result.path}: {answered} files answered, {len(result.placeholders)} placeholders")


def _numbers(kind: type[Any], text: str | None, option: str) -> tuple[Any, ...]:
    """Parse an option with numbers separated by commas; empty if it is not given."""
    try:
        return tuple(kind(part) for part in text.split(",")) if text is not None else ()
    except ValueError:
        example = "5e-5,3e-5" if kind is float else "1,2,3"
        raise ModelError(f"{option} {text}: write numbers separated by commas, such as {example}") from None
