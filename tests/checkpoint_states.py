"""The contents of a checkpoint other than the weights."""

from pathlib import Path

import torch
from torch.utils._pytree import tree_flatten_with_path


def optimizer_state(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The tensors of the optimizer, by their path in its state."""
    leaves, _ = tree_flatten_with_path(torch.load(checkpoint / "state.pt", weights_only=True)["optimizer"])
    return {str(path): leaf for path, leaf in leaves if isinstance(leaf, torch.Tensor)}
