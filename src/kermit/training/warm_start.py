"""The initial model of a training run: new, or with the weights of a trained one, possibly of another tokenizer."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from kermit.data.joint_tokenizer import load_tokenizer
from kermit.errors import RecipeError
from kermit.loading import BUNDLED, find_model
from kermit.text.tokenizer import encode_texts
from kermit.training.recipe import LoadedRecipe

_LAYER = re.compile(r"(.*\blayers?\.)(\d+)(\..*)")
"""The name of a weight of a layer: what comes before the layer's number, the number, and the rest."""

_OPTIONAL = "head.completion."
"""The prefix of weights that only one of two models may have: they start as in a new model, or are left out."""


def prepare_model(loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """Build the recipe's model, with the weights of `init_from` if it is set."""
    recipe = loaded.recipe
    torch.manual_seed(recipe.seed)
    model = loaded.family.build(recipe, tokenizer)
    if recipe.init_from is not None:
        folder = find_model(named(loaded, recipe.init_from))
        saved = load_tokenizer(folder)
        same = saved.get_vocab() == tokenizer.get_vocab()
        if not same and not recipe.tokenizer.replaces:
            raise RecipeError(
                f"init_from: {folder} was trained with another tokenizer; set `tokenizer: {{path:"
                f" {recipe.init_from}}}`, or set `tokenizer.replaces: true` to use the new one"
            )
        take_over(loaded.family.load(folder), model, folder, None if same else pieces_of(saved, tokenizer))
    loaded.task.describe(model, recipe)
    return model


def named(loaded: LoadedRecipe, name: str) -> str | Path:
    """Resolve the name of a model in a recipe: a folder below the data folder, or any name that loading accepts."""
    if name == BUNDLED:
        return find_model()
    local = loaded.data / name
    return local if local.exists() else name


def take_over(
    trained: PreTrainedModel, model: PreTrainedModel, folder: Path, pieces: list[list[int]] | None = None
) -> None:
    """Copy the weights of a trained model of the same shape.

    A model with more layers starts with the trained ones, followed by copies of the last of them. With another
    tokenizer, the row of each new token is the mean of the old rows of its `pieces` (see `pieces_of`).
    """
    own = model.state_dict()
    given = {name: weight for name, weight in own.items() if name.startswith(_OPTIONAL)} | {
        name: weight for name, weight in trained.state_dict().items() if name in own or not name.startswith(_OPTIONAL)
    }
    if pieces is not None:
        tokens = trained.get_input_embeddings().num_embeddings
        given |= {name: _by_piece(weight, own[name], tokens, pieces) for name, weight in given.items() if name in own}
    given = _deepened(given, own)
    for name in {**own, **given}:
        shapes = [list(weights[name].shape) if name in weights else "none" for weights in (given, own)]
        if shapes[0] != shapes[1]:
            raise RecipeError(
                f"init_from: {name} in {folder} has the shape {shapes[0]}, but the recipe's model needs {shapes[1]};"
                " use the `model` section that it was trained with"
            )
    model.load_state_dict(given)


def _by_piece(weight: Tensor, own: Tensor, tokens: int, pieces: list[list[int]]) -> Tensor:
    """Return a weight with rows for new tokens in place of old ones, if one of its dimensions is that of tokens."""
    for dimension, sizes in enumerate(zip(weight.shape, own.shape, strict=False)):
        if sizes == (tokens, len(pieces)):
            by_token = weight.movedim(dimension, 0)
            return torch.stack([by_token[ids].mean(0) for ids in pieces]).movedim(0, dimension)
    return weight


def _deepened(given: dict[str, Tensor], own: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add copies of the last layers, for each weight of a layer that a deeper model has in addition."""
    layers = [{int(found[2]) for name in weights if (found := _LAYER.fullmatch(name))} for weights in (given, own)]
    added = len(layers[1] - layers[0])

    def source(name: str) -> str:
        found = _LAYER.fullmatch(name)
        return name if found is None or name in given else f"{found[1]}{int(found[2]) - added}{found[3]}"

    return given | {name: given[source(name)] for name in own if name not in given and source(name) in given}


def pieces_of(old: PreTrainedTokenizerFast, new: PreTrainedTokenizerFast) -> list[list[int]]:
    """Return the old token ids of each new token: the same token, or those of its text."""
    vocabulary = old.get_vocab()
    tokens = new.convert_ids_to_tokens(range(len(new)))
    spelled = encode_texts(old, new.batch_decode([[token_id] for token_id in range(len(new))]))
    unknown = list(range(len(old)))
    return [
        [vocabulary[token]] if token in vocabulary else ids or unknown
        for token, ids in zip(tokens, spelled, strict=True)
    ]
