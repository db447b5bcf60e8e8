"""The masked and the causal language model: frequencies in their batches, and losses equal to transformers'."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from kermit.data.batching import RankShare
from kermit.data.encoding import Row
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.errors import RecipeError
from kermit.families.base import ITEMS, HeldOutBatch, complete_texts
from kermit.families.language_model import best_tokens, run
from kermit.families.masked_lm import MaskingCollator
from kermit.modeling.tensors import as_tensors
from kermit.training.recipe import LoadedRecipe, check_recipe

SHAPES: dict[str, dict[str, Any]] = {
    "bert": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32},
    "roberta": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "type_vocab_size": 1,
    },
    "modernbert": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64},
}
ROWS = [Row(x=[30, 31, 32, 33], y=[34, 35], source=0), Row(x=[36, 37], y=[], source=0)]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(["one two three"], 280)


def loaded(family: str, shape: str, **changes: Any) -> LoadedRecipe:
    data = {"train": [{"text": "text"}], "max_tokens": 32, **changes.pop("data", {})}
    raw = {
        "task": "pretraining",
        "data": data,
        "tokenizer": {"vocab_size": 280},
        "model": {"family": family, "trunk": {"model_type": shape, "max_position_embeddings": 64, **SHAPES[shape]}},
        "schedule": {"max_steps": 1},
    }
    return check_recipe(raw | changes, data=Path())


def built(recipe: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> Any:
    torch.manual_seed(0)
    return recipe.family.build(recipe.recipe, tokenizer).eval()


def collator(tokenizer: PreTrainedTokenizerFast, **objective: Any) -> MaskingCollator:
    made = loaded("masked_lm", "bert", objective=objective)
    found = made.family.collator(made.recipe, tokenizer)
    assert isinstance(found, MaskingCollator)
    return found


def test_of_15_percent_80_are_masked_10_are_replaced_and_10_stay(tokenizer: PreTrainedTokenizerFast) -> None:
    rows = [Row(x=[40] * 60, y=[41] * 60, source=0)] * 300
    batch = as_tensors(collator(tokenizer)(rows, np.random.default_rng(0)))
    asked = batch["labels"] != -100
    content, count = 300 * 120, int(asked.sum())
    assert count / content == pytest.approx(0.15, abs=5 * (0.15 * 0.85 / content) ** 0.5)
    assert batch[ITEMS].sum() == count
    shown, truth = batch["input_ids"][asked], batch["labels"][asked]
    hidden, kept = shown == tokenizer.mask_token_id, shown == truth
    for share, expected in ((hidden, 0.8), (kept, 0.1), (~hidden & ~kept, 0.1)):
        assert share.float().mean().item() == pytest.approx(expected, abs=5 * 0.4 / count**0.5)
    others = set(shown[~hidden & ~kept].tolist())
    assert len(others) > 150, "from all of the vocabulary"
    assert not others & set(tokenizer.all_special_ids)
    whole = complete_texts(collator(tokenizer).specials, rows).batch
    assert torch.equal(batch["input_ids"][~asked], torch.as_tensor(whole.token_ids)[~asked]), "the rest is as it was"
    assert set(truth.tolist()) == {40, 41}, "specials are never asked for"


def test_spans_are_masked_together_and_short_texts_have_at_least_one_target(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    rows = [Row(x=[40] * 100, y=[], source=0)] * 200
    runs = {}
    for length in (1.0, 4.0):
        batch = as_tensors(collator(tokenizer, span_length=length)(rows, np.random.default_rng(1)))
        asked = batch["labels"][:, 1:-1] != -100
        runs[length] = asked[:, 1:][asked[:, :-1]].float().mean().item()
    assert runs[1.0] == pytest.approx(0.15, abs=0.03)
    assert runs[4.0] > 0.7
    tiny = [Row(x=[40], y=[], source=0)] * 50
    assert (collator(tokenizer)(tiny, np.random.default_rng(0))[ITEMS] == 1).all()


@pytest.mark.parametrize("shape", ["bert", "roberta", "modernbert"])
def test_the_masked_loss_is_the_sum_of_transformers_loss(tokenizer: PreTrainedTokenizerFast, shape: str) -> None:
    recipe = loaded("masked_lm", shape)
    model = built(recipe, tokenizer)
    batch = as_tensors(recipe.family.collator(recipe.recipe, tokenizer)(ROWS, np.random.default_rng(2)))
    items = batch.pop(ITEMS).sum()
    segments = {"token_type_ids": batch["segment_ids"]} if shape == "bert" else {}
    theirs = model(batch["input_ids"], attention_mask=batch["valid"].long(), labels=batch["labels"], **segments)
    ours = recipe.family.loss(model, batch, recipe.recipe)
    assert ours.item() == pytest.approx(theirs.loss.item() * items.item(), rel=1e-4)
    ours.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    theirs = model(batch["input_ids"], attention_mask=batch["valid"].long(), labels=batch["labels"], **segments)
    (theirs.loss * items).backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", ["bert", "gpt2"])
def test_the_causal_loss_is_the_sum_of_transformers_loss(tokenizer: PreTrainedTokenizerFast, shape: str) -> None:
    recipe = loaded("causal_lm", shape)
    model = built(recipe, tokenizer)
    batch = as_tensors(recipe.family.collator(recipe.recipe, tokenizer)(ROWS, np.random.default_rng()))
    items = batch.pop(ITEMS)
    assert items.tolist() == [8, 3]  # 9 and 4 tokens with their specials, all but the first of each
    labels = batch["token_ids"].masked_fill(~batch["valid"], -100)
    theirs = model(batch["token_ids"], attention_mask=batch["valid"].long(), labels=labels).loss
    ours = recipe.family.loss(model, batch, recipe.recipe)
    assert ours.item() == pytest.approx(theirs.item() * items.sum().item(), rel=1e-4)


@pytest.mark.parametrize("shape", ["bert", "gpt2"])
def test_a_causal_model_does_not_see_later_tokens(tokenizer: PreTrainedTokenizerFast, shape: str) -> None:
    model = built(loaded("causal_lm", shape), tokenizer)
    one, two = torch.tensor([[1, 30, 31, 32, 2]]), torch.tensor([[1, 30, 31, 99, 2]])
    first, second = (run(model, ids, torch.ones_like(ids)) for ids in (one, two))
    torch.testing.assert_close(first[:, :3], second[:, :3])
    assert not torch.allclose(first[:, 3:], second[:, 3:], atol=1e-4)


def test_a_trunk_without_a_masked_or_causal_model_is_an_error(tokenizer: PreTrainedTokenizerFast) -> None:
    for family, shape in (("causal_lm", "modernbert"), ("masked_lm", "gpt2")):
        recipe = loaded(family, shape)
        with pytest.raises(RecipeError, match=r"model\.trunk: "):
            recipe.family.build(recipe.recipe, tokenizer)


@pytest.mark.parametrize("family", ["masked_lm", "causal_lm"])
@torch.inference_mode()
def test_recovered_tokens_follow_from_the_models_logits(tokenizer: PreTrainedTokenizerFast, family: str) -> None:
    recipe = loaded(family, "bert")
    model = built(recipe, tokenizer)
    specials = recipe.family.collator(recipe.recipe, tokenizer).specials
    texts = complete_texts(specials, ROWS)
    dropped = np.zeros_like(texts.present)
    dropped[0, [1, 2, 6]] = dropped[1, 2] = True
    ids, mask = torch.as_tensor(texts.batch.token_ids), torch.as_tensor(texts.batch.valid).long()
    if family == "masked_lm":
        hidden = ids.masked_fill(torch.as_tensor(dropped), tokenizer.mask_token_id)
        best = model(
            hidden, attention_mask=mask, token_type_ids=torch.as_tensor(texts.batch.segment_ids)
        ).logits.argmax(2)
    else:
        best = model(ids, attention_mask=mask).logits.argmax(2).roll(1, dims=1)
    best = best.numpy()
    truth = texts.batch.token_ids.copy()
    truth[dropped] = np.where([True, False, True, True], best[dropped], truth[dropped])
    if family == "masked_lm":  # some answers are made correct; masked tokens cannot change them
        texts.batch.token_ids[:] = truth
        expected = dropped & (best == truth)
        assert expected.sum() >= 3
    else:
        expected = dropped & (best == texts.batch.token_ids)
    found = recipe.family.recover(model, HeldOutBatch(texts, dropped))
    assert np.array_equal(found.correct, expected)
    assert best_tokens(model, torch.zeros(0, 16)).shape == (0,)


def test_shares_of_a_batch_sum_to_the_loss_of_the_whole(tokenizer: PreTrainedTokenizerFast) -> None:
    recipe = loaded("masked_lm", "bert")
    model = built(recipe, tokenizer)
    batch = as_tensors(recipe.family.collator(recipe.recipe, tokenizer)(ROWS * 2, np.random.default_rng(3)))
    batch.pop(ITEMS)
    whole = recipe.family.loss(model, batch, recipe.recipe)
    parts = [recipe.family.loss(model, as_tensors(RankShare(rank, 2).of(batch)), recipe.recipe) for rank in (0, 1)]
    assert whole.item() == pytest.approx(sum(part.item() for part in parts), rel=1e-5)


def test_losses_of_other_tokens_are_not_computed(tokenizer: PreTrainedTokenizerFast) -> None:
    """The model's own output layer is never called."""
    recipe = loaded("masked_lm", "bert")
    model = built(recipe, tokenizer)
    seen: Counter[int] = Counter()
    model.get_output_embeddings().register_forward_hook(lambda _, __, out: seen.update([out.numel()]))
    batch = as_tensors(recipe.family.collator(recipe.recipe, tokenizer)(ROWS, np.random.default_rng(2)))
    batch.pop(ITEMS)
    recipe.family.loss(model, batch, recipe.recipe)
    assert seen == {0: 1}
