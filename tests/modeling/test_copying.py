"""Slots that copy: a token counts as a word and as a copy of each occurrence, alone and in a batch."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub.errors import StrictDataclassFieldValidationError
from insertion_models import (
    CLS,
    END,
    PAD,
    SEP,
    SPECIALS,
    A,
    B,
    C,
    SlotScores,
    canvas_of,
    engine_of,
    inputs_of,
    random_model,
    score,
    scores_of,
)
from torch import Tensor, nn

from kermit.canvas import Canvas, CanvasBatch, Factorization, Segment
from kermit.decoding import DecodingSettings, decode
from kermit.modeling import KermitConfig, KermitForInsertion
from kermit.modeling.copying import NEVER, add_copies, copy_masses
from kermit.modeling.slot_loss import slot_loss
from kermit.objectives.objective import KeptSampling, LowerBoundObjective, Objective, SlotObjective
from kermit.objectives.orders import UniformPrior
from kermit.objectives.training_canvases import Texts


def model_of(**settings: object) -> KermitForInsertion:
    return random_model(copy_width=8, **settings).eval()


def test_a_token_has_probability_as_a_word_and_as_a_copy_of_each_occurrence() -> None:
    logits = torch.tensor([[0.5, -1.0, 2.0, -math.inf]])
    scores = torch.tensor([[1.0, 3.0, NEVER, 0.25]])
    found = add_copies(logits, scores, torch.tensor([[1, 1, 3, 0]]))
    expected = [math.exp(0.5) + math.exp(0.25), math.exp(-1) + math.exp(1) + math.exp(3), math.exp(2), 0.0]
    assert found.exp()[0].tolist() == pytest.approx(expected)
    nothing = torch.full((1, 4), NEVER)
    assert torch.equal(add_copies(logits, nothing, torch.tensor([[1, 1, 3, 0]])), logits)


@pytest.mark.parametrize("chunk", [1, 30, 10**6])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_and_its_gradients_are_those_of_the_whole_softmax(chunk: int, smoothing: float) -> None:
    generator = torch.Generator().manual_seed(0)
    slots, width, vocabulary, length, targets = 7, 5, 11, 6, 12

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.double).requires_grad_()

    leaves = vectors, embedding, bias, raw = (
        normal(slots, width),
        normal(vocabulary, width),
        normal(vocabulary),
        normal(slots, length),
    )
    token_ids = torch.randint(0, vocabulary, (slots, length), generator=generator)
    target_slots = torch.randint(0, slots, (targets,), generator=generator).sort().values
    target_tokens = torch.randint(0, vocabulary, (targets,), generator=generator)
    target_weights = torch.rand(targets, generator=generator, dtype=torch.double)
    slot_weights = torch.rand(slots, generator=generator, dtype=torch.double)
    hidden = torch.zeros(slots, length, dtype=torch.bool)
    hidden[2], hidden[4, :3] = True, True  # a canvas without anything to copy, and one of which a half is
    scores = raw.masked_fill(hidden, NEVER)
    by_slot, by_target = copy_masses(scores, token_ids, target_slots, target_tokens)
    asked = (slot_weights, target_slots, target_tokens, target_weights)
    copies = {"slot_copies": by_slot, "target_copies": by_target}
    loss = slot_loss(vectors, embedding, bias, *asked, **copies, smoothing=smoothing, chunk_elements=chunk)
    words = vectors @ embedding.T + bias
    whole = add_copies(words, scores, token_ids)
    normaliser = whole.logsumexp(1)
    mass = torch.zeros(slots, dtype=torch.double).index_add(0, target_slots, target_weights)
    pulled = (slot_weights[target_slots] * target_weights * whole[target_slots, target_tokens]).sum()
    spread = (slot_weights * mass * words.mean(1)).sum()  # smoothing spreads only over the vocabulary
    dense = (slot_weights * mass * normaliser).sum() - (1 - smoothing) * pulled - smoothing * spread
    assert loss.item() == pytest.approx(dense.item())
    found, expected = (torch.autograd.grad(3 * value, leaves, retain_graph=True) for value in (loss, dense))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_frames_padding_and_end_of_slot_are_never_copied() -> None:
    scores = score(model_of(), canvas_of(A, B, C), canvas_of(A))
    assert bool(scores.content[:, [PAD, CLS, SEP]].isneginf().all())
    keen = model_of()
    assert keen.head.copying is not None
    nn.init.constant_(keen.head.copying.bias, 50.0)  # so that copies have nearly all of the probability
    content = score(keen, canvas_of(A, A, A)).content.softmax(1)
    assert bool((content[:, A] > 0.999).all())
    states = torch.zeros(1, 4, 16)
    copies = keen._copies(states, torch.tensor([[CLS, END, B, SEP]]), torch.tensor([2]))
    assert copies is not None
    assert (copies[0][0] > NEVER).tolist() == [False, False, True, False]


def test_a_canvas_has_the_same_scores_alone_and_in_a_batch() -> None:
    model = model_of()
    canvases = [
        canvas_of(A, B, C),
        Canvas(SPECIALS, ((A,),)),  # no open slot
        Canvas.from_ids(SPECIALS, (), (), generate=Factorization.JOINT),  # nothing to copy
        Canvas.from_ids(SPECIALS, (C,), (A, A), generate=Factorization.JOINT),
    ]
    together = score(model, *canvases)
    for number in (0, 2, 3):
        alone = score(model, canvases[number])
        torch.testing.assert_close(together.content[together.rows == number], alone.content)
    assert score(model, canvases[1]).content.shape[0] == 0


@pytest.mark.parametrize("objective", [SlotObjective(UniformPrior()), LowerBoundObjective(UniformPrior())])
def test_the_loss_is_that_of_the_scores(objective: Objective) -> None:
    """Training computes no score of the whole vocabulary; what it minimises is what decoding sees."""
    model = model_of()
    batch = CanvasBatch.from_segments(SPECIALS, [((A, B), (C, A, B)), ((B,), (A, B, C))])
    texts = Texts.of(batch, [Factorization.JOINT, Factorization.Y_GIVEN_X])
    for seed in range(6):
        training = objective.sample(texts, np.random.default_rng(seed))
        inputs = inputs_of(training)
        with torch.no_grad():
            found = float(model(**inputs).content_loss)
            scores = scores_of(model, training.canvases)
        place = {slot: number for number, slot in enumerate(_flat(scores, training.canvases))}
        log_probs = scores.content.log_softmax(1)
        expected = 0.0
        targets = (inputs[name].tolist() for name in ("target_slots", "target_tokens", "target_weights"))
        for slot, token, weight in zip(*targets, strict=True):
            at = place[int(inputs["right"][inputs["asked"][slot]])]
            expected -= float(inputs["slot_weights"][slot]) * weight * float(log_probs[at, token])
        assert found == pytest.approx(expected / len(batch), rel=1e-4)


def _flat(scores: SlotScores, canvases: CanvasBatch) -> list[int]:
    return (scores.rows * canvases.token_ids.shape[1] + scores.slots).tolist()


def test_half_precision_gives_the_same_loss_and_gradients_except_for_rounding() -> None:
    model = model_of(slot_vector="both").train()
    batch = CanvasBatch.from_segments(SPECIALS, [((A, B), (C, A, B)), ((B,), (A, B, C))])
    texts = Texts.of(batch, [Factorization.JOINT, Factorization.Y_GIVEN_X])
    inputs = inputs_of(SlotObjective(UniformPrior()).sample(texts, np.random.default_rng(1)))
    assert model.head.copying is not None
    weight = model.head.copying.around.weight
    losses, gradients = [], []
    for half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = model(**inputs).loss
        losses.append(loss.item())
        gradients.append(torch.autograd.grad(1000 * loss, weight)[0])
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert float((gradients[1] - gradients[0]).norm() / gradients[0].norm()) < 0.1


def test_a_model_without_copies_can_be_given_them(tmp_path: Path) -> None:
    random_model().save_pretrained(tmp_path)
    model = KermitForInsertion.from_pretrained(tmp_path, copy_width=8)
    assert model.head.copying.bias.item() == 0
    assert bool(score(model.eval(), canvas_of(A, B)).content[:, A].isfinite().all())


def test_a_copying_model_learns_and_can_be_saved(tmp_path: Path) -> None:
    model = model_of().train()
    batch = CanvasBatch.from_segments(SPECIALS, [((A, B), (C, A)), ((), ())])
    texts = Texts.of(batch, [Factorization.JOINT, Factorization.JOINT])
    training = SlotObjective(UniformPrior()).sample(texts, np.random.default_rng(0))
    model(**inputs_of(training)).loss.backward()
    assert all(bool(weight.grad.isfinite().all()) for weight in model.parameters() if weight.grad is not None)
    assert model.head.copying is not None
    assert all(weight.grad is not None for weight in model.head.copying.parameters())
    model.eval().save_pretrained(tmp_path)
    again = KermitForInsertion.from_pretrained(tmp_path)
    torch.testing.assert_close(score(again, canvas_of(A, B)).content, score(model, canvas_of(A, B)).content)


@pytest.mark.slow
def test_tokens_never_seen_in_training_are_copied() -> None:
    known, vocabulary = 80, 100
    model = random_model(vocab_size=vocabulary, copy_width=16, slot_vector="both").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    generator = np.random.default_rng(0)
    objective = SlotObjective(UniformPrior(), kept=KeptSampling.BERNOULLI, drop_probability=0.3)
    for _ in range(300):
        drawn = generator.integers(A, known, (64, 3)).tolist()
        batch = CanvasBatch.from_segments(SPECIALS, [(tuple(text), tuple(text)) for text in drawn])
        texts = Texts.of(batch, [Factorization.Y_GIVEN_X] * len(drawn))
        loss = model(**inputs_of(objective.sample(texts, generator))).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    asked = generator.integers(known, vocabulary, (50, 3)).tolist()
    canvases = [Canvas.from_fragments(SPECIALS, [text], [text[:1], text[2:]]) for text in asked]
    found = decode(engine_of(model), canvases, DecodingSettings(max_tokens=5, max_rounds=1))
    right = sum(list(one.canvas.segments[Segment.Y]) == text for one, text in zip(found, asked, strict=True))
    assert right >= 25  # of a vocabulary, none


def test_impossible_widths_are_rejected() -> None:
    with pytest.raises(ValueError, match="copy_width must be 0 or more"):
        KermitConfig(copy_width=-1)
    for width in (1.5, True):
        with pytest.raises(StrictDataclassFieldValidationError, match="'copy_width' expected int"):
            KermitConfig(copy_width=width)
