"""Slots that look at the text: at all of their own canvas and nothing else, alone as in a batch, saved as trained."""

from pathlib import Path

import pytest
import torch
from insertion_models import SPECIALS, A, B, C, canvas_of, random_model, score

from kermit.canvas import Canvas, Factorization
from kermit.canvas_batch import CanvasBatch
from kermit.errors import ModelError
from kermit.modeling import KermitConfig, KermitForInsertion
from kermit.objective import SlotObjective
from kermit.orders import UniformPrior
from kermit.texts import Texts


def model_of(heads: int = 2, **settings: object) -> KermitForInsertion:
    return random_model(slot_attention_heads=heads, **settings).eval()


def test_a_slot_looks_at_every_token_of_its_canvas_and_at_no_padding() -> None:
    model = model_of(slot_vector="both")
    states = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0), requires_grad=True)
    valid = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    model.head.vectors(states, torch.tensor([5 + 3]), valid).square().sum().backward()  # slot 3 of the second canvas
    assert states.grad is not None
    read = {tuple(place) for place in states.grad.abs().sum(2).nonzero().tolist()}
    assert read == {(1, place) for place in range(4)}


def test_it_makes_a_difference_and_none_where_it_is_not_asked_for() -> None:
    plain, looking = random_model(), model_of()
    assert plain.head.attention is None
    looking.load_state_dict(plain.state_dict(), strict=False)
    assert not torch.allclose(score(plain, canvas_of(A, B)).content, score(looking, canvas_of(A, B)).content)


def test_a_canvas_scores_alone_as_beside_others() -> None:
    model = model_of()
    canvases = [
        canvas_of(A, B, C),
        Canvas(SPECIALS, ((A,),)),  # no open slot
        Canvas.from_ids(SPECIALS, (C,), (A, A), generate=Factorization.JOINT),
    ]
    together = score(model, *canvases)
    for number in (0, 2):
        alone = score(model, canvases[number])
        torch.testing.assert_close(together.content[together.rows == number], alone.content)
        torch.testing.assert_close(together.location[together.rows == number], alone.location)


def test_canvases_without_open_slots_are_no_matter() -> None:
    assert score(model_of(), Canvas(SPECIALS, ((A,),))).content.shape[0] == 0


def test_it_learns_and_is_saved(tmp_path: Path) -> None:
    model = model_of().train()
    batch = CanvasBatch.from_segments(SPECIALS, [((A, B), (C, A)), ((B,), (A, B, C))])
    texts = Texts.of(batch, [Factorization.JOINT, Factorization.Y_GIVEN_X])
    training = SlotObjective(UniformPrior()).sample(texts, torch.Generator().manual_seed(0))
    model(**training.model_inputs()).loss.backward()
    assert model.head.attention is not None
    assert all(weight.grad is not None for weight in model.head.attention.parameters())
    model.eval().save_pretrained(tmp_path)
    again = KermitForInsertion.from_pretrained(tmp_path)
    torch.testing.assert_close(score(again, canvas_of(A, B)).content, score(model, canvas_of(A, B)).content)


def test_heads_that_cannot_be_are_refused() -> None:
    with pytest.raises(ModelError, match="slot_attention_heads: a width of 16 cannot be divided among 3"):
        model_of(3)
    for heads in (-1, 1.5, True):
        with pytest.raises(ValueError, match="slot_attention_heads must be 0 or more"):
            KermitConfig(slot_attention_heads=heads)
