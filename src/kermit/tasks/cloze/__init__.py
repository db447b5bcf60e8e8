"""Zero-shot cloze question answering (the paper's section 4.3): data, three systems, and their scores.

`read_cloze` makes instances of QA2D and SQuAD. A `ClozeSystem` fills their gaps: a KERMIT by insertion, a masked
language model by a beam search over masks, a left-to-right one by drawing continuations. `predict` and `summarise`
score it.
"""

from kermit.tasks.cloze.causal_lm import CausalLMSystem
from kermit.tasks.cloze.evaluation import ClozeScores, predict, settings_of, signature_of, summarise
from kermit.tasks.cloze.insertion import InsertionSystem
from kermit.tasks.cloze.instances import ClozeInstance, ClozeSet, Skip, read_cloze
from kermit.tasks.cloze.masked_lm import MaskedLMSystem
from kermit.tasks.cloze.predictions import Prediction, PredictionLog
from kermit.tasks.cloze.system import ClozeAnswer, ClozeSystem

__all__ = [
    "CausalLMSystem",
    "ClozeAnswer",
    "ClozeInstance",
    "ClozeScores",
    "ClozeSet",
    "ClozeSystem",
    "InsertionSystem",
    "MaskedLMSystem",
    "Prediction",
    "PredictionLog",
    "Skip",
    "predict",
    "read_cloze",
    "settings_of",
    "signature_of",
    "summarise",
]
