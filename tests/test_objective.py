"""The vectorised targets, compared with a plain reference that walks over the tokens."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from insertion_models import END, SPECIALS, canvas_at

from kermit.canvas import Canvas, CanvasBatch, Factorization, Segment, Termination
from kermit.canvas.arrays import Array
from kermit.objectives.objective import KeptSampling, LowerBoundObjective, SlotObjective, SlotShare
from kermit.objectives.orders import BalancedTreePrior, LeftToRightPrior, OrderPrior, UniformPrior
from kermit.objectives.training_canvases import Texts, TrainingCanvases

Text = tuple[tuple[int, ...], ...]
X, Y = Segment.X, Segment.Y


class RightmostPrior(OrderPrior):
    """A custom prior: the rightmost missing token."""

    def weights(self, kept: Array, valid: Array) -> Array:
        missing = valid & ~kept
        return (missing & (missing[:, ::-1].cumsum(1)[:, ::-1] == 1)).astype(float)


@dataclass(frozen=True)
class HighestFirstPrior(OrderPrior):
    """A prior that depends on the tokens: those with the highest ids first."""

    token_ids: Array | None = None

    def for_texts(self, token_ids: Array) -> OrderPrior:
        return HighestFirstPrior(token_ids)

    def weights(self, kept: Array, valid: Array) -> Array:
        assert self.token_ids is not None
        ids = np.where(kept | ~valid, -1, self.token_ids)
        best = (ids == ids.max(1, keepdims=True)) & (ids >= 0)
        return best / np.maximum(best.sum(1, keepdims=True), 1)


PRIORS = [UniformPrior(), BalancedTreePrior(0.7), LeftToRightPrior(), RightmostPrior()]


@dataclass
class Reference:
    """One training canvas, built the slow way."""

    canvas: Canvas
    spans: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # slot: (place in the text, token)


def reference(text: Text, way: Factorization, kept: Sequence[bool]) -> Reference:
    """Walk over the text as it is laid out, [CLS] and [SEP] included, and note what is missing before each kept token.

    `kept` marks every place of the complete layout that is kept; only generated content is ever missing.
    """
    segments: list[list[int]] = [[] for _ in text]
    spans: dict[int, list[tuple[int, int]]] = {}
    open_slots: set[int] = set()
    place, slot = 1, 1
    for number, tokens in enumerate(text):
        waiting: list[tuple[int, int]] = []
        for token in (*tokens, SPECIALS.sep_id):
            is_content = token != SPECIALS.sep_id
            if is_content and Segment(number) in way.absent:
                place += 1
                continue
            if is_content and Segment(number) in way.generated and not kept[place]:
                waiting.append((place, token))
            else:
                if Segment(number) in way.generated:
                    open_slots.add(slot)
                    spans[slot] = waiting
                waiting = []
                slot += 1
                if is_content:
                    segments[number].append(token)
            place += 1
    return Reference(Canvas(SPECIALS, tuple(map(tuple, segments)), frozenset(open_slots)), spans)


def complete(texts: Sequence[Text], ways: Sequence[Factorization], *, pad_left: bool = False, extra: int = 0) -> Texts:
    batch = CanvasBatch.from_segments(SPECIALS, texts)
    batch = CanvasBatch(*(pad(plane, extra) for plane in planes(batch)), SPECIALS)
    if pad_left:
        shifts = (~batch.valid).sum(1).tolist()
        rolled = (np.stack([np.roll(row, by) for row, by in zip(p, shifts, strict=True)]) for p in planes(batch))
        batch = CanvasBatch(*rolled, SPECIALS)
    return Texts.of(batch, ways)


def planes(batch: CanvasBatch) -> tuple[Array, Array, Array, Array]:
    return batch.token_ids, batch.segment_ids, batch.valid, batch.open_slots


def pad(plane: Array, extra: int) -> Array:
    return np.concatenate([plane, np.zeros((len(plane), extra), dtype=plane.dtype)], 1)


def targets(made: TrainingCanvases) -> dict[tuple[int, int], dict[int, float]]:
    """Target weights by token, for each (row, slot) that is scored; a token's weights are added up."""
    length = made.canvases.token_ids.shape[1]
    found: dict[tuple[int, int], dict[int, float]] = {
        (place // length, place % length): defaultdict(float) for place in made.slots.tolist()
    }
    keys = list(found)
    columns = (made.target_slots, made.target_tokens, made.target_weights)
    for number, token, weight in zip(*(column.tolist() for column in columns), strict=True):
        found[keys[number]][token] += weight
    return found


def slot_weights(made: TrainingCanvases) -> dict[tuple[int, int], float]:
    length = made.canvases.token_ids.shape[1]
    weights = zip(made.slots.tolist(), made.slot_weights.tolist(), strict=True)
    return {(place // length, place % length): weight for place, weight in weights}


def random_text(draw: random.Random) -> Text:
    sides = draw.choice([1, 2, 2])
    return tuple(tuple(draw.choices([4, 5, 6], k=draw.choice([0, 1, 1, 2, 3, 5, 8]))) for _ in range(sides))


def random_way(draw: random.Random, text: Text) -> Factorization:
    ways = list(Factorization) if len(text) == 2 else [Factorization.JOINT, Factorization.X, Factorization.X_GIVEN_Y]
    return draw.choice(ways)


def check_against_reference(seed: int) -> None:
    """Draw a batch of texts and kept sets, and compare the targets of the slot objective with the reference."""
    draw = random.Random(seed)
    work = [random_text(draw) for _ in range(8)]
    ways = [random_way(draw, text) for text in work]
    prior = draw.choice(PRIORS)
    termination = draw.choice(list(Termination))
    pad_left = draw.random() < 0.3
    texts = complete(work, ways, pad_left=pad_left, extra=draw.choice([0, 2]))
    objective = SlotObjective(prior, termination=termination, location_weight=0.5)
    chance = np.random.default_rng(seed).random(texts.present.shape) < draw.choice([0, 0.5, 1])
    kept = texts.present & (~texts.generated | chance)
    order, within = prior.weights(kept, texts.present), prior.slot_weights(kept, texts.present)
    made = objective.build(texts, kept)
    found, shares = targets(made), slot_weights(made)
    assert found.keys() == shares.keys()
    assert made.target_slots.tolist() == sorted(made.target_slots.tolist())
    rows_of_slots = defaultdict(set)
    for row, slot in found:
        rows_of_slots[row].add(slot)
    for row, (text, way) in enumerate(zip(work, ways, strict=True)):
        shift = int((~texts.batch.valid[row]).sum()) if pad_left else 0
        expected = reference(text, way, kept[row, shift:].tolist())
        assert canvas_at(made.canvases, row) == expected.canvas
        asked = {s for s, span in expected.spans.items() if span or termination is Termination.SLOT}
        assert rows_of_slots[row] == asked
        for slot in asked:
            assert shares[row, slot] == pytest.approx(1 / len(asked))
            wanted: dict[int, float] = defaultdict(float)
            for place, token in expected.spans[slot]:
                wanted[token] += float(within[row, place + shift])
            assert found[row, slot] == pytest.approx(wanted or {END: 1.0}, abs=1e-6)
            assert sum(found[row, slot].values()) == pytest.approx(1, abs=1e-5)
        for slot in range(made.canvases.token_ids.shape[1]):
            mass = sum(float(order[row, place + shift]) for place, _ in expected.spans.get(slot, []))
            assert float(made.location_weights[row, slot]) == pytest.approx(0.5 * mass, abs=1e-6)
        nothing_missing = not any(expected.spans.values())
        stops = termination is Termination.SEQUENCE and nothing_missing
        assert float(made.stop_weights[row]) == (0.5 if stops else 0)


@pytest.mark.parametrize("block", range(8))
def test_targets_equal_those_of_the_reference_on_a_thousand_random_texts(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):  # eight texts each
        check_against_reference(seed)


@settings(max_examples=100, deadline=None)
@given(st.integers(10_000, 10**9))
def test_targets_equal_those_of_the_reference_on_any_texts(seed: int) -> None:
    check_against_reference(seed)


def only(*segments: tuple[int, ...], way: Factorization = Factorization.JOINT) -> Texts:
    return complete([segments], [way])


def build(texts: Texts, kept: str, objective: SlotObjective) -> TrainingCanvases:
    """`K` kept, `.` missing, one character per token of the layout."""
    mask = np.array([[mark == "K" for mark in kept]])
    return objective.build(texts, mask)


def test_a_token_twice_in_a_span_gets_twice_the_weight() -> None:
    made = build(only((4, 5, 4, 6)), "K....K", SlotObjective(UniformPrior()))
    assert targets(made) == {(0, 1): {4: 0.5, 5: 0.25, 6: 0.25}}


def test_a_worked_example_of_the_slot_loss() -> None:
    # text a b c | b, kept a | nothing: canvas [CLS] a [SEP] [SEP]; slots 1 (empty), 2 (b c), 3 (b)
    made = build(only((4, 5, 6), (5,)), "KK..K.K", SlotObjective(UniformPrior()))
    assert made.canvases.token_ids.tolist() == [[1, 4, 2, 2]]
    assert made.canvases.open_slots.tolist() == [[False, True, True, True]]
    assert targets(made) == {(0, 1): {END: 1.0}, (0, 2): {5: 0.5, 6: 0.5}, (0, 3): {5: 1.0}}
    assert slot_weights(made) == {key: pytest.approx(1 / 3) for key in ((0, 1), (0, 2), (0, 3))}
    assert made.location_weights[0].tolist() == pytest.approx([0, 0, 2 / 3, 1 / 3])


def test_an_empty_text_asks_for_end_of_slot() -> None:
    made = build(only((), ()), "KKK", SlotObjective(UniformPrior()))
    assert targets(made) == {(0, 1): {END: 1.0}, (0, 2): {END: 1.0}}


def test_given_segments_are_never_changed_and_absent_ones_are_left_out() -> None:
    generator = np.random.default_rng(0)
    objective = SlotObjective(UniformPrior())
    for way, given_side in ((Factorization.Y_GIVEN_X, X), (Factorization.X_GIVEN_Y, Y)):
        texts = complete([((4, 5, 6), (6, 5))] * 50, [way] * 50)
        made = objective.sample(texts, generator)
        whole = ((4, 5, 6), (6, 5))[given_side]
        assert {canvas_at(made.canvases, row).segments[given_side] for row in range(50)} == {whole}
        for row in range(50):
            canvas = canvas_at(made.canvases, row)
            assert not canvas.open_slots & set(canvas.slots(given_side))
    for way, absent_side in ((Factorization.X, Y), (Factorization.Y, X)):
        made = objective.sample(complete([((4, 5, 6), (6, 5))] * 50, [way] * 50), generator)
        assert {canvas_at(made.canvases, row).segments[absent_side] for row in range(50)} == {()}


def counts_kept(objective: SlotObjective | LowerBoundObjective, number: int, length: int) -> Counter[int]:
    text = tuple(4 + place % 3 for place in range(length))
    texts = complete([(text, text)] * number, [Factorization.Y_GIVEN_X] * number)
    made = objective.sample(texts, np.random.default_rng(3))
    return Counter((made.canvases.valid.sum(1) - length - 3).tolist())


def test_with_share_text_all_slots_weigh_the_same_and_a_canvas_weighs_one_on_average() -> None:
    text = only((4, 5, 6, 4))
    objective = SlotObjective(UniformPrior(), share=SlotShare.TEXT)
    for kept in ("K....K", "KK..KK", "KKKKKK"):
        made = build(text, kept, objective)
        assert made.slot_weights.tolist() == pytest.approx([2 / (4 + 2)] * (kept.count("K") - 1))
    many = complete([((4, 5, 6, 4),)] * 4000, [Factorization.X] * 4000)
    made = objective.sample(many, np.random.default_rng(0))
    assert float(made.slot_weights.sum()) / 4000 == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    "objective",
    [
        SlotObjective(UniformPrior()),
        SlotObjective(BalancedTreePrior(1.0), kept=KeptSampling.PRIOR),
        SlotObjective(BalancedTreePrior(1.0), kept=KeptSampling.UNIFORM),
        LowerBoundObjective(UniformPrior()),
        LowerBoundObjective(BalancedTreePrior(0.5)),
    ],
    ids=["uniform", "tree-prior", "tree-uniform", "bound", "bound-tree"],
)
@pytest.mark.parametrize("length", [1, 4])
def test_the_number_of_kept_tokens_is_uniform_including_both_ends(
    objective: SlotObjective | LowerBoundObjective, length: int
) -> None:
    number = 5000
    found = counts_kept(objective, number, length)
    assert set(found) == set(range(length + 1))  # the empty canvas and the whole text occur
    p = 1 / (length + 1)
    assert all(count / number == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / number)) for count in found.values())


def test_bernoulli_dropping_drops_each_token_independently() -> None:
    number, length = 2000, 6
    found = counts_kept(
        SlotObjective(UniformPrior(), kept=KeptSampling.BERNOULLI, drop_probability=0.3), number, length
    )
    for kept in range(length + 1):
        p = math.comb(length, kept) * 0.7**kept * 0.3 ** (length - kept)
        assert found[kept] / number == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / number))


def test_kept_sets_by_rounds_are_those_of_parallel_decoding_in_proportion_to_the_tokens_to_insert() -> None:
    texts = Texts.of(
        CanvasBatch.from_segments(SPECIALS, [((11, 12, 13, 14, 15, 16, 17),)] * 8000), [Factorization.X] * 8000
    )
    objective = SlotObjective(BalancedTreePrior(0.01), kept=KeptSampling.ROUNDS)
    kept = objective.sample_kept(texts, np.random.default_rng(0))
    found = Counter("".join("K" if keep else "." for keep in row) for row in kept[:, 1:-1].tolist())
    expected = {".......": 0.75 / 7, "...K...": 0.75 * 2 / 7, ".K.K.K.": 0.75 * 4 / 7, "KKKKKKK": 0.25}
    assert {kept: count / 8000 for kept, count in found.items()} == pytest.approx(expected, abs=0.02)


def test_kept_sets_by_sides_are_rounds_drawn_separately_for_each_side() -> None:
    number, sides = 20_000, ((11, 12, 13, 14, 15, 16, 17), (4, 5, 6))
    objective = SlotObjective(BalancedTreePrior(0.01), kept=KeptSampling.SIDES)
    of_x = {".......": 0.75 / 7, "...K...": 0.75 * 2 / 7, ".K.K.K.": 0.75 * 4 / 7, "KKKKKKK": 0.25}
    of_y = {"...": 2 / 3 * 1 / 3, ".K.": 2 / 3 * 2 / 3, "KKK": 1 / 3}
    for way, told in ((Factorization.JOINT, None), (Factorization.Y_GIVEN_X, of_x), (Factorization.X_GIVEN_Y, of_y)):
        kept = objective.sample_kept(complete([sides] * number, [way] * number), np.random.default_rng(0))
        rows = ["".join("K" if keep else "." for keep in row) for row in kept.tolist()]
        found = Counter((row[1:8], row[9:12]) for row in rows)
        expected = {
            (x, y): (p if told is not of_x else 1.0) * (q if told is not of_y else 1.0)
            for x, p in of_x.items()
            for y, q in of_y.items()
            if (told is not of_x or x == "KKKKKKK") and (told is not of_y or y == "KKK")
        }
        assert {pair: count / number for pair, count in found.items()} == pytest.approx(expected, abs=0.015)


def test_a_mixture_draws_the_method_per_text_by_weight() -> None:
    texts = complete([((11, 12, 13, 14, 15, 16, 17),)] * 8000, [Factorization.X] * 8000)
    mix = {KeptSampling.ROUNDS: 3.0, KeptSampling.BERNOULLI: 1.0}
    objective = SlotObjective(BalancedTreePrior(0.01), kept=mix, drop_probability=1.0)
    kept = objective.sample_kept(texts, np.random.default_rng(0))
    found = Counter("".join("K" if keep else "." for keep in row) for row in kept[:, 1:-1].tolist())
    by_rounds = {".......": 0.75 / 7, "...K...": 0.75 * 2 / 7, ".K.K.K.": 0.75 * 4 / 7, "KKKKKKK": 0.25}
    expected = {row: 0.75 * share + 0.25 * (row == ".......") for row, share in by_rounds.items()}
    assert {kept: count / 8000 for kept, count in found.items()} == pytest.approx(expected, abs=0.02)


def test_repeated_runs_are_inserted_in_rounds() -> None:
    texts = complete([((4, 5, 6, 7, 8, 4, 5, 6, 7), (9,))] * 200, [Factorization.JOINT] * 200)
    objective = SlotObjective(BalancedTreePrior(0.01), kept=KeptSampling.REPEATED, drop_probability=1.0)
    kept = objective.sample_kept(texts, np.random.default_rng(0))
    content = ["".join("K" if k else "." for k in row) for row in kept[:, 6:10]]
    assert kept[:, :6].all()
    assert kept[:, 10:].all()
    # of four missing tokens a middle one comes first, then those of both sides; a complete text has no targets
    assert set(content) == {"....", ".K..", "..K.", "KK.K", "K.KK", ".KK.", "KKK.", ".KKK"} & set(content)
    assert {"....", "KKK."} <= set(content) or {"....", ".KKK"} <= set(content)
    rare = SlotObjective(BalancedTreePrior(0.01), kept=KeptSampling.REPEATED, drop_probability=1.0, common_ids=100)
    assert np.array_equal(rare.sample_kept(texts, np.random.default_rng(0)), texts.present)


@pytest.mark.parametrize("kept", [*KeptSampling, {KeptSampling.ROUNDS: 0.5, KeptSampling.UNIFORM: 0.5}], ids=str)
@pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: type(prior).__name__)
def test_the_same_generator_state_gives_the_same_canvases(
    kept: KeptSampling | dict[KeptSampling, float], prior: OrderPrior
) -> None:
    draw = random.Random(5)
    work = [random_text(draw) for _ in range(30)]
    texts = complete(work, [random_way(draw, text) for text in work])
    objective = SlotObjective(prior, kept=kept, empty_slot_rate=0.5)
    one, two, other = (objective.sample(texts, np.random.default_rng(seed)) for seed in (8, 8, 9))
    for name, tensor in one.model_inputs().items():
        assert np.array_equal(tensor, two.model_inputs()[name]), name
    assert one.canvases.token_ids.shape != other.canvases.token_ids.shape or not np.array_equal(
        one.canvases.token_ids, other.canvases.token_ids
    )


def test_leaving_out_empty_slots_does_not_change_the_expected_weights() -> None:
    # [CLS] a [SEP] with b missing at the end: slots 1 (empty) and 2, a half each
    texts = complete([((4, 5),)] * 4000, [Factorization.X] * 4000)
    kept = np.array([[True, True, False, True]]).repeat(4000, 0)
    prior = UniformPrior()
    whole = SlotObjective(prior)
    part = SlotObjective(prior, empty_slot_rate=0.25)
    all_slots, some = (
        objective.build(texts, kept, np.random.default_rng(1).random(kept.shape)) for objective in (whole, part)
    )
    assert set(slot_weights(all_slots).values()) == {0.5}
    weights = slot_weights(some)
    assert {weights[row, 2] for row in range(4000)} == {0.5}  # a slot that misses a token is always a target
    drawn = [weights[row, 1] for row in range(4000) if (row, 1) in weights]
    assert set(drawn) == {2.0}  # a half, weighted by 1 / 0.25
    assert sum(drawn) / 4000 == pytest.approx(0.5, abs=0.07)
    assert all(sum(target.values()) == pytest.approx(1) for target in targets(some).values())


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_empty_slot_weight_is_relative_to_an_unfinished_slot(rate: float) -> None:
    texts = complete([((4, 5),)] * 500, [Factorization.X] * 500)
    kept = np.array([[True, True, False, True]]).repeat(500, 0)
    objective = SlotObjective(UniformPrior(), empty_slot_rate=rate, empty_slot_weight=0.1)
    weights = slot_weights(objective.build(texts, kept, np.random.default_rng(1).random(kept.shape)))
    assert {weights[row, 2] for row in range(500)} == {0.5}
    empty = [weights[key] for key in weights if key[1] == 1]
    assert empty == [pytest.approx(0.5 * 0.1 / rate)] * len(empty)
    assert len(empty) == pytest.approx(500 * rate, abs=40)


def test_the_lower_bound_weights_the_next_insertions_by_the_prior_and_the_number_of_steps() -> None:
    # a b c, nothing kept but b, tree prior: both slots a half each, times 3 + 1 steps
    objective = LowerBoundObjective(BalancedTreePrior(1.0))
    made = objective.build(only((4, 5, 6), way=Factorization.X), np.array([[True, False, True, False, True]]))
    assert targets(made) == {(0, 1): {4: 1.0}, (0, 2): {6: 1.0}}
    assert slot_weights(made) == {(0, 1): 2.0, (0, 2): 2.0}
    assert made.location_weights.tolist() == [[0, 2, 2]]
    assert made.stop_weights.tolist() == [0]


def test_the_lower_bound_stops_when_nothing_is_missing() -> None:
    objective = LowerBoundObjective(UniformPrior())
    made = objective.build(only((4, 5), way=Factorization.X), np.array([[True] * 4]))
    assert made.slots.tolist() == []
    assert made.location_weights.tolist() == [[0, 0, 0, 0]]
    assert made.stop_weights.tolist() == [3]


def test_a_text_is_the_same_in_a_batch_and_alone() -> None:
    work = [((4, 5, 4),), ((6,), (5, 5)), ((), (4,))]
    ways = [Factorization.X, Factorization.JOINT, Factorization.Y]
    together = complete(work, ways)
    alone = complete(work[1:2], ways[1:2])
    mask = np.ones_like(together.present)
    mask[1, 3] = False
    objective = LowerBoundObjective(UniformPrior())
    many = objective.build(together, mask)
    one = objective.build(alone, mask[1:2, : alone.present.shape[1]])
    assert {slot: t for (row, slot), t in targets(many).items() if row == 1} == {
        s: t for (_, s), t in targets(one).items()
    }
    assert canvas_at(many.canvases, 1) == canvas_at(one.canvases, 0)


@pytest.mark.parametrize(
    "objective",
    [
        SlotObjective(HighestFirstPrior(), kept=KeptSampling.PRIOR),
        SlotObjective(HighestFirstPrior(), kept=KeptSampling.ROUNDS),
        SlotObjective(HighestFirstPrior(), kept={KeptSampling.PRIOR: 1, KeptSampling.ROUNDS: 1}),
        LowerBoundObjective(HighestFirstPrior()),
    ],
    ids=["prior", "rounds", "mix", "bound"],
)
def test_a_prior_may_depend_on_the_tokens(objective: SlotObjective | LowerBoundObjective) -> None:
    draw = random.Random(0)
    rows = [(tuple(draw.sample(range(4, 30), k=6)), ()) for _ in range(60)]  # no token twice: one is the highest
    made = objective.sample(complete(rows, [Factorization.X] * len(rows)), np.random.default_rng(0))
    asked = targets(made)
    lengths = Counter()
    for number, (text, _) in enumerate(rows):
        kept = canvas_at(made.canvases, number).segments[0]
        lengths[len(kept)] += 1
        if len(kept) == 1:
            assert kept == (max(text),)
        if missing := set(text) - set(kept):
            (weights,) = (found for (row, _), found in asked.items() if row == number and max(missing) in found)
            assert weights[max(missing)] == pytest.approx(1.0)
    assert lengths[0]
    assert lengths[1]


class LateSlotsObjective(SlotObjective):
    """Custom weights: the number of tokens missing from a slot, or a tenth for an empty one."""

    def shares(self, texts: Texts, asked: Array, missing: Array) -> Array:
        return np.maximum(missing, 0.1)


def test_an_objective_may_weight_slots_differently() -> None:
    # canvas [CLS] a [SEP] [SEP]; slots 1 (empty), 2 (b c), 3 (b)
    made = build(only((4, 5, 6), (5,)), "KK..K.K", LateSlotsObjective(UniformPrior()))
    assert slot_weights(made) == {(0, 1): pytest.approx(0.1), (0, 2): 2.0, (0, 3): 1.0}
    assert targets(made) == {(0, 1): {END: 1.0}, (0, 2): {5: 0.5, 6: 0.5}, (0, 3): {5: 1.0}}
