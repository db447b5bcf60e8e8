"""Real processes for the tests of interruption and of several processes, forked from one that has imported torch once.

Run as `python processes.py interrupt|ranks|resume RECIPE.json CORPUS OUTPUT`; kept apart from pytest's own process, in
which torch has threads that a fork would not have.
"""

import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from kermit.loading import list_checkpoints
from kermit.training.recipe import check_recipe
from kermit.training.run import train
from kermit.training.trainer import KermitTrainer

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGKILL)


def forked(work: Callable[[], int | None]) -> int:
    """Start a child that does the work and exits with what it returns, 0 for None, or with 1 after an error."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        torch.set_num_threads(1)
        code = work() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def finished(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def is_over(child: int) -> bool:
    """Whether a child has ended; its exit code is not collected yet."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def interrupt(recipe: dict[str, Any], corpus: Path, output: Path) -> None:
    """Train once without interruption, and once interrupted by every signal at random moments after checkpoints."""
    loaded = check_recipe(recipe, data=corpus)
    interrupted = output / "interrupted"
    start = time.monotonic()
    assert finished(forked(lambda: train(loaded, output / "whole").stopped_by)) == 0
    between = (time.monotonic() - start) * loaded.recipe.checkpoints.every / loaded.recipe.schedule.max_steps
    draw = random.Random(os.getpid())
    kills = []
    for number in draw.sample(SIGNALS, len(SIGNALS)):
        before = list_checkpoints(interrupted)[-1:]
        child = forked(lambda: train(loaded, interrupted, resume=True).stopped_by)
        while list_checkpoints(interrupted)[-1:] == before and not is_over(child):
            time.sleep(0.005)
        time.sleep(draw.uniform(0, between))
        os.kill(child, number)
        assert finished(child) == (-number if number is signal.SIGKILL else number), number
        kills.append(number.name)
    assert finished(forked(lambda: train(loaded, interrupted, resume=True).stopped_by)) == 0
    (output / "kills.json").write_text(json.dumps(kills))


def ranks(recipe: dict[str, Any], corpus: Path, output: Path) -> None:
    """The gradients of the first steps with one process, and with two under gloo."""
    loaded = check_recipe(recipe, data=corpus)
    clip = KermitTrainer._clip_grad_norm

    def run(folder: Path) -> None:
        def spy(self: KermitTrainer, model: torch.nn.Module) -> Any:
            assert self.planner.processes == self.accelerator.num_processes
            if self.is_world_process_zero():
                gradients = {name: p.grad.clone() for name, p in self.model.named_parameters() if p.grad is not None}
                folder.mkdir(parents=True, exist_ok=True)
                save_file(gradients, folder / f"gradients-{self.state.global_step}.safetensors")
            return clip(self, model)

        KermitTrainer._clip_grad_norm = spy
        train(loaded, folder)

    assert finished(forked(lambda: run(output / "one"))) == 0
    two_processes(lambda: run(output / "two"))


def resume(recipe: dict[str, Any], corpus: Path, output: Path) -> None:
    """Train with two processes under gloo, once at a stretch and once with a stop after half of the steps."""
    steps = recipe["schedule"]["max_steps"]

    def run(folder: Path, last: int) -> None:
        schedule = recipe["schedule"] | {"max_steps": last}
        train(check_recipe(recipe | {"schedule": schedule}, data=corpus), folder, resume=True)

    for name, last in (("whole", steps), ("stopped", steps // 2), ("stopped", steps)):
        two_processes(lambda folder=output / name, last=last: run(folder, last))


def two_processes(work: Callable[[], int | None]) -> None:
    """Do the work in two processes that form a group."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children = []
    for rank in ("0", "1"):
        os.environ.update(shared, RANK=rank, LOCAL_RANK=rank)
        children.append(forked(work))
    assert [finished(child) for child in children] == [0, 0]


if __name__ == "__main__":
    what, recipe_file, *folders = sys.argv[1:]
    {"interrupt": interrupt, "ranks": ranks, "resume": resume}[what](
        json.loads(Path(recipe_file).read_text()), *map(Path, folders)
    )
