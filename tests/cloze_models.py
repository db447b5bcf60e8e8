"""Instances and tiny models for the tests of cloze questions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import torch
from insertion_models import random_model
from tiny import bert
from transformers import BertForMaskedLM, BertLMHeadModel, GPT2Config, GPT2LMHeadModel

from kermit.data.joint_tokenizer import train_tokenizer
from kermit.modeling import KermitForInsertion, special_token_settings
from kermit.tasks.cloze.instances import ClozeInstance

PASSAGE = (
    "Prussia controlled 65% of the land. Austria, an old empire, held the rest of it! "
    "The dog of the king was blue, and the cat was red. Nobody knows why the king slept."
)


def _instance(number: int, question: str, sentence: str, answer: str, passage: str = PASSAGE) -> ClozeInstance:
    return ClozeInstance.from_text(passage, question, sentence, [answer], id=f"q{number}")


INSTANCES = [
    _instance(0, "How much of the land did Prussia control?", "Prussia controlled ____ of land.", "65%"),
    _instance(1, "Who held the rest?", "____ held the rest.", "Austria"),
    _instance(2, "What was blue?", "Blue was the ____.", "dog of the king"),
    _instance(3, "What is Austria?", "Austria is (____).", "an old empire", passage="Austria is old."),
    _instance(4, "What is known?", "Nobody knows ____", "why the king slept", passage="Nobody knows a thing."),
    _instance(5, "Was the cat red?", "The cat was ____, they say.", "red"),
]


def tokenizer(vocab_size=400):
    texts = [f"{item.passage} {item.question} {item.left} {item.gap}{item.right}" for item in INSTANCES]
    return train_tokenizer(texts * 3, vocab_size)


def _shake(model, seed: int):
    """Random weights, far enough from zero that distributions are not flat."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def masked_lm(words, *, positions=128, seed=0):
    config = bert(words, layers=2, positions=positions)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return _shake(BertForMaskedLM(config), seed)


def gpt2(words, *, positions=160, seed=0, **more):
    ends = {"bos_token_id": words.cls_token_id, "eos_token_id": words.sep_token_id}
    config = GPT2Config(vocab_size=len(words), n_positions=positions, n_embd=16, n_layer=2, n_head=2, **ends, **more)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return _shake(GPT2LMHeadModel(config), seed)


def bert_decoder(words, *, positions=160, seed=0, is_decoder=True):
    config = bert(words, layers=2, positions=positions)
    config.is_decoder = is_decoder
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return _shake(BertLMHeadModel(config), seed)


def kermit(words, *, room=96, seed=0, **settings) -> KermitForInsertion:
    return random_model(
        seed=seed, vocab_size=len(words), max_positions=room, **special_token_settings(words), **settings
    )


def write_data(folder: Path) -> tuple[Path, Path]:
    """QA2D's TSV and SQuAD's JSON in their own layouts: the instances above, and rows that are skipped."""
    rows = [
        "dataset\texample_uid\tquestion\tanswer\tturker_answer\trule-based",
        "SQuAD\tq0\tHow much ?\t65 %\tPrussia controlled 65 % of land .\t-",
        "SQuAD\tq1\tWho ?\tAustria\tAustria held the rest .\t-",
        "SQuAD\tq2\tWhat ?\tdog of the king\tBlue was the dog of the king .\t-",
        "QAMR\t17\tWho ?\tA\tA did .\t-",
        "SQuAD\tnowhere\tWho ?\tA\tA did .\t-",
        "SQuAD\tq5\tWhat ?\tred\tThe cat was scarlet .\t-",
    ]
    qa2d, squad = folder / "dev.tsv.gz", folder / "squad.json"
    qa2d.write_bytes(gzip.compress("".join(f"{row}\n" for row in rows).encode()))
    entries = [
        {
            "id": item.id,
            "question": item.question,
            "answers": [{"text": item.gap, "answer_start": PASSAGE.index(item.gap)}],
        }
        for item in INSTANCES
        if item.passage == PASSAGE
    ]
    record = {"version": "1.1", "data": [{"title": "T", "paragraphs": [{"context": PASSAGE, "qas": entries}]}]}
    squad.write_text(json.dumps(record), encoding="utf-8")
    return qa2d, squad
