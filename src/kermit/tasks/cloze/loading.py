"""Models for cloze questions, from a folder, a training's output, the Hub by name, or a GGUF file.

A checkpoint that lacks some of its model's weights is refused: filled with random numbers it would answer, badly.

The precision of weights and arithmetic can be chosen. Without a choice it is the checkpoint's own on a GPU, and single
precision on a processor, where half is slow unless the processor has instructions for it.
"""

from __future__ import annotations

import importlib.util
import io
import sys
from contextlib import nullcontext, redirect_stderr
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel
from transformers import PreTrainedTokenizerFast as Tokenizer

from kermit.data.tokenizer import load_tokenizer
from kermit.errors import KermitError, ModelError, in_a_line
from kermit.folders import find_model, load_whole, read_config, reading
from kermit.modeling import KermitForInsertion
from kermit.training.families import family_of_model_type

GGUF = ".gguf"


def load_insertion_model(path: str, precision: torch.dtype | None = None) -> tuple[KermitForInsertion, Tokenizer]:
    """A KERMIT model, or another of its kind, with its tokenizer."""
    folder = find_model(path)
    if Path(folder).is_dir():
        kind = read_config(Path(folder)).get("model_type")
        if kind not in ("kermit", "insertion_transformer"):
            raise ModelError(f"{path} holds no insertion model but a model of type {kind}; kermit train makes one")
        with reading(path):
            model = family_of_model_type(kind).load(Path(folder))
    else:
        model = _load(KermitForInsertion, folder, precision)
    assert isinstance(model, KermitForInsertion)
    return _placed(model.to(precision)), load_tokenizer(folder)


def load_masked_lm(path: str, precision: torch.dtype | None = None) -> tuple[PreTrainedModel, Tokenizer]:
    """A masked language model with its tokenizer."""
    folder = find_model(path)
    return _placed(_load(AutoModelForMaskedLM, folder, precision)), load_tokenizer(folder)


def load_causal_lm(path: str, precision: torch.dtype | None = None) -> tuple[PreTrainedModel, Tokenizer]:
    """A left-to-right language model with its tokenizer; also from a GGUF file, which needs the package gguf."""
    if not path.endswith(GGUF):
        folder = find_model(path)
        return _placed(_load(AutoModelForCausalLM, folder, precision)), load_tokenizer(folder)
    file = Path(path)
    if not file.is_file():
        raise ModelError(f"{path}: there is no such file")
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(f"{path}: GGUF files are read with the package gguf; pip install 'kermit-insertion[gguf]'")
    # transformers shows a bar of its own there, whether someone looks or not
    with nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO()):
        model = _load(AutoModelForCausalLM, str(file.parent), precision, gguf_file=file.name)
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    if not isinstance(tokenizer, Tokenizer):
        raise ModelError(f"{path}: its tokenizer {type(tokenizer).__name__} has no fast version, which is needed here")
    return _placed(model), tokenizer


def _load(kind: Any, path: str, precision: torch.dtype | None, **settings: Any) -> PreTrainedModel:
    try:
        unchosen = "auto" if torch.cuda.is_available() else torch.float32
        return load_whole(kind, path, dtype=precision or unchosen, **settings)
    except KermitError:
        raise
    except (OSError, ValueError, KeyError, SafetensorError, StrictDataclassError) as error:
        told = in_a_line(error)
        if told.startswith("Unrecognized configuration class"):  # and then a list of all that would be
            told = f"it is of type {AutoConfig.from_pretrained(path).model_type}"
        raise ModelError(f"{path} holds no model that {kind.__name__} can load: {told}") from error


def _placed(model: Any) -> Any:
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
