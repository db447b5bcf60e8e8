"""KERMIT fills gaps: the canvas, the limits, and independence of the batch."""

import random
from itertools import pairwise

import pytest
import torch
from cloze_models import INSTANCES, kermit, tokenizer
from insertion_models import cached_model_of
from tiny import bert, kermit_model

from kermit import Canvas, CanvasBatch, DecodingSettings, Strategy
from kermit.decoding import Constraints, Ranking, Sampling, strategies_of
from kermit.engines.torch_engine import TorchEngine, model_info
from kermit.tasks.cloze.evaluation import PredictionLog, predict
from kermit.tasks.cloze.insertion_system import InsertionSystem
from kermit.text.tokenizer import decode_ids, encode_texts

WORDS = tokenizer()
SETTINGS = DecodingSettings(max_tokens=8)


def model_for(strategy):
    return cached_model_of(WORDS) if strategy is Strategy.LEFT_TO_RIGHT else kermit(WORDS)


def answers(system, instances):
    return system.answer([system.lay_out(instance) for instance in instances])


def test_the_canvas_is_the_papers_with_only_the_gap_open():
    system = InsertionSystem(kermit(WORDS), WORDS, SETTINGS)
    canvas = system.canvas(system.lay_out(INSTANCES[0]))
    names = {canvas.specials.cls_id: "[CLS]", canvas.specials.sep_id: "[SEP]"}
    [slot] = canvas.open_slots
    shown = [
        *(names.get(token, decode_ids(WORDS, [token])) for token in canvas.token_ids[:slot]),
        "|",
        *(names.get(token, decode_ids(WORDS, [token])) for token in canvas.token_ids[slot:]),
    ]
    text = (
        "[CLS]Prussia controlled 65% of the land. Austria, an old empire, held the rest of it![SEP]"
        "The dog of the king was blue, and the cat was red. Nobody knows why the king slept. "
        "How much of the land did Prussia control? Prussia controlled| of land.[SEP]"
    )
    assert "".join(shown) == text
    assert not canvas.joined_slots


def test_a_gap_next_to_a_bracket_may_start_without_a_space():
    system = InsertionSystem(kermit(WORDS), WORDS, SETTINGS)
    canvas = system.canvas(system.lay_out(INSTANCES[3]))
    assert canvas.joined_slots == canvas.open_slots


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("oracle_length", [False, True])
def test_a_batch_gives_the_same_answers_as_one_by_one(strategy, oracle_length):
    settings = DecodingSettings(strategy, Sampling(0.9), max_tokens=8)
    system = InsertionSystem(model_for(strategy), WORDS, settings, oracle_length=oracle_length, seed=3)
    many = [INSTANCES[number % len(INSTANCES)] for number in range(32)]
    together = answers(system, many)
    alone = [answer for instance in INSTANCES for answer in answers(system, [instance])]
    for number, answer in enumerate(together):
        other = alone[number % len(INSTANCES)]
        assert (answer.text, answer.tokens, answer.forward_passes) == (other.text, other.tokens, other.forward_passes)
        assert answer.score == pytest.approx(other.score, abs=1e-3)
    assert len({answer.text for answer in alone}) > 1


@pytest.mark.parametrize("strategy", list(Strategy))
def test_the_oracle_length_is_met_exactly(strategy):
    settings = DecodingSettings(strategy, max_tokens=2)
    system = InsertionSystem(model_for(strategy), WORDS, settings, oracle_length=True)
    layouts = [system.lay_out(instance) for instance in INSTANCES]
    assert max(layout.gap_length for layout in layouts) > 2
    assert [answer.tokens for answer in system.answer(layouts)] == [layout.gap_length for layout in layouts]


def test_at_least_the_requested_number_of_tokens_is_inserted():
    settings = DecodingSettings(max_tokens=8, termination_penalty=-50, constraints=Constraints(min_tokens_per_blank=2))
    assert all(answer.tokens == 2 for answer in answers(InsertionSystem(kermit(WORDS), WORDS, settings), INSTANCES))
    settings = DecodingSettings(max_tokens=8, termination_penalty=-50)
    assert all(answer.tokens == 0 for answer in answers(InsertionSystem(kermit(WORDS), WORDS, settings), INSTANCES))


@pytest.mark.parametrize("ranking", [ranking for ranking in Ranking if ranking is not Ranking.BOTH_WAYS])
def test_forward_passes_include_those_of_ranking(ranking, monkeypatch):
    ordered = ranking.is_left_to_right
    model, calls = cached_model_of(WORDS) if ordered else kermit(WORDS), []
    real = TorchEngine.ask

    def count(engine, rows, asked):
        calls.append(len(rows.token_ids))
        return real(engine, rows, asked)

    monkeypatch.setattr(TorchEngine, "ask", count)
    constraints = Constraints(min_tokens_per_blank=2, max_tokens_per_blank=2)  # equal rounds for all
    settings = DecodingSettings(Strategy.SERIAL, max_tokens=2, constraints=constraints, candidates=3, ranking=ranking)
    [answer] = answers(InsertionSystem(model, WORDS, settings), INSTANCES[:1])
    assert answer.sequences == sum(calls)
    assert answer.forward_passes == (answer.sequences + 2) / 3  # the first pass is one for all three


def test_the_unknown_token_is_never_an_answer():
    model = kermit(WORDS)
    with torch.no_grad():
        model.head.bias[WORDS.unk_token_id] = 1e3
    found = answers(InsertionSystem(model, WORDS, DecodingSettings(max_tokens=4)), INSTANCES)
    assert all(bool(answer.text) == (answer.tokens > 0) for answer in found)


@pytest.mark.parametrize(("positions", "limit"), [("restart", "max_segment_length"), ("continue", "max_length")])
def test_passages_are_cut_to_the_models_positions_with_room_for_the_answer(positions, limit):
    system = InsertionSystem(kermit(WORDS, room=40, positions=positions), WORDS, SETTINGS)
    for instance in INSTANCES:
        layout = system.lay_out(instance)
        canvas = system.canvas(layout)
        longest = len(canvas) if positions == "continue" else max(map(len, canvas.segments))
        assert longest + SETTINGS.max_tokens <= getattr(system.engine.info, limit)
        second = WORDS.decode(layout.before)
        assert second.endswith(f"{instance.question} {instance.left}".strip())
    assert system.lay_out(INSTANCES[0]).cut
    tiny = InsertionSystem(kermit(WORDS, room=16, positions=positions), WORDS, SETTINGS)
    assert tiny.lay_out(INSTANCES[0]) is None


@pytest.mark.slow
def test_a_model_that_learned_the_texts_fills_the_gaps_correctly_with_either_strategy():
    model = kermit_model(WORDS, bert(WORDS, width=48, layers=2, heads=4, positions=96), slot_vector="both")
    system = InsertionSystem(model, WORDS, DecodingSettings(max_tokens=16))
    layouts = [system.lay_out(instance) for instance in INSTANCES]
    gaps = encode_texts(WORDS, [f"{'' if instance.joined else ' '}{instance.gap}" for instance in INSTANCES])
    chance = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    model.train()
    for _ in range(150):
        canvases, targets = [], []
        for layout, gap in zip(layouts, gaps, strict=True):
            kept = sorted(chance.sample(range(len(gap)), chance.randint(0, len(gap))))
            pieces = [layout.before, *([gap[place]] for place in kept), layout.after]
            canvases.append(Canvas.from_fragments(model.specials, [layout.first], pieces))
            for left, right in pairwise([-1, *kept, len(gap)]):
                span = gap[left + 1 : right]
                targets.append(span[len(span) // 2] if span else model.specials.end_of_slot_id)
        batch = CanvasBatch.from_canvases(canvases)
        ids, valid, segments = map(torch.as_tensor, (batch.token_ids, batch.valid, batch.segment_ids))
        right = torch.as_tensor(batch.open_slots).flatten().nonzero().flatten()
        hidden = model.kermit(ids, valid, segments).last_hidden_state
        content = model.slot_logits(hidden, ids, right - 1, right).content
        torch.nn.functional.cross_entropy(content, torch.tensor(targets)).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    assert set(strategies_of(model_info(model))) == {Strategy.SERIAL, Strategy.PARALLEL}
    for strategy in strategies_of(model_info(model)):
        system = InsertionSystem(model, WORDS, DecodingSettings(strategy, max_tokens=16))
        predictions = predict(system, INSTANCES, PredictionLog(None, {}))
        assert [prediction.exact_match for prediction in predictions] == [1] * len(INSTANCES)
