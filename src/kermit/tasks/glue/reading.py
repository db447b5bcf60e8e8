"""How a trunk reads: from left to right or both ways, and where what it learned for classifying goes."""

from __future__ import annotations

from typing import Any

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, MODEL_MAPPING

from kermit.modeling import LastTokenConfig


def is_causal(config: Any) -> bool:
    """Whether a model reads from left to right alone.

    Its config says so, or transformers knows its kind as a causal but not as a masked language model.
    """
    kind = type(config)
    known = kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING
    return known or isinstance(config, LastTokenConfig) or bool(getattr(config, "is_decoder", False))


def lacks_classifier(config: Any) -> bool:
    """Whether it is an encoder with a causal mask, whose last token no classifier of transformers reads."""
    return is_causal(config) and type(config) in MODEL_FOR_MASKED_LM_MAPPING


def pooler_mapping(config: Any) -> dict[str, str]:
    """Where the pooler of a checkpoint that learned BERT's next-sentence task goes in transformers' classifiers."""
    kind = type(config)
    if not getattr(config, "next_sentence", False) or kind not in MODEL_FOR_MASKED_LM_MAPPING:
        return {}
    return {r"^pooler\.": f"{MODEL_MAPPING[kind].base_model_prefix}.pooler."}
