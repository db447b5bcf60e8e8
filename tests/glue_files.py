"""Small files in the layout of each of GLUE's tasks, whose labels depend on one word; and trunks to finetune."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tiny import bert, kermit_model, save
from transformers import (
    BertForMaskedLM,
    BertLMHeadModel,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from kermit.data.joint_tokenizer import train_tokenizer

FILLERS = ["the", "a", "dog", "girl", "runs", "sleeps", "over", "green", "streets", '"', "quietly", "."]
SIGNS = {
    "0": "never",
    "1": "always",
    "entailment": "surely",
    "not_entailment": "hardly",
    "neutral": "perhaps",
    "contradiction": "nowhere",
}
SIZES = {"train": 48, "dev": 16, "test": 5}

BINARY, ENTAILMENT = "01", ["entailment", "not_entailment"]
INFERENCE = ["entailment", "neutral", "contradiction"]
SCORES = ["0.000", "1.250", "2.500", "3.800", "5.000"]
TEXTS = {"sentence", "sentence1", "sentence2", "question", "question1", "question2", "Premise", "Hypothesis"}
TEXTS |= {"#1 String", "#2 String"}
LABELS = {"Quality", "score", "is_duplicate", "gold_label", "Label", "label", *(f"label{n}" for n in range(1, 6))}

_STSB = "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2"
_MNLI = "index|promptID|pairID|genre|sentence1_binary_parse|sentence2_binary_parse|sentence1_parse|sentence2_parse"
_MNLI += "|sentence1|sentence2"
_PHENOMENA = "Lexical Semantics|Predicate-Argument Structure|Logic|Knowledge|Domain"

FILES = (
    (("CoLA/train", "CoLA/dev"), "source|label|annotation|sentence", BINARY),
    (("CoLA/test",), "index|sentence", BINARY),
    (("SST-2/train", "SST-2/dev"), "sentence|label", BINARY),
    (("SST-2/test",), "index|sentence", BINARY),
    (("MRPC/train", "MRPC/dev"), "Quality|#1 ID|#2 ID|#1 String|#2 String", BINARY),
    (("MRPC/test",), "index|#1 ID|#2 ID|#1 String|#2 String", BINARY),
    (("STS-B/train", "STS-B/dev"), f"{_STSB}|score", SCORES),
    (("STS-B/test",), _STSB, SCORES),
    (("QQP/train", "QQP/dev"), "id|qid1|qid2|question1|question2|is_duplicate", BINARY),
    (("QQP/test",), "id|question1|question2", BINARY),
    (("MNLI/train",), f"{_MNLI}|label1|gold_label", INFERENCE),
    (("MNLI/dev_matched", "MNLI/dev_mismatched"), f"{_MNLI}|label1|label2|label3|label4|label5|gold_label", INFERENCE),
    (("MNLI/test_matched", "MNLI/test_mismatched"), _MNLI, INFERENCE),
    (("QNLI/train", "QNLI/dev"), "index|question|sentence|label", ENTAILMENT),
    (("QNLI/test",), "index|question|sentence", ENTAILMENT),
    (("RTE/train", "RTE/dev"), "index|sentence1|sentence2|label", ENTAILMENT[::-1]),
    (("RTE/test",), "index|sentence1|sentence2", ENTAILMENT[::-1]),
    (("WNLI/train", "WNLI/dev"), "index|sentence1|sentence2|label", BINARY),
    (("WNLI/test",), "index|sentence1|sentence2", BINARY),
    (("diagnostic/diagnostic-full",), f"{_PHENOMENA}|Premise|Hypothesis|Label", INFERENCE),
    (("diagnostic/diagnostic",), "index|sentence1|sentence2", INFERENCE),
)
"""The files of all tasks with their columns and labels; the label depends on the last text of a row."""


def sentence(draw: random.Random, label: str | None = None) -> str:
    """A few words, one of which determines the label; the score is the number of times that `same` occurs."""
    if label in SCORES:
        return " ".join(["same"] * round(float(label)) + draw.choices(FILLERS, k=2))
    words = draw.choices(FILLERS, k=draw.randint(2, 6))
    if label is not None:
        words.insert(draw.randint(0, len(words)), SIGNS[label])
    return " ".join(words)


def _row(draw: random.Random, columns: Sequence[str], number: int, label: str) -> str:
    last = [column for column in columns if column in TEXTS][-1]
    cells = dict.fromkeys(columns, "-")
    cells |= {column: sentence(draw, label if column == last else None) for column in columns if column in TEXTS}
    cells |= {column: label for column in columns if column in LABELS}
    cells |= {column: str(number) for column in columns if column in ("index", "id")}
    return "\t".join(cells.values())


def write_glue(folder: Path) -> Path:
    """All tasks, with what is special in their published files."""
    for names, joined, labels in FILES:
        columns = joined.split("|")
        for name in names:
            split = {"diagnostic-full": "dev", "diagnostic": "test"}.get(file := name.split("/")[1], file.split("_")[0])
            draw = random.Random(f"{split} {labels}")
            lines = ["\t".join(columns)]
            lines += [_row(draw, columns, number, labels[number % len(labels)]) for number in range(SIZES[split])]
            if name in ("CoLA/train", "CoLA/dev"):
                del lines[0]  # they have no header
            if name in ("SST-2/train", "SST-2/dev"):
                lines[1:] = [line.replace("\t", " \t") for line in lines[1:]]
            if name == "QQP/train":
                lines.insert(3, '"\tWas it so? And how?\t0')
            mark = "\ufeff" if name == "MRPC/dev" else ""
            path = folder / f"{name}.tsv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(mark + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE trained on the words of the files."""
    words = [*FILLERS, *SIGNS.values(), "same"]
    return train_tokenizer([" ".join(words), *(f" {word}" for word in words)] * 3, 400)


def save_trunk(kind: str, folder: Path) -> Path:
    """A trunk of a kind, with random weights and its tokenizer."""
    tokenizer = tiny_tokenizer()
    torch.manual_seed(1)
    trunk = bert(tokenizer, width=32, dropout=0.1)
    match kind:
        case "kermit":
            model: Any = kermit_model(tokenizer, trunk, seed=1)
        case "masked":
            model = BertForMaskedLM(trunk)
        case "encoder":
            model = BertModel(trunk)
        case "causal-encoder":
            trunk.is_decoder = True
            model = BertLMHeadModel(trunk)
        case "causal":
            ends = {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
            gpt = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=1, n_head=2, n_positions=64, **ends)
            model = GPT2LMHeadModel(gpt)
    return save(model, tokenizer, folder)
