"""How a trunk reads: left to right or in both directions, and where its pooler goes in a classifier."""

from __future__ import annotations

from typing import Any

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, MODEL_MAPPING

from kermit.modeling import LastTokenConfig


def is_causal(config: Any) -> bool:
    """Whether a model reads only from left to right.

    Its config says so, or transformers knows its kind as a causal but not as a masked language model.
    """
    kind = type(config)
    known = kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING
    return known or isinstance(config, LastTokenConfig) or bool(getattr(config, "is_decoder", False))


def lacks_classifier(config: Any) -> bool:
    """Whether it is an encoder with a causal mask, for which transformers has no classifier."""
    return is_causal(config) and type(config) in MODEL_FOR_MASKED_LM_MAPPING


def pooler_mapping(config: Any) -> dict[str, str]:
    """Map the pooler of a checkpoint with the next-sentence task to its name in transformers' classifiers."""
    kind = type(config)
    if not getattr(config, "next_sentence", False) or kind not in MODEL_FOR_MASKED_LM_MAPPING:
        return {}
    return {r"^pooler\.": f"{MODEL_MAPPING[kind].base_model_prefix}.pooler."}
