from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from kermit.data.encoding import Row
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.errors import DataError, DecodingError, ModelError, RecipeError
from kermit.families.base import ITEMS
from kermit.families.transformer import TRANSFORMER, BeamSearch
from kermit.modeling import as_tensors
from kermit.modeling.slot_loss import slot_loss
from kermit.pipeline import Kermit
from kermit.serving.app import create_app
from kermit.training.recipe import Recipe, check_recipe


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(["one two three"], 280)


@pytest.fixture
def recipe(tiny_recipe: dict[str, Any]) -> Recipe:
    return check_recipe(tiny_recipe, data=Path()).recipe


@pytest.fixture
def model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Any:
    torch.manual_seed(0)
    return TRANSFORMER.build(recipe, tokenizer).eval()


@pytest.fixture
def facade(model: Any, tokenizer: PreTrainedTokenizerFast) -> Kermit:
    return Kermit(TRANSFORMER.runner(model, tokenizer), tokenizer)


def test_a_batch_holds_both_sides_with_their_special_tokens(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
    rows = [Row(x=[10, 11], y=[20], source=0), Row(x=[12], y=[21, 22], source=0)]
    batch = TRANSFORMER.collator(recipe, tokenizer)(rows, torch.Generator())
    pad, start, end = tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id
    assert batch["input_ids"].tolist() == [[10, 11, end], [12, end, pad]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch["decoder_input_ids"].tolist() == [[start, 20, pad], [start, 21, 22]]
    assert batch["labels"].tolist() == [[20, end, -100], [21, 22, end]]
    assert batch[ITEMS].tolist() == [2, 3]


def test_the_other_direction_swaps_the_sides(tiny_recipe: dict[str, Any], tokenizer: PreTrainedTokenizerFast) -> None:
    backward = check_recipe({**tiny_recipe, "factorizations": {"x_given_y": 1.0}}, data=Path()).recipe
    batch = TRANSFORMER.collator(backward, tokenizer)([Row(x=[10], y=[20], source=0)], torch.Generator())
    assert batch["input_ids"].tolist() == [[20, tokenizer.sep_token_id]]
    assert batch["labels"].tolist() == [[10, tokenizer.sep_token_id]]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_slot_loss_with_one_token_per_slot_is_torchs_cross_entropy(smoothing: float) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(600, 8, dtype=torch.double, requires_grad=True)
    weight = torch.randn(30, 8, dtype=torch.double, requires_grad=True)
    targets = torch.randint(0, 30, (600,))
    each, rows, bias = torch.ones(600, dtype=torch.double), torch.arange(600), torch.zeros(30, dtype=torch.double)
    ours = slot_loss(hidden, weight, bias, each, rows, targets, each, smoothing=smoothing, chunk_elements=3000)
    gradients = torch.autograd.grad(ours / 7, [hidden, weight])
    torchs = functional.cross_entropy(hidden @ weight.T, targets, label_smoothing=smoothing, reduction="sum")
    assert ours.item() == pytest.approx(torchs.item())
    for mine, theirs in zip(gradients, torch.autograd.grad(torchs / 7, [hidden, weight]), strict=True):
        assert torch.allclose(mine, theirs)


def test_the_models_loss_is_the_sum_over_real_tokens(
    model: Any, recipe: Recipe, tokenizer: PreTrainedTokenizerFast
) -> None:
    rows = [Row(x=[10, 11], y=[20], source=0), Row(x=[12], y=[21, 22, 23], source=0)]
    collator = TRANSFORMER.collator(recipe, tokenizer)

    def loss(some: list[Row]) -> float:
        batch = as_tensors(collator(some, np.random.default_rng(0)))
        del batch[ITEMS]
        return TRANSFORMER.loss(model, batch, recipe).item()

    assert loss(rows) == pytest.approx(loss(rows[:1]) + loss(rows[1:]), rel=1e-5)


def test_a_translation_does_not_depend_on_the_other_texts(facade: Kermit) -> None:
    texts = ["one", "two three one two three", "", "three three three", "one two"]
    beam = BeamSearch(beams=3, max_tokens=9, batch_tokens=40)
    together = facade.translate(texts, "y", settings=beam)
    alone = [facade.translate([text], "y", settings=beam)[0] for text in texts]
    assert [result.x for result in together] == texts
    for one, other in zip(together, alone, strict=True):
        assert (one.y, one.tokens, one.finish) == (other.y, other.tokens, other.finish)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
        assert one.tokens <= 9


def test_white_space_around_a_text_has_no_effect(facade: Kermit) -> None:
    plain, spaced = facade.translate(["one two", " \tone two "], "y", settings=BeamSearch(beams=2, max_tokens=6))
    assert (spaced.x, spaced.y) == (" \tone two ", plain.y)
    assert spaced.log_prob == pytest.approx(plain.log_prob, abs=1e-4)


def test_the_log_probability_is_the_models_own(model: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    searcher, start, end = TRANSFORMER.runner(model, tokenizer), tokenizer.cls_token_id, tokenizer.sep_token_id
    [found] = searcher.search([[10, 11]], BeamSearch(beams=2, max_tokens=6))
    ids = [*found.token_ids, end] if found.finished else found.token_ids
    source, target = torch.tensor([[10, 11, end]]), torch.tensor([[start, *ids[:-1]]])
    log_probs = model(input_ids=source, decoder_input_ids=target).logits[0].log_softmax(1)
    assert found.log_prob == pytest.approx(log_probs[range(len(ids)), ids].sum().item(), abs=1e-4)


def test_methods_that_a_transformer_lacks_are_errors(facade: Kermit) -> None:
    with pytest.raises(DataError, match="tokens") as refused:
        facade.translate(["one", "q" * 64], "y")
    assert (refused.value.text, refused.value.limit) == (1, 63)
    with pytest.raises(ModelError, match="no rounds to trace"):
        facade.translate(["one"], "y", trace=True)
    for ask in (facade.infill, facade.score, facade.embed, facade.complete):
        with pytest.raises(ModelError, match="a model of type marian can only translate"):
            ask(["one ____"])
    with pytest.raises(ModelError, match="unknown language 'fr'"):
        facade.translate(["one"], "fr")
    facade.factorizations = frozenset({"y_given_x"})
    with pytest.raises(ModelError, match="not trained to translate y to x"):
        facade.translate(["one"], "x")


def test_unknown_decoding_settings_are_errors(facade: Kermit) -> None:
    assert facade.decoding({"beams": 3, "max_tokens": None}).record()["beams"] == 3
    for wrong in ({"beam": 3}, {"beams": 0}, {"strategy": "serial"}):
        with pytest.raises(DecodingError, match=next(iter(wrong))):
            facade.decoding(wrong)


def test_saved_weights_are_one_embedding_and_load_as_marian(model: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM

    model.save_pretrained(tmp_path)
    again = TRANSFORMER.load(tmp_path)
    plain = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    for loaded in (again, plain):
        assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)
        assert loaded.lm_head.weight is loaded.model.encoder.embed_tokens.weight


@pytest.mark.parametrize("place", ["train", "validation"])
def test_a_source_of_the_other_direction_is_rejected(tiny_recipe: dict[str, Any], place: str) -> None:
    source = tiny_recipe["data"]["train"][0] if place == "train" else tiny_recipe["data"]["validation"]
    source["factorizations"] = {"x_given_y": 1.0}
    with pytest.raises(RecipeError, match=rf"data\.{place}.*a Transformer .* pairs"):
        check_recipe(tiny_recipe, data=Path())


def test_a_transformer_is_served_only_for_translation(facade: Kermit) -> None:
    with TestClient(create_app(facade)) as client:
        [card] = client.get("/v1/models").json()["models"]
        assert card["strategies"] == []
        asked = {"texts": ["one two. three", "one"], "to": "y", "max_tokens": 5}
        found = client.post("/v1/translate", json=asked).json()["results"]
        expected = facade.translate(asked["texts"], "y", settings={"max_tokens": 5})
        assert [result["y"] for result in found] == [result.y for result in expected]
        for route, body in (
            ("translate", asked | {"temperature": 1}),
            ("translate", asked | {"trace": True}),
            ("infill", {"x": ["one ____"]}),
            ("score", {"x": ["one"]}),
        ):
            response = client.post(f"/v1/{route}", json=body)
            assert response.status_code == 422, response.text
