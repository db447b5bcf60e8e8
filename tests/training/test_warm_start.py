"""Warm starts with another tokenizer: the same text starts with the same embeddings."""

from pathlib import Path

import pytest
import torch
from insertion_models import trunk_config

from kermit import KermitConfig, KermitForInsertion
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.errors import RecipeError
from kermit.modeling import EncoderConfig
from kermit.modeling.insertion import special_token_settings
from kermit.text.tokenizer import encode_texts
from kermit.training.warm_start import pieces_of, take_over

TEXTS = ["a dog runs in the snow", "a cat sleeps on the sofa", "the dog and the cat play", "two cats sleep"] * 20
SMALL, LARGE = (train_tokenizer(TEXTS, size) for size in (268, 320))


def model_for(tokenizer, width=16):
    settings = special_token_settings(tokenizer)
    trunk = trunk_config("bert", vocab_size=len(tokenizer), width=width)
    return KermitForInsertion(KermitConfig(trunk_config=trunk, **settings)).eval()


@pytest.mark.parametrize(("old", "new"), [(SMALL, LARGE), (LARGE, SMALL), (LARGE, LARGE)])
def test_pieces_spell_the_token(old, new):
    for token_id, pieces in enumerate(pieces_of(old, new)):
        token = new.convert_ids_to_tokens(token_id)
        same = old.get_vocab().get(token)
        assert pieces == ([same] if same is not None else encode_texts(old, [new.decode([token_id])])[0])
        if token_id not in new.all_special_ids and len(token) > 1:
            assert old.decode(pieces) == new.decode([token_id])


def test_a_new_token_starts_as_the_mean_of_its_pieces():
    torch.manual_seed(0)
    old, new = model_for(SMALL), model_for(LARGE)
    torch.nn.init.normal_(old.head.bias)
    pieces = pieces_of(SMALL, LARGE)
    take_over(old, new, Path("trained"), pieces)
    assert any(len(ids) > 1 for ids in pieces)
    embeddings = [model.get_input_embeddings().weight for model in (old, new)]
    by_token = [embeddings, [old.head.bias, new.head.bias]]
    for token_id, ids in enumerate(pieces):
        for before, after in by_token:
            assert torch.allclose(after[token_id], before[ids].mean(0), atol=1e-6)
    others = [name for name, weight in new.state_dict().items() if weight.shape[:1] != (len(LARGE),)]
    assert others
    for name in others:
        assert torch.equal(new.state_dict()[name], old.state_dict()[name]), name


def test_a_deeper_model_starts_with_the_trained_layers_and_copies_of_the_last_ones():
    def encoder(layers, **settings):
        shape = {"vocab_size": 20, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
        trunk = EncoderConfig(**shape, num_hidden_layers=layers, **settings)
        return KermitForInsertion(
            KermitConfig(trunk_config=trunk, slot_vector="both", cached_context=True, blank_token_id=5)
        )

    trained, model = encoder(3), encoder(5, given_layers=3)
    take_over(trained, model, Path("trained"))
    for number, source in enumerate((0, 1, 2, 1, 2)):
        copied, original = model.trunk.layers[number].state_dict(), trained.trunk.layers[source].state_dict()
        assert all(torch.equal(copied[name], original[name]) for name in original)
    assert torch.equal(model.head.bias, trained.head.bias)
    with pytest.raises(RecipeError, match=r"layers\.\d"):
        take_over(encoder(5), encoder(3), Path("trained"))


def test_predictions_of_completion_can_be_added_and_left_out():
    def model(**settings):
        shape = {"vocab_size": 20, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
        trunk = EncoderConfig(**shape, num_hidden_layers=2)
        cached = {"slot_vector": "both", "cached_context": True, "blank_token_id": 5}
        return KermitForInsertion(KermitConfig(trunk_config=trunk, **cached, **settings))

    trained, new = model(), model(predicts_completion=True)
    before = new.head.completion.weight.clone()
    take_over(trained, new, Path("trained"))
    assert torch.equal(new.head.completion.weight, before)
    assert torch.equal(new.head.project.weight, trained.head.project.weight)
    take_over(new, again := model(predicts_completion=True), Path("trained"))
    assert torch.equal(again.head.completion.weight, before)
    take_over(new, without := model(), Path("trained"))
    assert without.head.completion is None
    assert torch.equal(without.head.project.weight, trained.head.project.weight)


def test_models_of_other_shapes_are_rejected():
    with pytest.raises(RecipeError, match=r"has the shape \[.*\], but"):
        take_over(model_for(SMALL, width=16), model_for(LARGE, width=32), Path("trained"), pieces_of(SMALL, LARGE))
