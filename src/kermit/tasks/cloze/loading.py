"""Models for cloze questions, from a folder, a training's output, the Hub by name, or a GGUF file.

A checkpoint that lacks some of its model's weights is refused: filled with random numbers it would answer, badly.

The precision of weights and arithmetic can be chosen. Without a choice it is the checkpoint's own on a GPU, and single
precision on a processor, where half is slow unless the processor has instructions for it.
"""

from __future__ import annotations

import importlib.util
import io
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
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
_CUT_OFF = (struct.error, IndexError, EOFError)


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
    folder, name = str(file.parent), file.name
    with _loading(AutoModelForCausalLM, path, folder, gguf_file=name):
        # transformers shows a bar of its own there, whether someone looks or not
        with nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO()):
            model = load_whole(AutoModelForCausalLM, folder, dtype=_dtype(precision), gguf_file=name)
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    if not isinstance(tokenizer, Tokenizer):
        raise ModelError(f"{path}: its tokenizer {type(tokenizer).__name__} has no fast version, which is needed here")
    return _placed(model), tokenizer


def _load(kind: Any, path: str, precision: torch.dtype | None) -> PreTrainedModel:
    with _loading(kind, path, path):
        return load_whole(kind, path, dtype=_dtype(precision))


@contextmanager
def _loading(kind: Any, path: str, place: str, **settings: Any) -> Iterator[None]:
    """Have what libraries say of a model that cannot be loaded name it.

    Args:
        kind: the class it should be of.
        path: the model as it was named.
        place: where transformers looks for it.
        settings: for its `from_pretrained`.
    """
    try:
        yield
    except KermitError:
        raise
    except _CUT_OFF as error:
        raise ModelError(f"{path} is broken or cut off ({in_a_line(error)}); fetch it again") from error
    except (OSError, ValueError, KeyError, SafetensorError, StrictDataclassError) as error:
        told = in_a_line(error)
        if told.startswith("Unrecognized configuration class"):  # and then a list of all that would be
            told = f"it is of type {AutoConfig.from_pretrained(place, **settings).model_type}"
        raise ModelError(f"{path} holds no model that {kind.__name__} can load: {told}") from error


def _dtype(precision: torch.dtype | None) -> torch.dtype | str:
    unchosen = "auto" if torch.cuda.is_available() else torch.float32
    return precision or unchosen


def _placed(model: Any) -> Any:
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
