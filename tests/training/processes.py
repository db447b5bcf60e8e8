"""Real processes for the tests of interruption and of several processes, forked from one that has imported torch once.

Run as `python processes.py interrupt|ranks RECIPE.json CORPUS OUTPUT`; kept apart from pytest's own process, in which
torch has threads that a fork would not have.
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

from kermit.training.recipe import check_recipe
from kermit.training.run import train
from kermit.training.trainer import KermitTrainer


def forked(work: Callable[[], Any]) -> int:
    """Start a child that does the work and exits with 0, or with 1 after an error."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        torch.set_num_threads(1)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def finished(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def interrupt(recipe: dict[str, Any], corpus: Path, output: Path) -> None:
    """Train once in one go, and once interrupted by every signal again and again, at random moments."""
    loaded = check_recipe(recipe, data=corpus)
    start = time.monotonic()
    assert finished(forked(lambda: train(loaded, output / "whole"))) == 0
    duration = time.monotonic() - start
    draw = random.Random(os.getpid())
    kills = []
    for attempt in range(60):
        child = forked(lambda: train(loaded, output / "interrupted", resume=True))
        number = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[attempt % 3]
        if len(kills) < 9:
            time.sleep(draw.uniform(0.2, 0.8) * duration)
            if os.waitpid(child, os.WNOHANG)[0] == 0:
                os.kill(child, number)
                finished(child)
                kills.append(number.name)
                continue
            break
        assert finished(child) == 0
        break
    (output / "kills.json").write_text(json.dumps(kills))


def ranks(recipe: dict[str, Any], corpus: Path, output: Path) -> None:
    """The gradients of the first steps with one process, and with two under gloo."""
    loaded = check_recipe(recipe, data=corpus)
    clip = KermitTrainer._clip_grad_norm

    def run(folder: Path) -> None:
        def spy(self: KermitTrainer, model: torch.nn.Module) -> Any:
            if self.is_world_process_zero():
                gradients = {name: p.grad.clone() for name, p in self.model.named_parameters() if p.grad is not None}
                folder.mkdir(parents=True, exist_ok=True)
                save_file(gradients, folder / f"gradients-{self.state.global_step}.safetensors")
            return clip(self, model)

        KermitTrainer._clip_grad_norm = spy
        train(loaded, folder)

    assert finished(forked(lambda: run(output / "one"))) == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children = []
    for rank in ("0", "1"):
        os.environ.update(shared, RANK=rank, LOCAL_RANK=rank)
        children.append(forked(lambda: run(output / "two")))
    assert [finished(child) for child in children] == [0, 0]


if __name__ == "__main__":
    what, recipe_file, *folders = sys.argv[1:]
    {"interrupt": interrupt, "ranks": ranks}[what](json.loads(Path(recipe_file).read_text()), *map(Path, folders))
