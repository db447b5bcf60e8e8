"""Zero-shot cloze question answering (the paper's section 4.3): data, three systems, and their scores.

`read_cloze` builds instances from QA2D and SQuAD. A `ClozeSystem` fills their gaps: KERMIT by insertion, a masked
language model by beam search over masks, a left-to-right one by sampling continuations. `predict` and `cloze_scores`
score it.
"""

from kermit.tasks.cloze.causal_lm_system import CausalLMSystem
from kermit.tasks.cloze.evaluation import (
    ClozeScores,
    Prediction,
    PredictionLog,
    cloze_scores,
    predict,
    provenance_of,
    signature_of,
)
from kermit.tasks.cloze.insertion_system import InsertionSystem
from kermit.tasks.cloze.instances import ClozeInstance, ClozeSet, Skip, read_cloze
from kermit.tasks.cloze.masked_lm_system import MaskedLMSystem
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
    "cloze_scores",
    "predict",
    "provenance_of",
    "read_cloze",
    "signature_of",
]
