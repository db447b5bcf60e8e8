"""A trained model with another tokenizer: its weights, with new embeddings made from the old ones."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from kermit.errors import RecipeError
from kermit.text.tokenizer import encode_texts


def carry_over(old: PreTrainedModel, new: PreTrainedModel, pieces: list[list[int]]) -> None:
    """Copy the weights of a trained model to one that differs only in its tokens.

    Args:
        old: the trained model.
        new: the new model. Each token's row becomes the mean of the old rows of the token's pieces.
        pieces: of each new token; see `pieces_of`.

    Raises:
        RecipeError: the two differ in more than their tokens.
    """
    rows = torch.repeat_interleave(torch.tensor([len(ids) for ids in pieces]))
    parts = torch.tensor([token_id for ids in pieces for token_id in ids])
    counts = torch.bincount(rows, minlength=len(pieces))
    tokens = old.get_input_embeddings().num_embeddings

    def carried(name: str, target: Tensor) -> Tensor:
        weight: Tensor | None = before.get(name)
        if weight is None or weight.dim() != target.dim():
            raise RecipeError(f"init_from: it has no weight {name}, which the recipe's model needs")
        for dimension, size in enumerate(weight.shape):
            if (size, target.shape[dimension]) == (tokens, len(pieces)):
                parted = weight.movedim(dimension, 0)
                total = parted.new_zeros(len(pieces), *parted.shape[1:]).index_add_(0, rows, parted[parts])
                weight = (total / counts.view(-1, *[1] * (total.dim() - 1))).movedim(0, dimension)
                break
        if weight.shape != target.shape:
            raise RecipeError(f"init_from: {name} has another shape than in the recipe's model")
        return weight

    before = old.state_dict()
    new.load_state_dict({name: carried(name, target) for name, target in new.state_dict().items()})


def pieces_of(old: PreTrainedTokenizerFast, new: PreTrainedTokenizerFast) -> list[list[int]]:
    """Return what an old tokenizer makes of each token of a new one: the same token, or the tokens of its text."""
    vocabulary = old.get_vocab()
    tokens = new.convert_ids_to_tokens(range(len(new)))
    spelled = encode_texts(old, new.batch_decode([[token_id] for token_id in range(len(new))]))
    unknown = list(range(len(old)))
    return [
        [vocabulary[token]] if token in vocabulary else ids or unknown
        for token, ids in zip(tokens, spelled, strict=True)
    ]
