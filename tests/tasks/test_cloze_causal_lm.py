"""The left-to-right model's candidates and their scores, against the whole sequence computed directly."""

import struct

import numpy as np
import pytest
import torch
from cloze_models import INSTANCES, bert_decoder, gpt2, tokenizer
from transformers import AutoModelForCausalLM, BloomConfig, GPTNeoConfig, MistralConfig

from kermit.decoding import Sampling
from kermit.decoding.sampling import draw, uniform
from kermit.errors import DecodingError, ModelError
from kermit.tasks.cloze.causal_lm_system import CausalLMSystem
from kermit.tasks.cloze.models import load_causal_lm
from kermit.tasks.cloze.system import instance_seed

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


def continuations(system, layout):
    """Continuations of a gap's left side, from passes over whole sequences, without a cache or dropping."""
    seed = np.array([instance_seed(system.seed, layout.id)])
    found = []
    for number in range(system.samples):
        tokens = []
        for step in range(layout.gap_length if system.oracle_length else system.continuation_tokens):
            with torch.inference_mode():
                ids = torch.tensor([[*system.opening, *layout.before, *tokens]])
                logits = system.model(input_ids=ids).logits[0, -1]
            barred = system.never | (system.continues & (step == 0 and not layout.joined))
            noise = uniform(seed, step, np.array([number]))
            scores = logits.masked_fill(barred, -torch.inf)[None].float().numpy()
            tokens.append(int(draw(scores, system.sampling, noise)[0]))
        found.append(tuple(tokens))
    return found


@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize("oracle_length", [False, True])
def test_the_answer_is_the_best_beginning_of_any_continuation(kind, oracle_length):
    system = make(kind, oracle_length=oracle_length)
    for instance in INSTANCES:
        layout = system.lay_out(instance)
        drawn = continuations(system, layout)
        lengths = [layout.gap_length] if oracle_length else range(1, 6)
        beginnings = {tokens[:length] for tokens in drawn for length in lengths}
        scores = {tokens: direct(system, layout, tokens) for tokens in beginnings}
        best = max(scores, key=scores.get)
        [answer] = system.answer([layout])
        assert answer.text == WORDS.decode(best).strip()
        assert answer.score == pytest.approx(scores[best], abs=1e-3)
        assert answer.sequences <= 1 + 4 * len(drawn[0]) + len(beginnings)


def test_only_distinct_candidates_that_can_win_are_scored(monkeypatch):
    system, scored = make(samples=8), []
    scores = system._scores
    monkeypatch.setattr("kermit.tasks.cloze.causal_lm_system._TOGETHER", 1)
    monkeypatch.setattr(system, "_scores", lambda part, *rest: scored.extend(map(tuple, part)) or scores(part, *rest))
    for instance in INSTANCES:
        layout = system.lay_out(instance)
        scored.clear()
        [answer] = system.answer([layout])
        candidates = {tokens[:length] for tokens in continuations(system, layout) for length in range(1, 6)}
        assert len(scored) == len(set(scored)) < len(candidates)
        assert answer.forward_passes == 1 + 5 + len(scored)
        assert answer.sequences == 1 + 8 * 5 + len(scored)


@pytest.mark.parametrize("settings", [{"attn_implementation": "eager"}, {"attn_implementation": "sdpa"}], ids=str)
def test_answers_do_not_depend_on_the_attention_implementation(settings):
    system = CausalLMSystem(gpt2(WORDS, **settings), WORDS, samples=4, continuation_tokens=5)
    layouts = [system.lay_out(instance) for instance in INSTANCES]
    expected = [answer.text for answer in make().answer(layouts)]
    assert [answer.text for answer in system.answer(layouts)] == expected


@pytest.mark.parametrize("family", ["bloom", "mistral", "gpt_neo"])
def test_other_kinds_of_models_score_like_one_pass_over_the_whole_text(family):
    """Architectures with distances that skip padding, recurrent memories, or their own mask."""
    shape = {"vocab_size": len(WORDS), "hidden_size": 16}
    config = {
        "bloom": lambda: BloomConfig(**shape, n_layer=1, n_head=2),
        "mistral": lambda: MistralConfig(
            **shape, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=8, sliding_window=8
        ),
        "gpt_neo": lambda: GPTNeoConfig(
            **shape, num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]], window_size=16
        ),
    }[family]()
    torch.manual_seed(0)
    system = CausalLMSystem(AutoModelForCausalLM.from_config(config), WORDS, samples=3, continuation_tokens=3)
    for instance in INSTANCES[:2]:
        layout = system.lay_out(instance)
        beginnings = {tokens[:length] for tokens in continuations(system, layout) for length in range(1, 4)}
        scores = [direct(system, layout, tokens) for tokens in beginnings]
        assert system.answer([layout])[0].score == pytest.approx(max(scores), abs=1e-3)


def test_tokens_are_drawn_from_the_models_distribution():
    system = make(samples=4000, continuation_tokens=1, sampling=Sampling(temperature=0.7))
    layout = system.lay_out(INSTANCES[1])
    read = system.read(layout)
    drawn = system.sample(layout, *read)[0].flatten()
    logits = read[0][0].masked_fill(system.never | system.continues, -torch.inf) / 0.7
    share = torch.bincount(drawn, minlength=len(logits)) / 4000
    assert torch.allclose(share, logits.softmax(0), atol=0.03)
    assert not (system.never | system.continues)[drawn].any()


def test_the_first_token_may_continue_what_the_gap_touches():
    system = make(samples=500, continuation_tokens=1)
    layouts = [system.lay_out(INSTANCES[number]) for number in (3, 1)]
    assert [layout.joined for layout in layouts] == [True, False]
    drawn = [system.sample(layout, *system.read(layout))[0][:, 0] for layout in layouts]
    assert [bool(system.continues[tokens].any()) for tokens in drawn] == [True, False]


@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize("oracle_length", [False, True])
def test_a_batch_gives_the_same_answers_as_one_by_one(kind, oracle_length):
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


def test_a_model_that_is_not_causal_is_rejected():
    with pytest.raises(ModelError, match="is not a left-to-right model"):
        CausalLMSystem(bert_decoder(WORDS, is_decoder=False), WORDS)


def test_impossible_settings_are_rejected():
    with pytest.raises(DecodingError, match="at least 1"):
        make(samples=0)


def test_a_missing_or_unreadable_gguf_file_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="the file does not exist"):
        load_causal_lm(str(tmp_path / "model.gguf"))
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'kermit-insertion\[gguf\]'"):
        load_causal_lm(str(tmp_path / "model.gguf"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GGUF", "cannot be loaded by AutoModelForCausalLM"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1), "cannot be loaded by AutoModelForCausalLM"),
        (b"GGML" + bytes(40), "cannot be loaded by AutoModelForCausalLM: .*magic"),
        (b"", "cannot be loaded by AutoModelForCausalLM"),
    ],
)
def test_a_truncated_or_invalid_gguf_file_is_an_error_that_names_it(tmp_path, content, message):
    pytest.importorskip("gguf")
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=rf"^{tmp_path}/model\.gguf {message}"):
        load_causal_lm(str(tmp_path / "model.gguf"))


@pytest.mark.parametrize(
    "error", [EOFError("it ends"), IndexError("it ends"), struct.error("it ends"), OSError("none")]
)
def test_a_gguf_file_with_an_incomplete_tokenizer_is_an_error_that_names_it(tmp_path, monkeypatch, error):
    def broken(*arguments, **settings):
        raise error

    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("kermit.tasks.cloze.models.load_whole", lambda *arguments, **settings: gpt2(WORDS))
    monkeypatch.setattr("kermit.tasks.cloze.models.AutoTokenizer.from_pretrained", broken)
    with pytest.raises(ModelError, match=rf"^{tmp_path}/model\.gguf .*{error}"):
        load_causal_lm(str(tmp_path / "model.gguf"))
