"""All rounds of a generation in one row, compared with the losses of each canvas in a plain loop."""

import itertools
import math

import numpy as np
import pytest
from insertion_models import CACHED_SPECIALS, END, A, B, C, blanks_of, cached_model, engine_of, inputs_of, scores_of

from kermit.canvas import CanvasBatch, Factorization
from kermit.canvas.arrays import Integers
from kermit.decoding.asking import ask_canvases
from kermit.decoding.choosing import log_locations
from kermit.decoding.likelihood import left_to_right_log_likelihood, left_to_right_log_probs
from kermit.objectives.generations import GenerationObjective, Removal
from kermit.objectives.orders import BalancedTreePrior, LeftToRightPrior, OrderPrior, UniformPrior
from kermit.objectives.training_canvases import KeptLayout, Texts

ALL_TEXTS = [text for length in range(6) for text in itertools.product((A, B, C), repeat=length)]
PRIORS = [UniformPrior(), BalancedTreePrior(0.5)]
EMPTY_WEIGHT, LOCATION_WEIGHT = 0.4, 0.3


def texts_of(way: Factorization) -> Texts:
    """Every text of up to five tokens over a vocabulary of three, each paired with another text."""
    pairs = [(text, text[1:4][::-1] + (A,) * (len(text) % 2)) for text in ALL_TEXTS]
    if Factorization.Y in (way,) or way in (Factorization.Y_GIVEN_X,):
        pairs = [(y, x) for x, y in pairs]
    return Texts.of(CanvasBatch.from_segments(CACHED_SPECIALS, pairs), [way] * len(pairs))


def loss_by_canvas(model, prior: OrderPrior, texts: Texts, rounds: Integers) -> list[float]:
    """The losses of each text, one canvas after the other, by the definition."""
    out = [0.0] * len(rounds)
    for number in range(int(rounds.max()) + 1):
        kept = texts.present & (rounds <= number)
        layout = KeptLayout.of(texts, kept)
        scores = scores_of(model, layout.canvases)
        content, (location, _) = (
            scores.content,
            log_locations(scores.rows.numpy(), scores.location.numpy(), None, len(rounds)),
        )
        within, order = prior.slot_weights(kept, texts.present), prior.weights(kept, texts.present)
        given, marked = layout.canvases.given, layout.canvases.marked
        for index, (row, slot) in enumerate(zip(scores.rows.tolist(), scores.slots.tolist(), strict=True)):
            if number > int(rounds[row].max()):
                continue
            places = [t for t in layout.missing[row].nonzero()[0].tolist() if int(layout.slot[row, t]) == slot]
            out[row] -= LOCATION_WEIGHT * float(order[row, places].sum()) * float(location[index])
            if number and given[row, slot] and given[row, slot - 1] and not marked[row, slot]:
                continue  # slots between two given tokens never change, so only the first round counts
            for place in places:
                token = int(texts.batch.token_ids[row, place])
                out[row] -= float(within[row, place]) * float(content[index, token])
            if not places:
                out[row] -= EMPTY_WEIGHT * float(content[index, END])
    return out


@pytest.mark.parametrize("infilling", [0.0, 1.0], ids=["whole", "parts"])
@pytest.mark.parametrize("way", list(Factorization), ids=str)
@pytest.mark.parametrize("prior", PRIORS, ids=["uniform", "tree"])
def test_the_loss_of_a_row_is_that_of_all_its_canvases(prior, way, infilling) -> None:
    model = cached_model()
    objective = GenerationObjective(
        prior,
        location_weight=LOCATION_WEIGHT,
        empty_slot_weight=EMPTY_WEIGHT,
        infilling=infilling,
        unmarked=0.3 if infilling else 0.0,
    )
    start = texts_of(way)
    rounds_only = np.zeros(len(start.batch), dtype=bool)
    texts, rounds = objective.draw(start, rounds_only, np.random.default_rng(5))
    expected = loss_by_canvas(model, prior, texts, rounds)
    targets = objective.build(texts, rounds, rounds_only, **blanks_of(model))
    found = float(model(**inputs_of(targets), num_items_in_batch=1).loss)
    assert found == pytest.approx(sum(expected), rel=1e-5)
    # and text by text, because a sum could hide differences
    for row in range(0, len(expected), 37):
        one = np.array([row])
        alone = objective.build(texts.select(one), rounds[one], rounds_only[one], **blanks_of(model))
        loss = float(model(**inputs_of(alone), num_items_in_batch=1).loss)
        assert loss == pytest.approx(expected[row], abs=1e-5 * max(1.0, expected[row]))


def test_every_token_is_a_target_once_and_every_end_in_every_later_round() -> None:
    texts = texts_of(Factorization.Y_GIVEN_X)
    rounds_only = np.zeros(len(texts.batch), dtype=bool)
    objective = GenerationObjective(BalancedTreePrior(0.3), location_weight=0, empty_slot_weight=0.5)
    drawn, rounds = objective.draw(texts, rounds_only, np.random.default_rng(0))
    targets = objective.build(drawn, rounds, rounds_only, **blanks_of(cached_model()))
    unfinished = targets.slot_weights == 1.0
    assert int(unfinished.sum()) == int(texts.lengths.sum())  # each insertion belongs to one unfinished slot
    weights = np.bincount(targets.target_slots, targets.target_weights)
    assert np.allclose(weights, 1, atol=1e-5)
    assert len(targets.location_weights) == 0


def test_infilling_gives_part_of_the_text_and_marks_the_blanks() -> None:
    texts = Texts.of(
        CanvasBatch.from_segments(CACHED_SPECIALS, [((A, B, C) * 8, (C, B, A) * 8)] * 200), [Factorization.JOINT] * 200
    )
    rounds_only = np.zeros(200, dtype=bool)
    objective = GenerationObjective(UniformPrior(), infilling=0.5)
    drawn, _ = objective.draw(texts, rounds_only, np.random.default_rng(1))
    partly = drawn.generated.sum(1) < texts.generated.sum(1)
    assert 70 < int(partly.sum()) < 130
    assert not (drawn.marks & ~drawn.given).any()
    missing_before = np.pad(drawn.generated[:, :-1], ((0, 0), (1, 0))) & drawn.given
    assert (drawn.marks | ~missing_before).all()  # no span is missing without a marker
    assert (drawn.marks & ~missing_before).any()  # and some markers are where nothing is missing
    lengths = {
        len(list(run)) for row in drawn.generated[partly].tolist() for kind, run in itertools.groupby(row) if kind
    }
    assert {1, 2, 3, 8} <= lengths


def test_infilling_can_differ_by_text() -> None:
    texts = Texts.of(CanvasBatch.from_segments(CACHED_SPECIALS, [((A, B, C) * 8,)] * 90), [Factorization.JOINT] * 90)
    objective = GenerationObjective(UniformPrior(), infilling=0.5)
    shares = np.repeat([0.0, 0.5, 1.0], 30)
    drawn, _ = objective.draw(texts, np.zeros(90, dtype=bool), np.random.default_rng(1), infilling=shares)
    partly = (drawn.generated.sum(1) < texts.generated.sum(1)).reshape(3, 30).sum(1)
    assert partly[0] == 0
    assert 5 < partly[1] < 25
    assert partly[2] > 25  # one span may be the whole text


def test_the_share_of_missing_tokens_is_between_the_minimum_and_the_maximum() -> None:
    texts = Texts.of(CanvasBatch.from_segments(CACHED_SPECIALS, [((A, B, C) * 60,)] * 300), [Factorization.JOINT] * 300)
    objective = GenerationObjective(UniformPrior(), infilling=1.0, missing=(0.3, 0.3))
    drawn, _ = objective.draw(texts, np.zeros(300, dtype=bool), np.random.default_rng(1))
    shares = drawn.generated.sum(1) / 180
    assert float(((shares > 0.15) & (shares < 0.45)).mean()) > 0.55  # the others miss one span of any length
    assert abs(float(np.median(shares)) - 0.3) < 0.06


def removed_in(way, ids, count, missing, **settings):
    """Draw what infilling removes from copies of a text in one way; (count, tokens) bool, and the text's tokens."""
    texts = Texts.of(CanvasBatch.from_segments(CACHED_SPECIALS, [(ids,)] * count), [Factorization.JOINT] * count)
    objective = GenerationObjective(UniformPrior(), infilling=1.0, removed={way: 1.0}, missing=missing, **settings)
    drawn, _ = objective.draw(texts, np.zeros(count, dtype=bool), np.random.default_rng(1))
    return drawn.generated, texts.batch.token_ids


def runs_of(row):
    return [len(list(run)) for kind, run in itertools.groupby(row.tolist()) if kind]


def test_what_infilling_removes_can_be_chosen() -> None:
    ids = (A, B, C) * 40
    tokens, _ = removed_in(Removal.TOKENS, ids, 100, (0.2, 0.2))
    spans, _ = removed_in(Removal.SPANS, ids, 100, (0.2, 0.2))
    one_span, _ = removed_in(Removal.ONE_SPAN, ids, 100, (0.2, 0.2))
    assert abs(tokens.mean() * tokens.shape[1] / 120 - 0.2) < 0.02
    assert np.mean([length for row in tokens for length in runs_of(row)]) < 1.5
    assert np.mean([length for row in spans for length in runs_of(row)]) > 2.5
    assert max(len(runs_of(row)) for row in one_span) == 1
    assert one_span.sum(1).max() > 60


def test_infilling_removes_what_occurred_earlier_and_no_common_tokens() -> None:
    first = tuple(range(A, A + 30))
    second = tuple(itertools.chain.from_iterable(zip(range(A + 40, A + 70), first, strict=True)))
    generated, token_ids = removed_in(Removal.REPEATED, first + second, 200, (0.1, 0.1), common_ids=A + 10)
    at = generated.any(0).nonzero()[0]
    assert set(token_ids[0, at].tolist()) == set(first[10:])
    assert at.min() > 30  # the first occurrences are kept
    assert abs(generated.sum(1).mean() / 90 - 0.1) < 0.02


@pytest.mark.parametrize("way", list(Factorization), ids=str)
def test_the_left_to_right_loss_is_the_product_of_the_slot_probabilities(way) -> None:
    """One pass, compared with one canvas after the other as in decoding."""
    model, texts = cached_model(), texts_of(way).select(np.arange(0, len(ALL_TEXTS), 23))
    found = left_to_right_log_probs(engine_of(model), texts).tolist()
    for row, expected in enumerate(found):
        one = texts.select(np.array([row]))
        total, kept = 0.0, one.given | (one.present & ~one.generated)
        places = one.generated[0].nonzero()[0].tolist()
        ends = [t for t in range(kept.shape[1]) if kept[0, t] and one.open_slots[0, t]]
        for place, token in [(end, END) for end in ends] + [(t, int(one.batch.token_ids[0, t])) for t in places]:
            # everything before this place is present, and nothing after it in its span
            before = one.present & (~one.generated | (np.arange(kept.shape[1]) < place))
            layout = KeptLayout.of(one, before)
            slot = int(layout.slot[0, place]) if token != END else int(before[0, :place].sum())
            scores = scores_of(model, layout.canvases, left_to_right=True)
            [index] = (scores.slots == slot).nonzero()[0].tolist()
            total += float(scores.content[index].log_softmax(0)[token])
        assert total == pytest.approx(expected, abs=1e-4)


def test_left_to_right_the_probabilities_of_all_texts_sum_to_one() -> None:
    model = cached_model(seed=3)
    source = (B, A)
    texts = [text for text in ALL_TEXTS if len(text) <= 4]
    log_probs = left_to_right_log_likelihood(
        engine_of(model), [(source, text) for text in texts], Factorization.Y_GIVEN_X
    )
    ended = sum(math.exp(value) for value in log_probs)
    # texts that continue after four tokens: the probability of the prefix times that of continuing
    going_on = 0.0
    for text, log_prob in zip(texts, log_probs, strict=True):
        if len(text) == 4:
            complete = Texts.of(CanvasBatch.from_segments(CACHED_SPECIALS, [(source, text)]), [Factorization.Y_GIVEN_X])
            scores = scores_of(model, KeptLayout.of(complete, complete.present).canvases, left_to_right=True)
            end = float(scores.content[-1].log_softmax(0)[END])
            going_on += math.exp(log_prob - end) * (1 - math.exp(end))
    assert ended + going_on == pytest.approx(1.0, abs=1e-5)
    assert 0.01 < ended < 0.99


def test_left_to_right_rows_weight_all_slots_equally() -> None:
    texts = texts_of(Factorization.X)
    ordered = np.ones(len(texts.batch), dtype=bool)
    objective = GenerationObjective(LeftToRightPrior(), empty_slot_weight=0.1, location_weight=1.0)
    targets = objective.build(texts, np.zeros_like(texts.batch.token_ids), ordered, **blanks_of(cached_model()))
    assert (targets.slot_weights == 1).all()
    assert len(targets.slot_weights) == int(texts.lengths.sum()) + len(texts.batch)
    assert not targets.location_weights.any()


@pytest.mark.parametrize("infilling", [0.0, 1.0], ids=["whole", "parts"])
def test_completions_are_the_slots_that_lack_one_token(infilling) -> None:
    texts = texts_of(Factorization.JOINT)
    ordered = np.arange(len(texts.batch)) % 5 == 0
    objective = GenerationObjective(BalancedTreePrior(0.5), infilling=infilling, completion_weight=0.25)
    drawn, rounds = objective.draw(texts, ordered, np.random.default_rng(0))
    targets = objective.build(drawn, rounds, ordered, **blanks_of(cached_model()))
    missing = [set() for _ in targets.asked]
    for slot, token in zip(targets.target_slots.tolist(), targets.target_tokens.tolist(), strict=True):
        missing[slot].add(token)
    slots = np.bincount(targets.target_slots, minlength=len(targets.asked))
    unfinished = np.array([END not in tokens for tokens in missing])
    in_rounds = ~ordered[targets.layout.slots.rows[targets.asked]]
    assert np.array_equal(targets.completion_weights > 0, unfinished & in_rounds)
    assert set(targets.completion_weights.tolist()) == {0.0, 0.25}
    learned = targets.completion_weights > 0
    assert np.array_equal(targets.completions[learned] == 1, slots[learned] == 1)
    assert 0 < targets.completions[learned].mean() < 1


def test_the_loss_of_completions_is_the_cross_entropy_of_one_missing_token() -> None:
    model, texts = cached_model(predicts_completion=True), texts_of(Factorization.Y_GIVEN_X)
    in_rounds = np.zeros(len(texts.batch), dtype=bool)
    objective = GenerationObjective(BalancedTreePrior(0.5), completion_weight=0.5)
    drawn, rounds = objective.draw(texts, in_rounds, np.random.default_rng(0))
    targets = objective.build(drawn, rounds, in_rounds, **blanks_of(model))
    expected = 0.0
    for number in range(int(rounds.max()) + 1):
        layout = KeptLayout.of(drawn, drawn.present & (rounds <= number))
        found = ask_canvases(engine_of(model), layout.canvases)
        assert found.answer.completion is not None
        for row, slot, log_prob in zip(found.rows, found.slots, found.answer.completion, strict=True):
            lacking = int(layout.missing_from_slot[row, slot])
            if lacking and number <= int(rounds[row].max()):
                expected -= 0.5 * (log_prob if lacking == 1 else math.log1p(-math.exp(log_prob)))
    output = model(**inputs_of(targets), num_items_in_batch=1)
    assert float(output.completion_loss) == pytest.approx(expected, rel=1e-4)
    parts = output.content_loss + output.location_loss + output.completion_loss
    assert float(output.loss.detach()) == pytest.approx(float(parts), rel=1e-5)
    without = cached_model()(**inputs_of(targets), num_items_in_batch=1)
    assert float(without.completion_loss) == 0
