"""Training gives the same weights if interrupted, by signals too, and if divided between two processes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_states import optimizer_state
from insertion_models import TINY_TRUNK
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("processes.py")


def run(what: str, recipe: dict[str, Any], corpus: Path, output: Path) -> None:
    (output / "recipe.json").write_text(json.dumps(recipe))
    command = [sys.executable, str(SCRIPT), what, str(output / "recipe.json"), str(corpus), str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


KERMIT = {
    "model": {"family": "kermit", "trunk": TINY_TRUNK},
    "factorizations": {"joint": 1.0, "y_given_x": 1.0},
    "decoding": {"max_tokens": 12},
}

CACHED = KERMIT | {
    "model": {
        "family": "kermit",
        "slot_vector": "both",
        "cached_context": True,
        "trunk": {"model_type": "kermit_encoder", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
    },
    "objective": {"name": "generation", "infilling": 0.3, "staggered": 0.2, "location_weight": 0.0},
    "orders": {"balanced_tree": 1.0, "left_to_right": 1.0},
}


@pytest.mark.parametrize(
    "changes",
    [
        {"averaging": {"ema": 0.9}},
        KERMIT | {"optimizer": {"name": "muon"}},
        CACHED,
    ],
    ids=["ema", "kermit with muon", "cached context"],
)
def test_signals_at_random_moments_do_not_change_the_weights(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    tiny_recipe |= changes
    tiny_recipe["schedule"] = {"max_steps": 90, "warmup_steps": 5}
    tiny_recipe["evaluation"] = {"every": 45, "texts": 2}
    tiny_recipe["checkpoints"] = {"every": 5, "keep": 1}
    run("interrupt", tiny_recipe, corpus, tmp_path)
    kills = json.loads((tmp_path / "kills.json").read_text())
    assert set(kills) == {"SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"}
    names = ["checkpoint-90/model", "best/model", "model"]
    for name in names + (["checkpoint-90/average"] if "ema" in tiny_recipe["averaging"] else []):
        whole, again = (load_file(tmp_path / way / f"{name}.safetensors") for way in ("whole", "interrupted"))
        assert whole.keys() == again.keys()
        for key, tensor in whole.items():
            assert torch.equal(tensor, again[key]), f"{name}: {key} differs after {kills}"
    whole, again = (optimizer_state(tmp_path / way / "checkpoint-90") for way in ("whole", "interrupted"))
    assert whole.keys() == again.keys()
    assert all(torch.equal(tensor, again[key]) for key, tensor in whole.items()), kills


@pytest.mark.parametrize(
    ("family", "accumulate"), [("transformer", 1), ("transformer", 2), ("kermit", 2), ("cached", 1)]
)
def test_two_processes_have_the_gradients_of_one_with_all_the_texts(
    tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path, family: str, accumulate: int
) -> None:
    tiny_recipe["model"]["dropout"] = 0.0
    if family == "kermit":
        trunk = {**TINY_TRUNK, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        tiny_recipe |= {**KERMIT, "model": {"family": "kermit", "trunk": trunk}}
    elif family == "cached":
        tiny_recipe |= CACHED
    tiny_recipe["schedule"] = {"max_steps": 2, "warmup_steps": 0, "name": "constant"}
    tiny_recipe["optimizer"] = {"learning_rate": 1e-4, "epsilon": 1e-2}
    tiny_recipe["batch"] = {"tokens": 300, "accumulate": accumulate}
    run("ranks", tiny_recipe, corpus, tmp_path)
    for step in (0, 1):
        one, two = (load_file(tmp_path / way / f"gradients-{step}.safetensors") for way in ("one", "two"))
        assert one.keys() == two.keys()
        for name, gradient in one.items():
            assert torch.allclose(gradient, two[name], atol=1e-6, rtol=1e-4), f"step {step}: {name}"


def test_two_processes_continue_from_a_checkpoint(tiny_recipe: dict[str, Any], corpus: Path, tmp_path: Path) -> None:
    tiny_recipe |= CACHED
    tiny_recipe["schedule"] = {"max_steps": 6, "warmup_steps": 0, "name": "constant"}
    tiny_recipe["averaging"] = {"ema": 0.9}
    tiny_recipe["checkpoints"] = {"every": 3, "keep": 2}
    run("resume", tiny_recipe, corpus, tmp_path)
    for name in ("checkpoint-6/model", "checkpoint-6/average"):
        whole, stopped = (load_file(tmp_path / way / f"{name}.safetensors") for way in ("whole", "stopped"))
        assert whole.keys() == stopped.keys()
        assert all(torch.equal(tensor, stopped[key]) for key, tensor in whole.items()), name
