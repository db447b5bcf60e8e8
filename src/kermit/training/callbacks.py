"""Callbacks of the trainer: time and averaging, the progress bar, the log, and signals."""

from __future__ import annotations

import logging
import signal
import sys
import time
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState

if TYPE_CHECKING:
    from kermit.training.trainer import KermitTrainer

logger = logging.getLogger(__name__)

_MINUTES = "kermit_minutes"


class Progress(TrainerCallback):  # type: ignore[misc]
    """Updates the moving average, the epoch and the elapsed time."""

    def __init__(self, trainer: KermitTrainer) -> None:
        self.trainer = trainer
        self._started = 0.0
        self._before = 0.0

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Continue from the elapsed time of earlier runs."""
        self._started = time.monotonic()
        self._before = minutes_spent(state)
        state.compute_steps(args, state.max_steps)  # a resumed state has its own intervals

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Update the average, the epoch and the elapsed time; stop at the time limit."""
        if self.trainer.average is not None:
            self.trainer.average.update(state.global_step)
        begun = np.cumsum([0, *self.trainer.stream.sizes])  # the batches before each epoch
        state.epoch = float(np.interp(state.global_step * args.gradient_accumulation_steps, begun, range(len(begun))))
        spent = self._before + (time.monotonic() - self._started) / 60
        state.stateful_callbacks[_MINUTES] = {"args": {}, "attributes": {"minutes": spent}}
        limit = self.trainer.recipe.schedule.max_minutes
        if limit is not None and self.trainer.largest(spent) >= limit:
            logger.info("stopping at step %d: %.1f of %.1f minutes used", state.global_step, spent, limit)
            control.should_training_stop = control.should_save = control.should_evaluate = True
        if state.global_step >= state.max_steps:
            control.should_save = control.should_evaluate = True


def minutes_spent(state: TrainerState) -> float:
    """Return the minutes of training so far, including those before it was resumed."""
    saved = state.stateful_callbacks.get(_MINUTES)
    return float(saved["attributes"]["minutes"]) if isinstance(saved, dict) else 0.0


class Bar(TrainerCallback):  # type: ignore[misc]
    """A progress bar on stderr, if it is a terminal; stdout is for results."""

    _bar: tqdm[Any]

    def __init__(self, title: str | None, *, hidden: bool) -> None:
        self._title, self._hidden = title, hidden

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Show the bar at the current step."""
        hidden = True if self._hidden or not state.is_world_process_zero else None
        done, total = state.global_step, state.max_steps
        self._bar = tqdm(initial=done, total=total, desc=self._title, file=sys.stderr, disable=hidden, leave=False)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Advance the bar."""
        self._bar.update(1)

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Remove the bar."""
        self._bar.close()


class Log(TrainerCallback):  # type: ignore[misc]
    """Logs losses and metrics, with the speed and the time left."""

    def __init__(self) -> None:
        self._begun = self._first = 0.0

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start the clock."""
        self._begun, self._first = time.monotonic(), state.global_step

    def on_log(
        self, args: Any, state: TrainerState, control: TrainerControl, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Log one line without disturbing the bar; skip the final summary of transformers."""
        if not logs or "train_runtime" in logs:
            return
        shown = ", ".join(f"{name} {value:.4g}" for name, value in logs.items() if isinstance(value, int | float))
        if state.is_world_process_zero:
            with tqdm.external_write_mode(file=sys.stderr):
                logger.info("step %d of %d%s: %s", state.global_step, state.max_steps, self._pace(state), shown)

    def _pace(self, state: TrainerState) -> str:
        """Return the speed since this run began, and the remaining time at that speed."""
        done, seconds = state.global_step - self._first, time.monotonic() - self._begun
        if done <= 0 or seconds <= 0:
            return ""
        speed = done / seconds
        left = timedelta(seconds=round((state.max_steps - state.global_step) / speed))
        return f", {speed:.3g} steps/s, {left} left"


class Signals(TrainerCallback):  # type: ignore[misc]
    """On SIGINT, SIGTERM or SIGHUP, finish the step, write a checkpoint and stop; a second signal stops at once."""

    def __init__(self, trainer: KermitTrainer) -> None:
        self.trainer = trainer
        self.caught: int | None = None
        self._former: dict[int, Any] = {}

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Install the handlers."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._former[number] = signal.signal(number, self._catch)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self.caught = number
        for caught, former in self._former.items():
            signal.signal(caught, former)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stop if any process caught a signal."""
        caught = self.trainer.largest(float(self.caught or 0))
        if caught:
            self.caught = int(caught)
            logger.warning("caught signal %d: writing a checkpoint at step %d", self.caught, state.global_step)
            control.should_save = control.should_training_stop = True

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Restore the handlers."""
        for number, former in self._former.items():
            signal.signal(number, former)
