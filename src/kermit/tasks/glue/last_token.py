"""Which way a trunk reads, and a classifier for encoders that were made to read from left to right.

transformers has a classifier that reads the last token for each of its causal models. An encoder with a causal mask
(BERT's `is_decoder`), such as this project's own causal language model, has none there: its classifier would read the
first token, which has seen nothing but itself.
"""

from __future__ import annotations

from typing import Any

from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_MAPPING,
    AutoModelForSequenceClassification,
)
from transformers.modeling_layers import GenericForSequenceClassification


def is_causal(config: Any) -> bool:
    """Whether a model reads from left to right alone.

    Its config says so, or transformers knows its kind as a causal but not as a masked language model.
    """
    kind = type(config)
    known = kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING
    return known or bool(getattr(config, "is_decoder", False))


def classifier_class(config: Any) -> Any:
    """What to load a classifier with: transformers' own, or one that reads the last token of a masked encoder."""
    kind = type(config)
    if not is_causal(config) or kind not in MODEL_FOR_MASKED_LM_MAPPING:
        return AutoModelForSequenceClassification
    trunk = MODEL_MAPPING[kind]
    name = f"{trunk.__name__}LastTokenForSequenceClassification"
    bases = (GenericForSequenceClassification, *trunk.__bases__)
    return type(name, bases, {"base_model_prefix": trunk.base_model_prefix})


def pooler_mapping(config: Any) -> dict[str, str]:
    """Where the pooler of a checkpoint that learned BERT's next-sentence task goes in transformers' classifiers."""
    kind = type(config)
    if not getattr(config, "next_sentence", False) or kind not in MODEL_FOR_MASKED_LM_MAPPING:
        return {}
    return {r"^pooler\.": f"{MODEL_MAPPING[kind].base_model_prefix}.pooler."}
