"""Find and load a model by name: a folder, the output folder of a training run, a Hub name, or the bundled model.

Library errors about broken files become a `ModelError` here. torch, transformers and the families other than KERMIT
are imported only when a model needs them.
"""

from __future__ import annotations

import json
import logging
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kermit.engines.exported_files import exported_files
from kermit.errors import KermitError, ModelError, in_a_line

if TYPE_CHECKING:
    from kermit.engines.engine import Engine
    from kermit.searcher import Searcher
    from kermit.text.tokenizer import AnyTokenizer

logger = logging.getLogger(__name__)

BUNDLED = "bundled"
"""The name of the model included in the package."""

_WEIGHTS = ("model.safetensors", "model-?????-of-?????.safetensors", "pytorch_model*.bin")
_FROM_HUB = ("*.json", "*.txt", "*.model", "*.md", "*.onnx")


def find_model(name: str | Path | None = None) -> Path:
    """Find the folder that holds a model.

    Args:
        name: a folder, the output folder of a training (its best model so far, or its newest checkpoint), a Hub name,
            which is downloaded, or `bundled`, the default.

    Raises:
        ModelError: no model has that name.
    """
    if name is None or str(name) == BUNDLED:
        if (bundled := bundled_model()) is None:
            raise ModelError("this installation has no bundled model; give the folder of a model")
        return bundled
    folder = Path(name).expanduser()
    if folder.is_dir():
        for candidate in (folder, folder / "best", *reversed(list_checkpoints(folder))):
            if (candidate / "config.json").is_file() and (weight_files(candidate) or exported_files(candidate)):
                if candidate.parent == folder and candidate.name != "best":
                    logger.warning("%s has no best model yet; using its newest checkpoint, %s", name, candidate.name)
                return candidate
        raise ModelError(
            f"{name} is not a model: neither it nor {folder / 'best'} holds config.json and model.safetensors"
        )
    written = str(name)
    if Path(written).is_absolute() or written.startswith((".", "~")) or written.count("/") > 1 or folder.is_file():
        raise ModelError(f"{written} does not exist; give the folder of a model")
    return _download(written)


def open_model(
    path: str | Path | None, *, device: Any = None, dtype: Any = None, **of_engine: Any
) -> tuple[Engine | Searcher, AnyTokenizer, Path]:
    """Open a model: its engine or searcher, its tokenizer and its folder.

    `of_engine` are further options of `kermit.engines.selection.load_engine`, for KERMIT models.
    """
    from kermit.engines.engine import MODEL_TYPE
    from kermit.engines.selection import load_engine
    from kermit.text.tokenizer import read_tokenizer

    folder = find_model(path)
    model_type = str(read_config(folder).get("model_type", "?"))
    if model_type == MODEL_TYPE:
        return load_engine(folder, device=device, dtype=dtype, **of_engine), read_tokenizer(folder), folder
    from kermit.data.joint_tokenizer import load_tokenizer
    from kermit.families import family_of_model_type

    try:
        family: Any = family_of_model_type(model_type)
    except ModelError as error:
        raise ModelError(f"{folder}: {error}") from error
    with reading(folder):
        model = on_device(in_precision(family.load(folder), dtype), device)
    tokenizer = load_tokenizer(folder)
    return family.runner(model, tokenizer), tokenizer, folder


def list_checkpoints(output: Path) -> list[Path]:
    """List the complete checkpoints in a training's output folder, oldest first."""
    found = (path for path in output.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal())
    return sorted(found, key=step_of)


def step_of(checkpoint: Path) -> int:
    """Return the step after which a checkpoint was written."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def bundled_model() -> Path | None:
    """Return the folder of the bundled model, or None if the package has none."""
    found = sorted(files("kermit").joinpath("models").glob("*/config.json"))  # type: ignore[attr-defined]
    return Path(found[0].parent) if found else None


def weight_files(folder: Path) -> list[Path]:
    """Return the files that hold a model's weights."""
    return sorted(path for name in _WEIGHTS for path in folder.glob(name))


def _download(name: str) -> Path:
    """Download a model from the Hub; its weights as safetensors if it has them."""
    from huggingface_hub import snapshot_download

    with reading(name):
        folder = Path(snapshot_download(name, allow_patterns=[*_FROM_HUB, "*.safetensors"]))
        if not weight_files(folder):
            folder = Path(snapshot_download(name, allow_patterns=[*_FROM_HUB, "*.bin"]))
    return folder


def display_name(folder: Path) -> str:
    """Return the display name of a model: its folder's name, or the name of the run's output folder."""
    return folder.parent.name if folder.name == "best" or folder.name.startswith("checkpoint-") else folder.name


def read_config(folder: Path) -> dict[str, Any]:
    """Read the config.json of a model."""
    with reading(folder):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise ModelError(f"{folder} cannot be loaded: its config.json is not a JSON object")
    return config


def library_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that the imported libraries raise for invalid files and settings."""
    errors: list[type[Exception]] = [OSError, RuntimeError, ValueError, KeyError, struct.error, IndexError, EOFError]
    for module, name in (("safetensors", "SafetensorError"), ("huggingface_hub.errors", "StrictDataclassError")):
        if module in sys.modules:
            errors.append(getattr(sys.modules[module], name))
    return tuple(errors)


@contextmanager
def reading(model: str | Path, kind: str | None = None) -> Iterator[None]:
    """Translate library errors about a model's files to `ModelError`; `kind` is the class that loads it."""
    try:
        yield
    except KermitError:
        raise
    except library_errors() as error:
        message = in_a_line(error)
        if message.startswith("Unrecognized configuration class"):  # followed by a list of all known classes
            message = f"it is of type {_model_type(model)}"
        by = "" if kind is None else f" by {kind}"
        raise ModelError(f"{model} cannot be loaded{by}: {message}") from error


def _model_type(model: str | Path) -> str:
    folder = Path(model)
    return str(read_config(folder).get("model_type")) if (folder / "config.json").is_file() else "another model"


@contextmanager
def quietly() -> Iterator[None]:
    """Silence the logs and progress bars of transformers while it loads; missing weights are checked here."""
    from transformers.utils import logging

    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def load_whole(kind: Any, folder: Path, *, name: str | None = None, **settings: Any) -> Any:
    """Load a model with a class of transformers; raise a ModelError if a weight is missing and would be random.

    `settings` are for the class's `from_pretrained`; weights are float32 by default.
    """
    with reading(name or folder, kind.__name__), quietly():
        model, report = kind.from_pretrained(str(folder), output_loading_info=True, **{"dtype": "float32"} | settings)
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"{folder} lacks {len(missing)} of the weights of {type(model).__name__} ({', '.join(missing[:3])} ...);"
            " use a checkpoint that was trained for this"
        )
    return model


def lacking_in_trunk(model: Any, report: Mapping[str, Any]) -> list[str]:
    """List the trunk's weights that a checkpoint lacks or has in another shape, from transformers' loading report.

    A pooler does not count: few models are trained with one, and it is initialised anew.
    """
    names = {*report["missing_keys"], *(mismatch[0] for mismatch in report["mismatched_keys"])}
    prefix = "" if model.base_model is model else f"{model.base_model_prefix}."
    return sorted(name for name in names if name.startswith(prefix) and "pooler" not in name)


def on_device(model: Any, device: Any = None) -> Any:
    """Move a model to a device, by default a GPU if available, and put it in evaluation mode."""
    import torch

    return model.to(device or ("cuda" if torch.cuda.is_available() else "cpu")).eval()


def in_precision(model: Any, dtype: Any = None) -> Any:
    """Cast a model's weights if a dtype is given; the buffers that positions are computed from stay exact."""
    if dtype is None:
        return model
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def position_limit(model: Any) -> int | None:
    """Return the number of tokens that a model of transformers has positions for; None if unlimited."""
    from kermit.modeling.trunk import KermitModel, first_position

    trunk = model.base_model
    if isinstance(trunk, KermitModel):
        return trunk.max_positions
    limit: int | None = getattr(trunk.config, "max_position_embeddings", None)
    return None if limit is None or limit < 1 else limit - first_position(trunk)
