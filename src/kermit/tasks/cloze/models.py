"""Loading of models for cloze questions: by any name that `kermit.loading` accepts, or from a GGUF file.

By default the precision is float32 on a CPU, and the checkpoint's own on a GPU.
"""

from __future__ import annotations

import importlib.util
import io
import sys
from contextlib import nullcontext, redirect_stderr
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, PreTrainedTokenizerFast as Tokenizer

from kermit.data.joint_tokenizer import load_tokenizer
from kermit.errors import ModelError
from kermit.loading import find_model, load_whole, on_device, read_config, reading
from kermit.modeling import KermitConfig, KermitForInsertion

GGUF = ".gguf"


def model_files(name: str) -> Path:
    """Find the folder of a model, or its GGUF file."""
    return Path(name) if name.endswith(GGUF) else find_model(name)


def load_insertion_model(name: str, precision: torch.dtype | None = None) -> tuple[Any, Tokenizer]:
    """Load a KERMIT model."""
    folder = find_model(name)
    kind = read_config(folder).get("model_type")
    if kind != KermitConfig.model_type:
        raise ModelError(f"{name} holds a model of type {kind}, not an insertion model; train one with kermit train")
    with reading(folder):
        model = load_whole(KermitForInsertion, folder)
    return on_device(model.to(precision)), load_tokenizer(folder)


def load_masked_lm(name: str, precision: torch.dtype | None = None) -> tuple[Any, Tokenizer]:
    """Load a masked language model."""
    return _load(AutoModelForMaskedLM, find_model(name), precision)


def load_causal_lm(name: str, precision: torch.dtype | None = None) -> tuple[Any, Tokenizer]:
    """Load a left-to-right language model; a GGUF file needs the package gguf."""
    if not name.endswith(GGUF):
        return _load(AutoModelForCausalLM, find_model(name), precision)
    file = Path(name)
    if not file.is_file():
        raise ModelError(f"{name}: the file does not exist")
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(f"{name}: GGUF files need the package gguf; pip install 'kermit-insertion[gguf]'")
    with reading(name):
        # transformers would show a progress bar even if stderr is not a terminal
        with nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO()):
            model = load_whole(
                AutoModelForCausalLM, file.parent, name=name, dtype=_dtype(precision), gguf_file=file.name
            )
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    if not isinstance(tokenizer, Tokenizer):
        raise ModelError(f"{name}: its tokenizer {type(tokenizer).__name__} has no fast version, which is required")
    return on_device(model), tokenizer


def _load(kind: Any, folder: Path, precision: torch.dtype | None) -> tuple[Any, Tokenizer]:
    return on_device(load_whole(kind, folder, dtype=_dtype(precision))), load_tokenizer(folder)


def _dtype(precision: torch.dtype | None) -> torch.dtype | str:
    return precision or ("auto" if torch.cuda.is_available() else torch.float32)
