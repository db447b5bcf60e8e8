"""Where a model's files are: in a folder of its own, in a training's output, or in the package."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from kermit.errors import KermitError, ModelError, in_a_line


def model_folder(path: Path) -> Path:
    """The folder that holds the weights: the path itself, or the best model so far of a training's output."""
    for folder in (path, path / "best"):
        if (folder / "config.json").is_file() and weight_files(folder):
            return folder
    raise ModelError(
        f"{path} holds no model: config.json and model.safetensors are looked for there and in {path}/best"
    )


def weight_files(folder: Path) -> list[Path]:
    """The files that hold a model's weights: one, or several if it is large."""
    return sorted([*folder.glob("model.safetensors"), *folder.glob("model-?????-of-?????.safetensors")])


def find_model(place: str) -> str:
    """The folder of any model of transformers, perhaps the best so far of a training's output; a Hub name as it is.

    Raises:
        ModelError: the folder holds no model, or is not there.
    """
    folder = Path(place).expanduser()
    if not folder.is_dir():
        check_hub_name(place)
        return place
    for candidate in (folder, folder / "best"):
        if (candidate / "config.json").is_file():
            return str(candidate)
    raise ModelError(f"{place} holds no model: config.json is looked for there and in {folder / 'best'}")


def check_hub_name(place: str | Path) -> None:
    """Whether what is no folder may be a name on the Hub, ``name`` or ``user/name``.

    Raises:
        ModelError: it can only be a folder, which is not there.
    """
    written = str(place)
    if Path(written).is_absolute() or written.startswith((".", "~")) or written.count("/") > 1:
        raise ModelError(f"{written}: there is no such folder; name one that holds a model")


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


def read_config(folder: Path) -> dict[str, Any]:
    """What the config.json of a model says.

    Raises:
        ModelError: it is no JSON object.
    """
    with reading(folder):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise ModelError(f"{folder} holds no model that can be read: its config.json is no JSON object")
    return config


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Have what libraries say of broken files name the model instead, and show no bar for what takes a moment.

    Raises:
        ModelError: the model that the block reads cannot be read.
    """
    logging = sys.modules.get("transformers.utils.logging")
    hidden = logging is not None and Path(path).is_dir() and logging.is_progress_bar_enabled()  # a download keeps it
    if logging is not None and hidden:
        logging.disable_progress_bar()
    try:
        yield
    except KermitError:
        raise
    except _reading_errors() as error:
        raise ModelError(f"{path} holds no model that can be read: {in_a_line(error)}") from error
    finally:
        if logging is not None and hidden:
            logging.enable_progress_bar()


def _reading_errors() -> tuple[type[Exception], ...]:
    """What the libraries that are loaded raise for broken files."""
    errors: list[type[Exception]] = [OSError, RuntimeError, ValueError]
    for module, name in (("safetensors", "SafetensorError"), ("huggingface_hub.errors", "StrictDataclassError")):
        if module in sys.modules:
            errors.append(getattr(sys.modules[module], name))
    return tuple(errors)


def lacking_in_trunk(model: Any, report: Mapping[str, Any]) -> list[str]:
    """The weights of a trunk that a checkpoint did not have, or not of that shape, by what transformers reports.

    A pooler is not among them: few models are trained with one, and it is made anew.
    """
    names = {*report["missing_keys"], *(mismatch[0] for mismatch in report["mismatched_keys"])}
    prefix = "" if model.base_model is model else f"{model.base_model_prefix}."
    return sorted(name for name in names if name.startswith(prefix) and "pooler" not in name)


def load_whole(kind: Any, path: str | Path, **settings: Any) -> Any:
    """A model of one of transformers' kinds, of whose weights none is missing: it would be filled with random numbers.

    Args:
        kind: the class.
        path: the folder, or a name on the Hub.
        settings: for the class's `from_pretrained`; the numbers are float32 by default.

    Raises:
        ModelError: some are.
    """
    model, report = kind.from_pretrained(str(path), output_loading_info=True, **{"dtype": "float32"} | settings)
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"{path} lacks {len(missing)} of the weights of {type(model).__name__} ({', '.join(missing[:3])} ...);"
            " give a checkpoint that was trained for this"
        )
    return model
