"""Compare the fast paths with enumerations of orders, kept sets and action sequences."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from insertion_models import (
    CLS,
    END,
    SPECIALS,
    A,
    B,
    C,
    Says,
    TableEngine,
    engine_of,
    inputs_of,
    random_model,
    scores_of,
)

from kermit.canvas import Canvas, CanvasBatch, Factorization, Insertion, Segment, Termination
from kermit.canvas.arrays import Array, Booleans
from kermit.decoding import DecodingSettings, Sampling, Strategy, decode
from kermit.decoding.choosing import log_locations
from kermit.decoding.likelihood import bounds, exact_log_likelihood
from kermit.engines import Engine
from kermit.errors import ModelError
from kermit.modeling import KermitForInsertion
from kermit.objectives.objective import LowerBoundObjective, SlotObjective
from kermit.objectives.orders import BalancedTreePrior, LeftToRightPrior, OrderPrior, UniformPrior
from kermit.objectives.training_canvases import Texts

TOKENS = (A, B, C)
TERMINATIONS = list(Termination)
Words = tuple[int, ...]


def model_of(termination: Termination, **settings: object) -> KermitForInsertion:
    return random_model(termination=str(termination), seed=11, **settings)


class Actions:
    """The log-probability of every action on every canvas, scored once: insert a token into a slot, or stop."""

    def __init__(self, model: KermitForInsertion | Engine, canvases: Sequence[Canvas]) -> None:
        self.insert: dict[tuple[Canvas, Insertion], float] = {}
        self.stop: dict[Canvas, float] = {}
        wanted = list(dict.fromkeys(canvases))
        for start in range(0, len(wanted), 512):
            part = wanted[start : start + 512]
            scores = scores_of(model, CanvasBatch.from_canvases(part))
            content = scores.content.double()
            for row, canvas in enumerate(part):
                mine = (scores.rows == row).nonzero().flatten().tolist()
                logits = [float(scores.location[i]) for i in mine]
                if scores.stop is not None:
                    logits.append(float(scores.stop[row]))
                total = math.log(sum(math.exp(value) for value in logits))
                ends = 0.0
                for i in mine:
                    location = float(scores.location[i]) - total
                    for token in TOKENS:
                        insertion = Insertion(int(scores.slots[i]), token)
                        self.insert[canvas, insertion] = location + float(content[i, token])
                    ends += math.exp(location + float(content[i, END]))
                self.stop[canvas] = math.log(ends) if scores.stop is None else float(scores.stop[row]) - total


def empty(way: Factorization, text: Sequence[Words]) -> Canvas:
    """The initial canvas: given tokens are present, generated and absent ones are not."""
    sides = [() if Segment(number) in way.generated | way.absent else tokens for number, tokens in enumerate(text)]
    canvas = Canvas(SPECIALS, tuple(sides))
    slots = {slot for side in way.generated if side < len(sides) for slot in canvas.slots(side)}
    return Canvas(SPECIALS, tuple(sides), frozenset(slots))


def walks(text: Sequence[Words], way: Factorization = Factorization.JOINT) -> list[list[tuple[Canvas, Insertion]]]:
    """The canvases and insertions of every order of the generated tokens."""
    places = [(s, i) for s, tokens in enumerate(text) if Segment(s) in way.generated for i in range(len(tokens))]
    found = []
    for order in itertools.permutations(places):
        canvas, there, walk = empty(way, text), set(), []
        for side, place in order:
            first = canvas.slots(Segment(side))[0]
            slot = first + sum((side, other) in there for other in range(place))
            insertion = Insertion(slot, text[side][place])
            walk.append((canvas, insertion))
            canvas = canvas.insert([insertion])
            there.add((side, place))
        walk.append((canvas, Insertion(0, CLS)))  # the last canvas; nothing is inserted into it
        found.append(walk)
    return found


def log_order(prior: OrderPrior, order: Sequence[int], length: int) -> float:
    """Log p(order) of a text of one segment, step by step."""
    kept, valid, total = np.zeros((1, length), dtype=bool), np.ones((1, length), dtype=bool), 0.0
    for place in order:
        total += math.log(float(prior.weights(kept, valid)[0, place]))
        kept[0, place] = True
    return total


def log_walk(actions: Actions, walk: list[tuple[Canvas, Insertion]]) -> float:
    *steps, (last, _) = walk
    return sum(actions.insert[step] for step in steps) + actions.stop[last]


def all_texts(longest: int) -> list[Words]:
    return [text for length in range(longest + 1) for text in itertools.product(TOKENS, repeat=length)]


def actions_for(model: KermitForInsertion | Engine, texts: Sequence[Words]) -> Actions:
    """The actions on the canvases of all subsequences."""
    canvases = {
        Canvas.from_ids(SPECIALS, part, generate=None)
        for text in texts
        for part in itertools.chain.from_iterable(itertools.combinations(text, size) for size in range(len(text) + 1))
    }
    opened = [Canvas(SPECIALS, c.segments, frozenset(c.slots(Segment.X))) for c in canvases]
    return Actions(model, opened)


@pytest.mark.slow
@pytest.mark.parametrize("termination", TERMINATIONS)
@pytest.mark.parametrize("prior", [UniformPrior(), BalancedTreePrior(0.8)], ids=["uniform", "tree"])
def test_the_expected_objective_is_the_lower_bound_of_the_definition(
    prior: OrderPrior, termination: Termination
) -> None:
    """For every text of up to 5 tokens: compare all n! orders with all kept sets and their probabilities."""
    model = model_of(termination)
    texts = all_texts(5)
    actions = actions_for(model, texts)
    objective = LowerBoundObjective(prior)
    orders = {n: list(itertools.permutations(range(n))) for n in range(6)}
    order_probability = {n: [math.exp(log_order(prior, order, n)) for order in orders[n]] for n in range(6)}
    for length in range(6):
        # the probability of each kept set: the step is uniform over 0..n, and the order defines what precedes it
        chances: Counter[frozenset[int]] = Counter()
        for order, chance in zip(orders[length], order_probability[length], strict=True):
            for step in range(length + 1):
                chances[frozenset(order[:step])] += chance / (length + 1)
        assert sum(chances.values()) == pytest.approx(1)
        batch = [text for text in texts if len(text) == length]
        complete = Texts.of(
            CanvasBatch.from_segments(SPECIALS, [(text,) for text in batch]), [Factorization.JOINT] * len(batch)
        )
        expected = torch.zeros(len(batch), dtype=torch.double)
        for kept_set, chance in chances.items():
            kept = np.ones_like(complete.present)
            for place in set(range(length)) - kept_set:
                kept[:, 1 + place] = False
            expected += chance * per_text_loss(model, objective, complete, kept)
        for number, text in enumerate(batch):
            by_order = [log_walk(actions, walk) for walk in walks((text,))]
            bound = sum(p * value for p, value in zip(order_probability[length], by_order, strict=True))
            assert -float(expected[number]) == pytest.approx(bound, abs=1e-5), text


def per_text_loss(
    model: KermitForInsertion, objective: LowerBoundObjective, texts: Texts, kept: Booleans
) -> torch.Tensor:
    """Sum up each text's loss from the scores; the mean must equal the loss of the model's forward pass."""
    made = objective.build(texts, kept)
    inputs = inputs_of(made)
    length = inputs["input_ids"].shape[1]
    asked = inputs["right"][inputs["asked"]]
    rows = asked // length
    out = torch.zeros(len(texts.batch), dtype=torch.double)
    with torch.inference_mode():
        loss = model(**inputs).loss
        canvases = made.canvases
        scores = scores_of(model, canvases)
    content = scores.content.double()
    stop = None if scores.stop is None else scores.stop.numpy()
    found = log_locations(scores.rows.numpy(), scores.location.numpy(), stop, len(out))
    log_location, log_stop = (None if part is None else torch.as_tensor(part) for part in found)
    assert log_location is not None
    if log_stop is None:
        ends = (log_location.double() + content[:, END]).exp()
        log_stop = torch.zeros(len(out), dtype=torch.double).index_add_(0, scores.rows, ends).log()
    number = {(int(r), int(s)): i for i, (r, s) in enumerate(zip(scores.rows, scores.slots, strict=True))}
    places = [number[int(place) // length, int(place) % length] for place in asked]
    picked = content[torch.tensor(places, dtype=torch.long)[inputs["target_slots"]], inputs["target_tokens"]]
    weights = inputs["target_weights"].double() * inputs["slot_weights"].double()[inputs["target_slots"]]
    out.index_add_(0, rows[inputs["target_slots"]], -weights * picked)
    location = inputs["location_weights"].double()
    out.index_add_(0, scores.rows, -location * log_location.double())
    out -= inputs["stop_weights"].double() * log_stop.double()
    assert float(loss) == pytest.approx(float(out.mean()), abs=1e-5)
    return out


@pytest.mark.parametrize("termination", TERMINATIONS)
@pytest.mark.parametrize("way", [Factorization.JOINT, Factorization.Y_GIVEN_X, Factorization.X, Factorization.Y])
def test_the_expected_objective_is_the_lower_bound_for_pairs_too(way: Factorization, termination: Termination) -> None:
    model, prior = model_of(termination), UniformPrior()
    text = ((A, B), (B, B))
    all_walks = walks(text, way)
    actions = Actions(model, [canvas for walk in all_walks for canvas, _ in walk])
    bound = sum(log_walk(actions, walk) for walk in all_walks) / len(all_walks)
    complete = Texts.of(CanvasBatch.from_segments(SPECIALS, [text]), [way])
    places = complete.generated[0].nonzero()[0].tolist()
    expected = 0.0
    for size in range(len(places) + 1):
        for missing in itertools.combinations(places, size):
            kept = complete.present.copy()
            kept[0, list(missing)] = False
            with torch.inference_mode():
                loss = model(**inputs_of(LowerBoundObjective(prior).build(complete, kept))).loss
            expected += float(loss) / (len(places) + 1) / math.comb(len(places), size)
    assert -expected == pytest.approx(bound, abs=1e-5)


@pytest.mark.parametrize("termination", TERMINATIONS)
def test_the_exact_likelihood_is_the_sum_over_all_orders(termination: Termination) -> None:
    model = model_of(termination)
    texts = [(), (A,), (B, B), (C, A, B), (A, A, A, A), (B, A, C, A)]
    actions = actions_for(model, texts)
    found = exact_log_likelihood(engine_of(model), [(text,) for text in texts])
    for text, value in zip(texts, found, strict=True):
        by_order = [math.exp(log_walk(actions, walk)) for walk in walks((text,))]
        assert value == pytest.approx(math.log(sum(by_order)), abs=1e-5)


@pytest.mark.parametrize("termination", TERMINATIONS)
@pytest.mark.parametrize("way", list(Factorization))
def test_the_exact_likelihood_of_a_pair_is_the_sum_over_its_orders(
    way: Factorization, termination: Termination
) -> None:
    model, text = model_of(termination), ((A, B), (C, C))
    all_walks = walks(text, way)
    actions = Actions(model, [canvas for walk in all_walks for canvas, _ in walk])
    total = sum(math.exp(log_walk(actions, walk)) for walk in all_walks)
    assert exact_log_likelihood(engine_of(model), [text], way)[0] == pytest.approx(math.log(total), abs=1e-5)


@pytest.mark.parametrize("termination", TERMINATIONS)
def test_the_probabilities_of_all_texts_and_of_not_having_stopped_sum_to_one(termination: Termination) -> None:
    """The mass that has not stopped after four insertions is that of every sequence of five insertions."""
    model = model_of(termination)
    texts = all_texts(4)
    stopped = sum(map(math.exp, exact_log_likelihood(engine_of(model), [(text,) for text in texts])))
    actions = actions_for(model, texts)
    reached = {empty(Factorization.JOINT, ((),)): 1.0}
    for _ in range(5):
        after: dict[Canvas, float] = {}
        for canvas, chance in reached.items():
            for slot in canvas.open_slots:
                for token in TOKENS:
                    new = canvas.insert([Insertion(slot, token)])
                    after[new] = after.get(new, 0.0) + chance * math.exp(actions.insert[canvas, Insertion(slot, token)])
        reached = after
    going = sum(reached.values())
    assert 0.001 < going < 0.999
    assert stopped + going == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("termination", TERMINATIONS)
@pytest.mark.parametrize("prior", [UniformPrior(), BalancedTreePrior(1.5)], ids=["uniform", "tree"])
def test_exact_is_above_importance_above_the_bound_with_entropy_above_the_papers(
    prior: OrderPrior, termination: Termination
) -> None:
    """In expectation, enumerated: two independent orders for the importance-weighted estimate."""
    model = model_of(termination)
    for text in [(A, B, C), (B, B, A)]:
        actions = actions_for(model, [text])
        orders = list(itertools.permutations(range(3)))
        log_q = [log_order(prior, order, 3) for order in orders]
        log_p = [log_walk(actions, walk) for walk in walks((text,))]
        q = [math.exp(value) for value in log_q]
        paper = sum(a * b for a, b in zip(q, log_p, strict=True))
        with_entropy = sum(a * (b - c) for a, b, c in zip(q, log_p, log_q, strict=True))
        ratio = [math.exp(b - c) for b, c in zip(log_p, log_q, strict=True)]
        pairs = itertools.product(range(6), repeat=2)
        two_orders = sum(q[i] * q[j] * math.log((ratio[i] + ratio[j]) / 2) for i, j in pairs)
        (exact,) = exact_log_likelihood(engine_of(model), [(text,)])
        assert exact > two_orders > with_entropy > paper
        # and `bounds` estimates each of them
        drawn = bounds(engine_of(model), [(text,)], prior=prior, orders=2000)[0]
        assert drawn.orders == 2000
        assert drawn.paper == pytest.approx(paper, abs=0.15)
        assert drawn.with_entropy == pytest.approx(with_entropy, abs=0.15)
        assert drawn.importance_weighted == pytest.approx(exact, abs=5 * drawn.standard_error + 1e-5)
        assert 0 < drawn.standard_error < 0.2


def test_the_entropy_of_the_uniform_order_is_log_n_factorial() -> None:
    model = model_of(Termination.SEQUENCE)
    for length in range(5):
        found = bounds(engine_of(model), [((A,) * length,)], orders=3)[0]
        assert found.with_entropy - found.paper == pytest.approx(math.lgamma(length + 1), abs=1e-5)


@pytest.mark.parametrize("termination", TERMINATIONS)
def test_a_text_of_one_token_has_one_order(termination: Termination) -> None:
    model = model_of(termination)
    (exact,) = exact_log_likelihood(engine_of(model), [((B,),)])
    found = bounds(engine_of(model), [((B,),)], orders=4)[0]
    values = (found.paper, found.with_entropy, found.importance_weighted)
    assert values == pytest.approx((exact,) * 3, abs=1e-5)
    assert found.standard_error == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("termination", TERMINATIONS)
def test_texts_of_different_lengths_score_the_same_in_a_batch_and_alone(termination: Termination) -> None:
    model = model_of(termination)
    texts = [((A, B, C, A, B),), ((),), ((C,),), ((B, A, B),)]
    prior = LeftToRightPrior()  # one order per text, so nothing is random
    together = bounds(engine_of(model), texts, prior=prior, orders=2, batch_size=3)
    for text, found in zip(texts, together, strict=True):
        alone = bounds(engine_of(model), [text], prior=prior, orders=1)[0]
        in_order = [(canvas, step) for canvas, step in walks(text)[0]]  # the first permutation is left to right
        by_hand = log_walk(Actions(model, [canvas for canvas, _ in in_order]), in_order)
        assert found.paper == pytest.approx(by_hand, abs=1e-5)
        assert alone.paper == pytest.approx(by_hand, abs=1e-5)
    exact_together = exact_log_likelihood(engine_of(model), texts, batch_size=5)
    assert exact_together == pytest.approx(
        [exact_log_likelihood(engine_of(model), [text])[0] for text in texts], abs=1e-5
    )
    many = bounds(engine_of(model), texts, orders=400, seed=1)
    for found, exact in zip(many, exact_together, strict=True):
        assert found.importance_weighted == pytest.approx(exact, abs=5 * found.standard_error + 1e-4)


def test_bounds_of_pairs_estimate_the_exact_likelihood() -> None:
    model = model_of(Termination.SLOT)
    texts = [((A, B), (C,)), ((), (B, B, A)), ((C, A), ())]
    for way in (Factorization.JOINT, Factorization.Y_GIVEN_X, Factorization.X):
        exact = exact_log_likelihood(engine_of(model), texts, way)
        for found, value in zip(bounds(engine_of(model), texts, way, orders=300), exact, strict=True):
            assert found.importance_weighted == pytest.approx(value, abs=5 * found.standard_error + 1e-4)


class MostlyRightmost(OrderPrior):
    """A custom prior with only `weights`: each missing token is twice as likely as the one on its left."""

    def weights(self, kept: Array, valid: Array) -> Array:
        weights = (valid & ~kept) * 2.0 ** np.arange(kept.shape[1])
        return weights / np.maximum(weights.sum(1, keepdims=True), 1)


def test_a_custom_prior_works_in_scoring_and_training() -> None:
    model, text, prior = model_of(Termination.SLOT), ((A, B, C),), MostlyRightmost()
    (exact,) = exact_log_likelihood(engine_of(model), [text])
    found = bounds(engine_of(model), [text], prior=prior, orders=1000)[0]
    assert found.importance_weighted == pytest.approx(exact, abs=5 * found.standard_error)
    assert found.importance_weighted > found.with_entropy > found.paper
    texts = Texts.of(CanvasBatch.from_segments(SPECIALS, [text] * 4000), [Factorization.JOINT] * 4000)
    with torch.inference_mode():
        made = LowerBoundObjective(prior).sample(texts, np.random.default_rng(0))
        loss = float(model(**inputs_of(made)).loss)
    assert -loss == pytest.approx(found.paper, abs=0.2)


def test_bounds_are_reproducible_and_do_not_depend_on_the_other_texts() -> None:
    model, text = model_of(Termination.SLOT), ((A, B, C, B),)
    alone = bounds(engine_of(model), [text])
    assert alone == bounds(engine_of(model), [text])
    assert bounds(engine_of(model), [((C,),), ((B, A, A),), text])[2:] == alone
    assert bounds(engine_of(model), [text], seed=2**70 + 1) != alone
    assert bounds(engine_of(model), []) == []


def test_a_canvas_that_orders_share_is_scored_once() -> None:
    model = TableEngine(lambda canvas: Says({slot: {A: 0.5, END: 0.5} for slot in canvas.open_slots}))
    [found] = bounds(engine_of(model), [((A, A),)], orders=50)
    assert model.batches == [4]  # the kept sets of two tokens
    assert found.importance_weighted == pytest.approx(math.log(0.5**3), abs=1e-5)  # as for uniform orders


def test_scoring_can_be_interrupted() -> None:
    def enough() -> None:
        raise InterruptedError

    model = TableEngine(lambda canvas: Says({}))
    for work in (bounds, exact_log_likelihood):
        with pytest.raises(InterruptedError):
            work(model, [((A, A, A),)] * 2, batch_size=2, on_batch=enough)
    assert model.batches == [2, 2]


def test_zero_orders_are_an_error() -> None:
    with pytest.raises(ModelError, match="orders must be at least 1, not 0"):
        bounds(engine_of(model_of(Termination.SLOT)), [((A,),)], orders=0)


def test_a_text_too_long_for_the_exact_sum_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ModelError, match="importance-weighted") as refused:
        exact_log_likelihood(engine_of(model_of(Termination.SLOT)), [((A,),), ((A,) * 13,)])
    assert (refused.value.text, refused.value.limit) == (1, 12)


@pytest.mark.parametrize("termination", TERMINATIONS)
@pytest.mark.parametrize(
    ("way", "given"),
    [(Factorization.X, ()), (Factorization.Y_GIVEN_X, (B, A)), (Factorization.JOINT, ())],
)
def test_serial_samples_have_the_frequencies_of_the_exact_likelihood(
    termination: Termination, way: Factorization, given: Words
) -> None:
    model, number = model_of(termination), 4000
    start = Canvas.from_ids(SPECIALS, given, (), generate=way)
    settings = DecodingSettings(strategy=Strategy.SERIAL, sampling=Sampling(), max_tokens=12)
    drawn = Counter(
        result.canvas.segments for result in decode(engine_of(model), [start] * number, settings, batch_size=number)
    )
    short = all_texts(2)
    if way is Factorization.JOINT:
        texts = [(x, y) for x in short for y in short if len(x) + len(y) <= 2]
    else:
        texts = [(given, y) if way is Factorization.Y_GIVEN_X else (y, ()) for y in short]
    expected = [math.exp(value) for value in exact_log_likelihood(engine_of(model), texts, way)]
    rest = 1 - sum(expected)
    cells = [(drawn[text], p) for text, p in zip(texts, expected, strict=True)]
    cells.append((number - sum(count for count, _ in cells), rest))
    chi_square = sum((count - number * p) ** 2 / (number * p) for count, p in cells if number * p > 3)
    assert chi_square < 2 * len(cells) + 20


class HighestFirstPrior(OrderPrior):
    """A prior that depends on the tokens: those with the highest ids first."""

    def __init__(self, token_ids: Array | None = None) -> None:
        self.token_ids = token_ids

    def for_texts(self, token_ids: Array) -> OrderPrior:
        return HighestFirstPrior(token_ids)

    def weights(self, kept: Array, valid: Array) -> Array:
        assert self.token_ids is not None
        ids = np.where(kept | ~valid, -1, self.token_ids)
        return ((ids == ids.max(1, keepdims=True)) & (ids >= 0)).astype(float)


def test_orders_may_come_from_a_prior_that_depends_on_the_tokens() -> None:
    """For C B A, highest first is the left-to-right order."""
    model = model_of(Termination.SLOT)
    for text, same in (((C, B, A), True), ((A, B, C), False)):
        found, left_to_right = (
            bounds(engine_of(model), [(text,)], prior=prior, orders=2)[0].paper
            for prior in (HighestFirstPrior(), LeftToRightPrior())
        )
        assert (found == pytest.approx(left_to_right, abs=1e-5)) is same


@dataclass(frozen=True)
class Careless(OrderPrior):
    """A prior whose `weights` are not probabilities of the missing tokens."""

    fault: Callable[[Array, Array], Array]

    def weights(self, kept: Array, valid: Array) -> Array:
        return self.fault(kept, valid)


@pytest.mark.parametrize(
    "fault",
    [
        lambda kept, valid: 3.0 * (valid & ~kept),
        lambda kept, valid: valid / valid.sum(1, keepdims=True),
        lambda kept, valid: (valid & ~kept) * np.nan,
        lambda kept, valid: (valid & ~kept) * np.tile([2.0, -1.0], 3)[: kept.shape[1]],
    ],
    ids=["more than 1", "at kept tokens", "not a number", "negative"],
)
def test_weights_that_are_not_probabilities_are_rejected_in_scoring_and_training(
    fault: Callable[[Array, Array], Array],
) -> None:
    prior, text = Careless(fault), ((A, B),)
    with pytest.raises(ModelError, match="prior Careless are not probabilities"):
        bounds(engine_of(model_of(Termination.SLOT)), [text], prior=prior)
    texts = Texts.of(CanvasBatch.from_segments(SPECIALS, [text]), [Factorization.JOINT])
    kept = np.array([[True, False, False, True]])
    for objective in (SlotObjective(prior), LowerBoundObjective(prior)):
        with pytest.raises(ModelError, match="the prior Careless"):
            objective.build(texts, kept)


def test_the_weights_of_a_prior_on_a_complete_text_do_not_matter() -> None:
    flat = Careless(lambda kept, valid: (valid & ~kept) / (valid & ~kept).sum(1, keepdims=True))  # 0 / 0 at the end
    texts = Texts.of(CanvasBatch.from_segments(SPECIALS, [((A, B),)]), [Factorization.JOINT])
    made = SlotObjective(flat).build(texts, texts.present)
    assert np.isfinite(made.location_weights).all()


@pytest.mark.parametrize("prior", [LeftToRightPrior(), BalancedTreePrior(0.01)], ids=["left to right", "cold tree"])
def test_an_estimate_from_a_prior_that_leaves_orders_out_is_a_lower_bound_without_an_error(prior: OrderPrior) -> None:
    model, text = model_of(Termination.SLOT), ((A, B, C, A),)
    (exact,) = exact_log_likelihood(engine_of(model), [text])
    found = bounds(engine_of(model), [text], prior=prior, orders=200)[0]
    assert found.importance_weighted < exact
    assert found.standard_error is None
    one_token = bounds(engine_of(model), [((A,),)], prior=prior, orders=2)[0]  # its one order is drawn
    assert one_token.standard_error == pytest.approx(0, abs=1e-6)


def test_a_single_order_has_no_standard_error() -> None:
    assert bounds(engine_of(model_of(Termination.SLOT)), [((A, B),)], orders=1)[0].standard_error is None
