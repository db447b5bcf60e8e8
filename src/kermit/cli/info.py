"""`kermit info`: versions, device, and facts about a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kermit.cli.options import Json, Model
from kermit.cli.output import Results


def info(model: Model = None, json_: Json = False) -> None:
    """Show versions, the device, and what a model can do.

    Example: kermit info --model runs/multi30k/kermit --json
    """
    from kermit.loading import bundled_model, find_model

    folder = bundled_model() if model is None else find_model(model)
    facts = installation() | {"model": None if folder is None else model_facts(folder)}
    with Results() as results:
        if json_:
            results.json(facts)
            return
        shown = facts.pop("model") or {"model": "none bundled; choose one with --model"}
        rows = facts | shown
        width = max(map(len, rows)) + 2
        for name, value in rows.items():
            results.line(f"{name:<{width}}{_plain(value)}")


def installation() -> dict[str, Any]:
    """Return versions, device and threads; torch is optional."""
    import os
    import platform

    from kermit import __version__

    versions = {name: _version(name) for name in ("onnxruntime", "torch", "transformers")}
    device, threads = "cpu", os.cpu_count()
    if versions["torch"] is not None:
        import torch

        threads = torch.get_num_threads()
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else device
    shown = {name: version or "not installed" for name, version in versions.items()}
    return {"kermit": __version__, "python": platform.python_version(), **shown, "device": device, "threads": threads}


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def model_facts(folder: Path) -> dict[str, Any]:
    """Read facts about a model from its files; weights are not loaded."""
    from math import prod

    from safetensors import safe_open

    from kermit.loading import display_name, read_config, reading, weight_files

    config = read_config(folder)
    parameters = 0
    for file in weight_files(folder):
        with reading(folder), safe_open(file, framework="numpy") as weights:
            parameters += sum(prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    languages = config.get("languages") or {}
    return {
        "model": display_name(folder),
        "folder": str(folder),
        "family": config.get("model_type"),
        "parameters": parameters,
        "languages": [languages[side] for side in ("x", "y") if side in languages],
        "factorizations": config.get("factorizations"),
        "orders": config.get("orders"),
        "cached_context": config.get("cached_context"),
        "licence": licence(folder),
    }


def licence(folder: Path) -> str | None:
    """Return the licence in a model's card, if it has one."""
    card = folder / "README.md"
    if not card.is_file():
        return None
    from huggingface_hub import ModelCard

    found = ModelCard.load(card).data.get("license")
    return None if found is None else str(found)


def _plain(value: Any) -> str:
    match value:
        case None | []:
            return "unknown"
        case list():
            return ", ".join(map(str, value))
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case _:
            return str(value)
