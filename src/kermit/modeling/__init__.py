"""KERMIT models: any bidirectional encoder of transformers with an insertion head."""

from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from kermit.modeling.classification import KermitForSequenceClassification
from kermit.modeling.config import KermitConfig
from kermit.modeling.insertion import InsertionOutput, KermitForInsertion, special_token_settings
from kermit.modeling.trunk import KermitModel

AutoConfig.register("kermit", KermitConfig)
AutoModel.register(KermitConfig, KermitModel)
AutoModelForSequenceClassification.register(KermitConfig, KermitForSequenceClassification)

__all__ = [
    "InsertionOutput",
    "KermitConfig",
    "KermitForInsertion",
    "KermitForSequenceClassification",
    "KermitModel",
    "special_token_settings",
]
