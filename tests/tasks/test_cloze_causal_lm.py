"""The left-to-right model's candidates and their scores, against the whole sequence computed directly."""

import pytest
import torch
from cloze_models import INSTANCES, bert_decoder, gpt2, tokenizer

from kermit.decoding import Sampling
from kermit.errors import DecodingError, ModelError
from kermit.tasks.cloze import CausalLMSystem
from kermit.tasks.cloze.causal_lm import Candidate
from kermit.tasks.cloze.loading import load_causal_lm

WORDS = tokenizer()
MODELS = {"gpt2": gpt2, "bert": bert_decoder}


def make(kind="gpt2", **settings):
    return CausalLMSystem(MODELS[kind](WORDS), WORDS, **{"samples": 4, "continuation_tokens": 5, **settings})


def direct(system, layout, tokens):
    """The log-probability of tokens and cloze(right), from one pass over the whole sequence, without a cache."""
    before = [*system.opening, *layout.before]
    rest = [*tokens, *layout.after]
    with torch.inference_mode():
        log_p = system.model(input_ids=torch.tensor([before + rest])).logits[0].log_softmax(1)
    return sum(float(log_p[len(before) - 1 + number, token]) for number, token in enumerate(rest))


@pytest.mark.parametrize("kind", list(MODELS))
def test_a_candidates_score_is_that_of_the_whole_sequence(kind):
    system = make(kind)
    layouts = [system.lay_out(instance) for instance in INSTANCES]
    candidates = [Candidate(row, tokens) for row in range(len(layouts)) for tokens in ((40,), (41, 42, 43), (50, 51))]
    scores = system.score(system.read(layouts), layouts, candidates)
    for candidate, score in zip(candidates, scores, strict=True):
        assert score == pytest.approx(direct(system, layouts[candidate.row], candidate.tokens), abs=1e-3)


@pytest.mark.parametrize("kind", list(MODELS))
def test_the_answer_is_the_best_beginning_of_any_continuation(kind):
    system = make(kind)
    for instance in INSTANCES[:3]:
        layout = system.lay_out(instance)
        [drawn] = system.draw(system.read([layout]), [layout]).tolist()
        beginnings = {tuple(tokens[:length]) for tokens in drawn for length in range(1, 6)}
        scores = {tokens: direct(system, layout, tokens) for tokens in beginnings}
        [answer] = system.answer([layout])
        best = max(scores, key=scores.get)
        assert answer.text == WORDS.decode(best).strip()
        assert answer.score == pytest.approx(scores[best], abs=1e-3)
        assert answer.sequences == 1 + 4 * 4 + len(beginnings)
        assert answer.forward_passes == 6


def test_candidates_that_were_drawn_twice_are_scored_once():
    system = make()
    layout = system.lay_out(INSTANCES[0])
    drawn = torch.tensor([[[8, 9, 7, 6, 5], [8, 9, 7, 6, 4], [8, 9, 7, 6, 5], [9, 9, 9, 9, 9]]])
    lengths = [len(candidate.tokens) for candidate in system.candidates([layout], drawn)]
    assert sorted(lengths) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5]


def test_tokens_are_drawn_from_the_models_distribution():
    system = make(samples=4000, continuation_tokens=1, sampling=Sampling(temperature=0.7))
    layout = system.lay_out(INSTANCES[1])
    context = system.read([layout])
    drawn = system.draw(context, [layout]).flatten()
    logits = context.logits[0].masked_fill(system.never | system.continues, -torch.inf) / 0.7
    share = torch.bincount(drawn, minlength=len(logits)) / 4000
    assert torch.allclose(share, logits.softmax(0), atol=0.03)
    assert not (system.never | system.continues)[drawn].any()


def test_the_first_token_may_continue_what_the_gap_touches():
    system = make(samples=500, continuation_tokens=1)
    layouts = [system.lay_out(INSTANCES[number]) for number in (3, 1)]
    assert [layout.joined for layout in layouts] == [True, False]
    drawn = system.draw(system.read(layouts), layouts)
    assert [bool(system.continues[row.flatten()].any()) for row in drawn] == [True, False]


@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize("oracle_length", [False, True])
def test_a_batch_gives_the_answers_that_come_one_by_one(kind, oracle_length):
    system = make(kind, oracle_length=oracle_length)
    layouts = [system.lay_out(instance) for instance in INSTANCES]
    alone = [answer for layout in layouts for answer in system.answer([layout])]
    together = system.answer([layouts[number % len(layouts)] for number in range(32)])
    assert len(together) == 32
    for number, answer in enumerate(together):
        other = alone[number % len(layouts)]
        assert (answer.text, answer.tokens, answer.sequences) == (other.text, other.tokens, other.sequences)
        assert answer.score == pytest.approx(other.score, abs=1e-3)


def test_another_seed_draws_other_continuations():
    answers = []
    for seed in (0, 1):
        system = make(seed=seed)
        answers.append([answer.text for answer in system.answer(list(map(system.lay_out, INSTANCES)))])
    assert answers[0] != answers[1]


def test_the_oracle_length_is_that_of_every_candidate():
    system = make(oracle_length=True)
    layouts = [system.lay_out(instance) for instance in INSTANCES]
    assert [answer.tokens for answer in system.answer(layouts)] == [layout.gap_length for layout in layouts]


def test_passages_are_cut_to_the_models_positions_with_room_for_continuation_and_rest():
    system = CausalLMSystem(gpt2(WORDS, positions=60), WORDS, samples=2, continuation_tokens=6)
    for instance in INSTANCES:
        layout = system.lay_out(instance)
        assert len(system.opening) + len(layout) + 6 <= 60
        assert layout.first == ()
    assert system.lay_out(INSTANCES[0]).cut
    assert len(system.answer([system.lay_out(INSTANCES[0])])) == 1


def test_a_model_that_sees_what_comes_next_is_refused():
    with pytest.raises(ModelError, match="is no left-to-right model"):
        CausalLMSystem(bert_decoder(WORDS, is_decoder=False), WORDS)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(DecodingError, match="at least 1 continuation of 1 token"):
        make(samples=0)


def test_a_gguf_file_that_is_not_there_or_cannot_be_read_is_told(tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="there is no such file"):
        load_causal_lm(str(tmp_path / "model.gguf"))
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'kermit-insertion\[gguf\]'"):
        load_causal_lm(str(tmp_path / "model.gguf"))
