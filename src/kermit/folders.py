"""Where a model's files are: in a folder of its own, in a training's output, or in the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from kermit.errors import KermitError, ModelError


def model_folder(path: Path) -> Path:
    """The folder that holds the weights: the path itself, or the best model so far of a training's output."""
    for folder in (path, path / "best"):
        if (folder / "config.json").is_file() and (folder / "model.safetensors").is_file():
            return folder
    raise ModelError(
        f"{path} holds no model: config.json and model.safetensors are looked for there and in {path}/best"
    )


def find_model(place: str) -> str:
    """The folder of any model of transformers, perhaps the best so far of a training's output; a Hub name as it is.

    Raises:
        ModelError: the folder holds no model.
    """
    folder = Path(place).expanduser()
    if not folder.is_dir():
        return place
    for candidate in (folder, folder / "best"):
        if (candidate / "config.json").is_file():
            return str(candidate)
    raise ModelError(f"{place} holds no model: config.json is looked for there and in {folder / 'best'}")


def bundled_model() -> Path | None:
    """The folder of the model that comes with the package, if one does."""
    found = sorted(files("kermit").joinpath("models").glob("*/config.json"))  # type: ignore[attr-defined]
    return Path(found[0].parent) if found else None


def named_or_bundled(path: Path | None) -> Path:
    """The folder of a model that was named, or of the bundled one.

    Raises:
        ModelError: none is there.
    """
    folder = bundled_model() if path is None else model_folder(path)
    if folder is None:
        raise ModelError("no model is bundled with this installation; name the folder of one")
    return folder


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Have what libraries say of broken files name the model instead.

    Raises:
        ModelError: the model that the block reads cannot be read.
    """
    from safetensors import SafetensorError

    try:
        yield
    except KermitError:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"{path} holds no model that can be read: {error}") from error
