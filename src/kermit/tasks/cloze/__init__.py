"""Zero-shot cloze question answering (the paper's section 4.3): data, three systems, and their scores.

Instances are built from QA2D and SQuAD (`instances`). A system fills their gaps: KERMIT by insertion
(`insertion_system`), a masked language model by beam search over masks (`masked_lm_system`), a left-to-right one by
sampling continuations (`causal_lm_system`). `evaluation` scores it.
"""
