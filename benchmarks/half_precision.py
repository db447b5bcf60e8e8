"""Store a trained model in float16 to halve its size; it is loaded in float32."""

import json
import shutil

import torch
from pages import write_whole
from safetensors.torch import load_file, save_file

from kermit.loading import find_model


def copy_in_half(run, target, most_bytes):
    """Copy the weights, config and tokenizer of a trained model to a folder of at most `most_bytes`."""
    source = find_model(run)
    target.mkdir(parents=True, exist_ok=True)
    weights = {name: weight.to(torch.float16) for name, weight in load_file(source / "model.safetensors").items()}
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    (target / "model.safetensors").chmod((target / "config.json").stat().st_mode)
    configure(target, dtype="float16")
    size = sum(path.stat().st_size for path in target.iterdir())
    assert size <= most_bytes, f"{target} is {size:,} bytes, over {most_bytes:,}"


def configure(folder, **settings):
    """Change settings in the config of a stored model."""
    path = folder / "config.json"
    write_whole(path, json.dumps(json.loads(path.read_text(encoding="utf-8")) | settings, indent=2) + "\n")
