"""The classifier: its input, its loss, and that its checkpoint still generates."""

from pathlib import Path

import pytest
import torch
from insertion_models import CLS, PAD, SEP, SPECIALS, TRUNKS, VOCABULARY, A, B, C, random_model, scores_of, trunk_config
from torch import nn
from transformers import AutoModelForSequenceClassification

import kermit
from kermit.canvas import Canvas, CanvasBatch, Factorization
from kermit.errors import ModelError
from kermit.modeling import KermitConfig, KermitForInsertion, KermitForSequenceClassification, KermitModel
from kermit.modeling.tensors import as_tensors

PAIRS = [((A, B), (C,)), ((C,), (B, B, A)), ((A,), (A,))]


def classifier(family: str = "bert", **settings: object) -> KermitForSequenceClassification:
    torch.manual_seed(0)
    config = KermitConfig(trunk_config=trunk_config(family), **settings)
    return KermitForSequenceClassification(config).eval()


def inputs(pairs: list[tuple[tuple[int, ...], ...]] = PAIRS) -> dict[str, torch.Tensor]:
    batch = CanvasBatch.from_segments(SPECIALS, pairs)
    planes = {"input_ids": batch.token_ids, "attention_mask": batch.valid, "token_type_ids": batch.segment_ids}
    return as_tensors(planes)


def slot_logits(model: KermitForInsertion) -> torch.Tensor:
    canvases = [Canvas.from_ids(SPECIALS, x, y, generate=Factorization.JOINT) for x, y in PAIRS]
    with torch.inference_mode():
        return scores_of(model.eval(), CanvasBatch.from_canvases(canvases)).content


def test_the_loss_of_several_labels_is_the_cross_entropy_and_that_of_one_the_squared_error() -> None:
    model = classifier(num_labels=3)
    labels = torch.tensor([2, 0, 1])
    out = model(**inputs(), labels=labels)
    expected = -out.logits.log_softmax(1)[torch.arange(3), labels].mean()
    torch.testing.assert_close(out.loss, expected)

    model = classifier(num_labels=1)
    numbers = torch.tensor([0.5, 4.0, 2.0])
    out = model(**inputs(), labels=numbers)
    torch.testing.assert_close(out.loss, ((out.logits[:, 0] - numbers) ** 2).mean())
    alone = model(**inputs(PAIRS[:1]), labels=numbers[:1])
    torch.testing.assert_close(alone.loss, (alone.logits[0, 0] - 0.5) ** 2)


def test_logits_come_only_from_the_first_token_through_tanh() -> None:
    model = classifier(num_labels=2)
    hidden = model.kermit(**inputs()).last_hidden_state
    pooled = torch.tanh(hidden[:, 0] @ model.pooler.dense.weight.T + model.pooler.dense.bias)
    expected = pooled @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(model(**inputs()).logits, expected)


def test_segment_ids_and_token_type_ids_are_the_same_and_matter() -> None:
    model = classifier()
    given = inputs()
    types = given.pop("token_type_ids")
    by_type = model(**given, token_type_ids=types).logits
    torch.testing.assert_close(model(**given, segment_ids=types).logits, by_type)
    assert not torch.allclose(model(**given).logits, by_type)


@pytest.mark.parametrize("family", list(TRUNKS))
def test_padding_changes_nothing_on_any_trunk(family: str) -> None:
    model = classifier(family)
    together = model(**inputs()).logits
    for row, pair in enumerate(PAIRS):
        torch.testing.assert_close(model(**inputs([pair])).logits[0], together[row], atol=1e-5, rtol=1e-4)


def test_dropout_acts_in_training_only() -> None:
    model = classifier(classifier_dropout=0.5)
    assert torch.equal(model(**inputs()).logits, model(**inputs()).logits)
    model.train()
    assert not torch.equal(model(**inputs()).logits, model(**inputs()).logits)


@pytest.mark.parametrize("termination", ["slot", "sequence"])
def test_a_finetuned_checkpoint_still_inserts_as_before(termination: str, tmp_path: Path) -> None:
    inserter = random_model(termination=termination)
    inserter.save_pretrained(tmp_path / "pretrained")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "pretrained", num_labels=3)
    assert isinstance(model, KermitForSequenceClassification)
    assert model.config.num_labels == 3

    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    model(**inputs(), labels=torch.tensor([0, 1, 2])).loss.backward()
    optimizer.step()
    changed = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    assert "kermit.encoder.embeddings.word_embeddings.weight" in changed
    assert {"pooler.dense.weight", "classifier.weight"} < changed
    assert not any(name.startswith("head.") for name in changed)

    model.save_pretrained(tmp_path / "finetuned")
    again = KermitForInsertion.from_pretrained(tmp_path / "finetuned")
    assert all(
        torch.equal(weight, inserter.head.state_dict()[name]) for name, weight in again.head.state_dict().items()
    )
    same = AutoModelForSequenceClassification.from_pretrained(tmp_path / "finetuned").eval()
    torch.testing.assert_close(same(**inputs()).logits, model.eval()(**inputs()).logits)
    hidden = KermitModel.from_pretrained(tmp_path / "finetuned").eval()(**inputs()).last_hidden_state
    torch.testing.assert_close(hidden, model.kermit(**inputs()).last_hidden_state)


def test_before_any_step_a_classifier_generates_exactly_as_its_checkpoint(tmp_path: Path) -> None:
    inserter = random_model(slot_vector="both")
    inserter.save_pretrained(tmp_path / "pretrained")
    KermitForSequenceClassification.from_pretrained(tmp_path / "pretrained").save_pretrained(tmp_path / "classifier")
    again = KermitForInsertion.from_pretrained(tmp_path / "classifier")
    torch.testing.assert_close(slot_logits(again), slot_logits(inserter))


def test_without_its_insertion_head_a_checkpoint_is_smaller_and_cannot_generate(tmp_path: Path) -> None:
    random_model().save_pretrained(tmp_path / "pretrained")
    model = KermitForSequenceClassification.from_pretrained(tmp_path / "pretrained", keep_insertion_head=False)
    assert model.head is None
    model.save_pretrained(tmp_path / "classifier")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "classifier").eval()
    torch.testing.assert_close(loaded(**inputs()).logits, model.eval()(**inputs()).logits)
    with pytest.raises(ModelError, match="without an insertion head"):
        KermitForInsertion.from_pretrained(tmp_path / "classifier")


def test_a_trunk_without_insertion_head_is_not_given_one(tmp_path: Path) -> None:
    KermitModel(KermitConfig(trunk_config=trunk_config())).save_pretrained(tmp_path)
    model, info = KermitForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert model.head is None
    assert not model.config.keep_insertion_head
    assert {name.split(".")[0] for name in info["missing_keys"]} == {"pooler", "classifier"}


def test_a_label_that_occurs_in_the_text_is_learned() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(A, VOCABULARY, (64, 5), generator=generator)
    labels = (tokens == C).any(1).long()
    ids = nn.functional.pad(nn.functional.pad(tokens, (1, 0), value=CLS), (0, 1), value=SEP)
    assert PAD not in ids
    model = classifier(num_labels=2, classifier_dropout=0.0).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(60):
        loss = model(ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert (model(ids).logits.argmax(1) == labels).float().mean() > 0.95


def test_the_classifier_is_a_public_name() -> None:
    assert kermit.KermitForSequenceClassification is KermitForSequenceClassification
