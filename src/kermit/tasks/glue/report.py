"""Summary of finetunings: mean and deviation over seeds of each task, and GLUE's average.

Of several settings of a task, the one with the best mean score on the dev split is reported, among those with the most
seeds. It was selected on the split that it is reported on, and the summary says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

import kermit
from kermit.tasks.glue.finetuning import Setting
from kermit.tasks.glue.runs import Result
from kermit.tasks.glue.scoring import glue_average
from kermit.tasks.glue.table import TASKS

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds; a single seed has no deviation."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Compute both from one number per seed."""
        return cls(round(fmean(values), 2), round(stdev(values), 2) if len(values) > 1 else None)

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.deviation is None else f"{self.mean:.2f} ± {self.deviation:.2f}"


@dataclass(frozen=True)
class TaskSummary:
    """A task with its best setting on dev, of those with the most seeds; signatures are in the order of the seeds."""

    task: str
    score: Spread
    metrics: dict[str, Spread]
    seeds: list[int]
    setting: Setting
    settings_tried: int
    train_examples: int
    signatures: list[str]


@dataclass(frozen=True)
class Summary:
    """All tasks, and GLUE's average over those present; settings were chosen and scored on `split`."""

    model: str
    tasks: list[TaskSummary]
    average: float | None
    split: str = "dev"
    version: str = kermit.__version__


def summarise(results: Sequence[Result]) -> Summary:
    """Summarise results, tasks in GLUE's order."""
    by_task: dict[str, dict[Setting, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for result in sorted(results, key=lambda result: result.seed):
        by_task[result.task][result.setting].append(result)
    tasks = [_best_setting(name, by_task[name]) for name in (task.name for task in TASKS) if name in by_task]
    average = glue_average({task.task: task.score.mean for task in tasks})
    return Summary(results[0].model if results else "", tasks, average)


def _best_setting(name: str, by_setting: dict[Setting, list[Result]]) -> TaskSummary:
    def rank(item: tuple[Setting, list[Result]]) -> tuple[int, float]:
        return len(item[1]), fmean(result.score for result in item[1])

    setting, best = max(by_setting.items(), key=rank)
    return TaskSummary(
        task=name,
        score=Spread.of([result.score for result in best]),
        metrics={metric: Spread.of([result.metrics[metric] for result in best]) for metric in best[0].metrics},
        seeds=[result.seed for result in best],
        setting=setting,
        settings_tried=len(by_setting),
        train_examples=best[0].train_examples,
        signatures=[result.signature for result in best],
    )


def summary_table(summary: Summary) -> Table:
    """Format the summary for a terminal."""
    from rich.table import Table

    out = Table(title=f"GLUE, {summary.split}: {summary.model}", title_justify="left")
    out.add_column("task")
    out.add_column("metrics")
    for heading in ("score", "seeds", "trained on"):
        out.add_column(heading, justify="right")
    out.add_column("setting", overflow="fold")
    for task in summary.tasks:
        metrics = ", ".join(f"{name} {spread}" for name, spread in task.metrics.items())
        tried = f" (best of {task.settings_tried} on dev)" if task.settings_tried > 1 else ""
        setting = f"{task.setting.name}{tried}"
        out.add_row(task.task, metrics, str(task.score), str(len(task.seeds)), f"{task.train_examples:,}", setting)
    if summary.average is not None:
        count = f"of {len(summary.tasks)} task{'s' if len(summary.tasks) > 1 else ''}"
        out.add_section()
        out.add_row("average", count, f"{summary.average:.2f}", "", "", "")
    return out
