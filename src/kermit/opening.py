"""Open a model of any family: its engine, or its search, and its tokenizer.

KERMIT models are opened without importing the other families, which need torch and what training needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kermit.engines.engine import MODEL_TYPE
from kermit.engines.selection import load_engine
from kermit.errors import ModelError
from kermit.loading import find_model, in_precision, on_device, read_config, reading
from kermit.text.tokenizer import AnyTokenizer, read_tokenizer

if TYPE_CHECKING:
    from kermit.engines.engine import Engine
    from kermit.searching import Searcher


def open_model(
    path: str | Path | None, *, device: Any = None, dtype: Any = None, **of_engine: Any
) -> tuple[Engine | Searcher, AnyTokenizer, Path]:
    """Open a model.

    Args:
        path: any name that `kermit.loading.find_model` knows; the bundled model by default.
        device: where torch computes; a GPU if there is one by default.
        dtype: what torch computes in; float32 by default.
        of_engine: further options of `kermit.engines.selection.load_engine`, for KERMIT models.

    Returns:
        The engine or search, the tokenizer, and the folder.

    Raises:
        ModelError: there is no model there that can generate.
    """
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
