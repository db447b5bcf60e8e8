"""The input of each kind of trunk."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from glue_files import save_trunk, tiny_tokenizer
from insertion_models import trunk_config
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    PreTrainedTokenizerFast,
    RobertaModel,
)

from kermit.errors import ModelError
from kermit.modeling import KermitConfig, KermitForSequenceClassification, special_token_settings
from kermit.modeling.trunk import first_position
from kermit.tasks.glue.classifier import Classifier, add_frame
from kermit.tasks.glue.data import Example
from kermit.tasks.glue.table import task_named
from kermit.text.tokenizer import encode_texts

PAIR = Example("the dog", "a green girl sleeps", 1, "")
SINGLE = Example("the dog", None, 0, "")


def kermit_model(**settings: object) -> KermitForSequenceClassification:
    tokenizer = tiny_tokenizer()
    trunk = trunk_config(vocab_size=len(tokenizer), max_positions=12)
    config = KermitConfig(trunk_config=trunk, **special_token_settings(tokenizer), **settings)
    return KermitForSequenceClassification(config)


def gpt(vocab_size: int) -> GPT2ForSequenceClassification:
    ids = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2ForSequenceClassification(
        GPT2Config(vocab_size=vocab_size, n_embd=8, n_layer=1, n_head=1, n_positions=32, **ids)
    )


def classifier_of(model: Any, tokenizer: PreTrainedTokenizerFast, max_length: int = 128) -> Classifier:
    add_frame(model, tokenizer)
    return Classifier(model, tokenizer, max_length)


def ids(text: str) -> list[int]:
    return encode_texts(tiny_tokenizer(), [text])[0]


def test_kermit_sees_a_canvas_with_its_segments() -> None:
    tokenizer, model = tiny_tokenizer(), kermit_model()
    encoder = classifier_of(model, tokenizer)
    cls, sep, x, y = tokenizer.cls_token_id, tokenizer.sep_token_id, ids("the dog"), ids("a green girl sleeps")
    [pair] = encoder.encode([PAIR])
    assert pair == {
        "input_ids": [cls, *x, sep, *y, sep],
        "attention_mask": [1] * (len(x) + len(y) + 3),
        "token_type_ids": [0] * (len(x) + 2) + [1] * (len(y) + 1),
        "label": 1,
    }
    [single] = encoder.encode([SINGLE])
    assert single["input_ids"] == [cls, *x, sep]
    assert single["token_type_ids"] == [0] * (len(x) + 2)


def test_what_looks_like_a_special_token_in_a_text_is_text() -> None:
    tokenizer = tiny_tokenizer()
    [row] = classifier_of(kermit_model(), tokenizer).encode([Example("[SEP]", None, 1, "")])
    assert row["input_ids"].count(tokenizer.sep_token_id) == 1


def test_the_longer_text_of_a_pair_is_cut() -> None:
    long = Example("the " * 30, "a girl", 1, "")
    [cut] = classifier_of(kermit_model(), tiny_tokenizer(), 12).encode([long])
    assert len(cut["input_ids"]) == 12
    assert cut["input_ids"][-len(ids("a girl")) - 1 : -1] == ids("a girl")


def test_another_encoder_uses_its_tokenizers_frame_or_ours_if_it_has_none() -> None:
    tokenizer = tiny_tokenizer()
    model = BertForSequenceClassification(trunk_config(vocab_size=len(tokenizer)))
    [kermit_row] = classifier_of(kermit_model(), tokenizer).encode([PAIR])
    [row] = classifier_of(model, tokenizer).encode([PAIR])
    assert row == kermit_row

    template = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", tokenizer.cls_token_id), ("[SEP]", tokenizer.sep_token_id)],
    )
    tokenizer.backend_tokenizer.post_processor = template
    encoder = classifier_of(model, tokenizer)
    sep, x, y = tokenizer.sep_token_id, ids("the dog"), ids("a green girl sleeps")
    own, single = encoder.encode([PAIR])[0], encoder.encode([SINGLE])[0]
    assert own["input_ids"] == [tokenizer.cls_token_id, *x, sep, sep, *y, sep]
    assert own["label"] == 1
    assert single["input_ids"] == [tokenizer.cls_token_id, *x, sep]
    assert "token_type_ids" in own
    [cut] = classifier_of(model, tokenizer, 7).encode([PAIR])
    assert len(cut["input_ids"]) == 7


def test_a_causal_model_ends_with_a_separator_that_is_not_padding() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.cls_token = tokenizer.sep_token = tokenizer.pad_token = None
    tokenizer.add_special_tokens({"eos_token": "[EOSLOT]", "bos_token": "[EOSLOT]"})  # as GPT-2: one token for both
    model = gpt(len(tokenizer))
    add_frame(model, tokenizer)
    end = tokenizer.eos_token_id
    assert tokenizer.pad_token_id not in (None, end)
    assert model.config.pad_token_id == tokenizer.pad_token_id
    assert model.get_input_embeddings().num_embeddings >= len(tokenizer)
    [row] = classifier_of(model, tokenizer).encode([PAIR])
    assert row["input_ids"] == [*ids("the dog"), end, *ids("a green girl sleeps"), end]
    assert "token_type_ids" not in row


def test_an_encoder_with_a_causal_mask_is_read_at_its_last_token(tmp_path: Path) -> None:
    classifier = Classifier.start(str(save_trunk("causal-encoder", tmp_path)), task_named("RTE"), max_length=40, seed=0)
    model = classifier.model.eval()
    [row] = classifier.encode([PAIR])
    assert "token_type_ids" not in row  # as in its pretraining
    assert row["input_ids"][0] == classifier.tokenizer.cls_token_id
    tokens = torch.tensor([row["input_ids"]])
    padded = torch.nn.functional.pad(tokens, (0, 3), value=classifier.tokenizer.pad_token_id)
    hidden = model.trunk(tokens).last_hidden_state
    changed = tokens.clone()
    changed[0, -2] = tokens[0, 1]
    torch.testing.assert_close(model.trunk(changed).last_hidden_state[:, :-2], hidden[:, :-2])  # causal
    expected = hidden[:, -1] @ model.score.weight.T
    torch.testing.assert_close(model(tokens).logits, expected)
    torch.testing.assert_close(
        model(padded, attention_mask=(padded != model.config.pad_token_id).long()).logits, expected
    )
    types = torch.ones_like(tokens)  # which a BERT tokenizer returns, but pretraining did not use
    torch.testing.assert_close(model(tokens, token_type_ids=types).logits, expected)


def test_padding_that_is_also_the_separator_is_replaced() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = tokenizer.sep_token
    model = gpt(len(tokenizer))
    add_frame(model, tokenizer)
    assert tokenizer.pad_token_id != tokenizer.sep_token_id


def test_a_tokenizer_without_a_separator_is_an_error() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.sep_token = None
    with pytest.raises(ModelError, match=r"neither a \[SEP\] nor an end token"):
        add_frame(gpt(len(tokenizer)), tokenizer)


def test_positions_that_are_numbered_from_the_padding_are_not_counted() -> None:
    assert first_position(RobertaModel(trunk_config("roberta"))) == 1


@pytest.mark.parametrize("kind", ["kermit", "masked", "encoder", "causal", "causal-encoder"])
def test_the_answer_does_not_depend_on_the_batch(kind: str, tmp_path: Path) -> None:
    classifier = Classifier.start(str(save_trunk(kind, tmp_path)), task_named("RTE"), max_length=40, seed=3)
    torch.manual_seed(0)
    for parameter in classifier.model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    examples = [PAIR, Example("a", "dog", 0, ""), Example("quietly " * 9, "the dog", 0, "")]
    together = classifier.logits(examples)
    alone = classifier.logits(examples, batch_size=1)
    np.testing.assert_allclose(together, alone, atol=1e-4)
    assert np.ptp(together[:, 0]) > 0.1


@pytest.mark.parametrize("kind", ["kermit", "causal"])
def test_new_layers_depend_only_on_the_seed(kind: str, tmp_path: Path) -> None:
    folder = str(save_trunk(kind, tmp_path))
    first, again, other = (
        Classifier.start(folder, task_named("RTE"), max_length=40, seed=seed).logits([PAIR]) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_a_checkpoint_without_its_trunk_is_rejected(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = save_trunk("masked", tmp_path)
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if "attention" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks weights of its trunk: bert\.encoder"):
        Classifier.start(str(folder), task_named("RTE"), max_length=40, seed=0)


def test_a_model_that_was_not_finetuned_or_has_other_labels_is_rejected(tmp_path: Path) -> None:
    folder = str(save_trunk("masked", tmp_path / "trunk"))
    with pytest.raises(ModelError, match="but MNLI needs entailment, neutral, contradiction"):
        Classifier.load(folder, task_named("MNLI"), max_length=40)
    Classifier.start(folder, task_named("STS-B"), max_length=40, seed=0).save(tmp_path / "finetuned")
    with pytest.raises(ModelError, match="predicts number, but CoLA needs 0, 1"):
        Classifier.load(str(tmp_path / "finetuned"), task_named("CoLA"), max_length=40)
    with pytest.raises(ModelError, match="cannot be loaded"):
        Classifier.start(str(tmp_path / "nowhere"), task_named("CoLA"), max_length=40, seed=0)
