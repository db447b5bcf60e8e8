"""Small files in the layout of each of GLUE's tasks, whose labels depend on one word; and trunks to finetune."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
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

Row = tuple[str, ...]


def sentence(draw: random.Random, label: str | None = None) -> str:
    """A few words, one of which determines the label."""
    words = draw.choices(FILLERS, k=draw.randint(2, 6))
    if label is not None:
        words.insert(draw.randint(0, len(words)), SIGNS[label])
    return " ".join(words)


def similar(draw: random.Random, score: float) -> str:
    """A text whose score between 0 and 5 is the number of times that `same` occurs."""
    return " ".join(["same"] * round(score) + draw.choices(FILLERS, k=2))


def _lines(
    header: Row | None, labels: Sequence[str], row: Callable[[random.Random, int, str], Row], split: str
) -> list[str]:
    draw = random.Random(f"{split} {labels}")
    rows = [row(draw, number, labels[number % len(labels)]) for number in range(SIZES[split])]
    return ["\t".join(cells) for cells in ([header] if header else []) + rows]


def _write(path: Path, lines: list[str], *, bom: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + "".join(f"{line}\n" for line in lines).encode())


def write_cola(folder: Path) -> None:
    """CoLA: no header in train and dev."""

    def row(draw: random.Random, number: int, label: str) -> Row:
        return ("gj04", label, "" if label == "1" else "*", sentence(draw, label))

    for split in ("train", "dev"):
        _write(folder / "CoLA" / f"{split}.tsv", _lines(None, "01", row, split))
    test = _lines(("index", "sentence"), "01", lambda draw, i, label: (str(i), sentence(draw, label)), "test")
    _write(folder / "CoLA" / "test.tsv", test)


def write_sst2(folder: Path) -> None:
    """SST-2: a space after the text in train and dev."""
    for split in ("train", "dev"):
        lines = _lines(("sentence", "label"), "01", lambda d, _, label: (sentence(d, label) + " ", label), split)
        _write(folder / "SST-2" / f"{split}.tsv", lines)
    test = _lines(("index", "sentence"), "01", lambda draw, i, label: (str(i), sentence(draw, label)), "test")
    _write(folder / "SST-2" / "test.tsv", test)


def write_mrpc(folder: Path) -> None:
    """MRPC: a byte-order mark before dev's header."""
    tail = ("#1 ID", "#2 ID", "#1 String", "#2 String")
    for split in ("train", "dev", "test"):

        def row(draw: random.Random, number: int, label: str, split: str = split) -> Row:
            return (str(number) if split == "test" else label, "7", "8", sentence(draw), sentence(draw, label))

        header = ("index" if split == "test" else "Quality", *tail)
        _write(folder / "MRPC" / f"{split}.tsv", _lines(header, "01", row, split), bom=split == "dev")


def write_stsb(folder: Path) -> None:
    """STS-B: scores instead of labels, and none in test."""
    header = ("index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2")
    for split in ("train", "dev", "test"):

        def row(draw: random.Random, number: int, label: str, split: str = split) -> Row:
            texts = (sentence(draw), similar(draw, float(label)))
            cells = (str(number), "main-captions", "MSRvid", "2012test", "0001", "none", "none", *texts)
            return cells if split == "test" else (*cells, label)

        labels = ["0.000", "1.250", "2.500", "3.800", "5.000"]
        score = () if split == "test" else ("score",)
        _write(folder / "STS-B" / f"{split}.tsv", _lines((*header, *score), labels, row, split))


def write_qqp(folder: Path) -> None:
    """QQP: a broken row in train, as published."""
    header = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
    for split in ("train", "dev"):
        lines = _lines(
            header, "01", lambda d, i, label: (str(i), "1", "2", sentence(d), sentence(d, label), label), split
        )
        if split == "train":
            lines.insert(3, '"\tWas it so? And how?\t0')
        _write(folder / "QQP" / f"{split}.tsv", lines)
    test = _lines(
        ("id", "question1", "question2"), "01", lambda d, i, label: (str(i), sentence(d), sentence(d, label)), "test"
    )
    _write(folder / "QQP" / "test.tsv", test)


def write_mnli(folder: Path) -> None:
    """MNLI: two dev and two test files, and more label columns in dev than in train."""
    first = ("index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse")
    header = (*first, "sentence1_parse", "sentence2_parse", "sentence1", "sentence2")
    labels = ["entailment", "neutral", "contradiction"]
    for name in ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"):
        split = name.split("_")[0]
        extra = {"train": ("label1",), "dev": tuple(f"label{n}" for n in range(1, 6)), "test": ()}[split]
        gold = () if split == "test" else ("gold_label",)

        def row(draw: random.Random, number: int, label: str, extra: Row = extra, gold: Row = gold) -> Row:
            cells = (str(number), "1", "1n", "fiction", "( a )", "( b )", "(ROOT a)", "(ROOT b)")
            texts = (sentence(draw), sentence(draw, label))
            return (*cells, *texts, *(label for _ in extra), *(label for _ in gold))

        _write(folder / "MNLI" / f"{name}.tsv", _lines((*header, *extra, *gold), labels, row, split))


def _write_inference(folder: Path, name: str, x: str, y: str, labels: Sequence[str]) -> None:
    for split in ("train", "dev", "test"):

        def row(draw: random.Random, number: int, label: str, split: str = split) -> Row:
            cells = (str(number), sentence(draw), sentence(draw, label))
            return cells if split == "test" else (*cells, label)

        header = ("index", x, y) if split == "test" else ("index", x, y, "label")
        _write(folder / name / f"{split}.tsv", _lines(header, labels, row, split))


def write_ax(folder: Path) -> None:
    """AX: test as in GLUE's download, and the labelled file that is published apart."""
    labels = ["entailment", "neutral", "contradiction"]
    header = ("index", "sentence1", "sentence2")
    test = _lines(header, labels, lambda d, i, label: (str(i), sentence(d), sentence(d, label)), "test")
    _write(folder / "diagnostic" / "diagnostic.tsv", test)
    phenomena = ("Lexical Semantics", "Predicate-Argument Structure", "Logic", "Knowledge", "Domain")
    full = _lines(
        (*phenomena, "Premise", "Hypothesis", "Label"),
        labels,
        lambda d, _, label: ("", "", "Negation", "", "Artificial", sentence(d), sentence(d, label), label),
        "dev",
    )
    _write(folder / "diagnostic" / "diagnostic-full.tsv", full)


def write_glue(folder: Path) -> Path:
    """All tasks."""
    for write in (write_cola, write_sst2, write_mrpc, write_stsb, write_qqp, write_mnli, write_ax):
        write(folder)
    _write_inference(folder, "QNLI", "question", "sentence", ["entailment", "not_entailment"])
    _write_inference(folder, "RTE", "sentence1", "sentence2", ["not_entailment", "entailment"])
    _write_inference(folder, "WNLI", "sentence1", "sentence2", "01")
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
