"""KERMIT models: any bidirectional encoder of transformers with an insertion head, and classifiers."""

from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from kermit.modeling.classification import (
    KermitForSequenceClassification,
    LastTokenConfig,
    LastTokenForSequenceClassification,
)
from kermit.modeling.config import KermitConfig
from kermit.modeling.encoder import Encoder, EncoderConfig
from kermit.modeling.insertion import InsertionOutput, KermitForInsertion, special_token_settings, specials_of
from kermit.modeling.tensors import RowTensors, as_tensors
from kermit.modeling.trunk import KermitModel

AutoConfig.register("kermit_encoder", EncoderConfig)
AutoModel.register(EncoderConfig, Encoder)
AutoConfig.register("kermit", KermitConfig)
AutoModel.register(KermitConfig, KermitModel)
AutoModelForSequenceClassification.register(KermitConfig, KermitForSequenceClassification)
AutoConfig.register("kermit_last_token", LastTokenConfig)
AutoModelForSequenceClassification.register(LastTokenConfig, LastTokenForSequenceClassification)

__all__ = [
    "Encoder",
    "EncoderConfig",
    "InsertionOutput",
    "KermitConfig",
    "KermitForInsertion",
    "KermitForSequenceClassification",
    "KermitModel",
    "LastTokenConfig",
    "LastTokenForSequenceClassification",
    "RowTensors",
    "as_tensors",
    "special_token_settings",
    "specials_of",
]
