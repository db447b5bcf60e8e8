"""The masked language model's beam search, against enumeration and one layout at a time."""

import pytest
import torch
from cloze_models import INSTANCES, masked_lm, tokenizer
from transformers import BertModel, PreTrainedTokenizerFast

from kermit.errors import DecodingError, ModelError
from kermit.tasks.cloze.layout import ClozeLayout
from kermit.tasks.cloze.masked_lm_system import MaskedLMSystem
from kermit.tasks.cloze.models import load_masked_lm

WORDS = tokenizer()


def log_probs(system, layout, tokens):
    """(n, vocabulary) at the gap with these tokens in it, from the model's whole output."""
    words = system.tokenizer
    x = [words.cls_token_id, *layout.first, words.sep_token_id]
    y = [*layout.before, *tokens, *layout.after, words.sep_token_id]
    start = len(x) + len(layout.before)
    with torch.inference_mode():
        out = system.model(input_ids=torch.tensor([x + y]), token_type_ids=torch.tensor([[0] * len(x) + [1] * len(y)]))
    return out.logits[0, start : start + len(tokens)].log_softmax(1)


def enumerated(system, layout, length, allowed):
    """Every complete filling that the search can reach, with its score: the most certain mask first, with any token."""
    mask = system.tokenizer.mask_token_id
    states = {(mask,) * length: 0.0}
    for _ in range(length):
        grown = {}
        for tokens, score in states.items():
            log_p = log_probs(system, layout, tokens)
            entropy = -(log_p.exp() * log_p).sum(1)
            place = min((n for n in range(length) if tokens[n] == mask), key=lambda n: entropy[n])
            for token in allowed(place):
                grown[(*tokens[:place], token, *tokens[place + 1 :])] = score + float(log_p[place, token])
        states = grown
    return states


@pytest.fixture(scope="module")
def small():
    """A system whose model has a vocabulary of a few tokens."""
    system = MaskedLMSystem(masked_lm(WORDS, seed=1), WORDS, beams=1)
    system.never = torch.ones_like(system.never)
    system.never[20:26] = False
    system.continues = torch.zeros_like(system.continues)
    return system


LAYOUT = ClozeLayout("a", (30, 31), (32, 33, 34), (35,), joined=False, gap_length=2)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_beam_as_wide_as_all_fillings_finds_the_best_of_them(small, length):
    small.beams = 6**length
    found = small.fill([LAYOUT], length)
    scores = enumerated(small, LAYOUT, length, lambda place: range(20, 26))
    assert len(scores) == 6**length
    best = max(scores, key=scores.get)
    assert tuple(found.tokens[0].tolist()) == best
    assert float(found.scores[0]) == pytest.approx(scores[best], abs=1e-4)


def test_a_beam_of_one_takes_the_best_token_of_the_most_certain_mask_each_time(small):
    small.beams = 1
    mask = small.tokenizer.mask_token_id
    tokens, score = [mask] * 3, 0.0
    for _ in range(3):
        log_p = log_probs(small, LAYOUT, tokens)
        entropy = -(log_p.exp() * log_p).sum(1)
        place = min((n for n in range(3) if tokens[n] == mask), key=lambda n: entropy[n])
        token = max(range(20, 26), key=lambda token: log_p[place, token])
        tokens[place], score = token, score + float(log_p[place, token])
    found = small.fill([LAYOUT], 3)
    assert found.tokens[0].tolist() == tokens
    assert float(found.scores[0]) == pytest.approx(score, abs=1e-4)


def test_the_first_token_does_not_continue_a_given_word_unless_the_gap_touches_it(small):
    small.beams = 6**2
    small.continues[22:26] = True
    try:
        apart = small.fill([LAYOUT], 2)
        scores = enumerated(small, LAYOUT, 2, lambda place: range(20, 22 if place == 0 else 26))
        assert tuple(apart.tokens[0].tolist()) == max(scores, key=scores.get)
        joined = ClozeLayout(**{**vars(LAYOUT), "joined": True})
        scores = enumerated(small, LAYOUT, 2, lambda place: range(20, 26))
        assert tuple(small.fill([joined], 2).tokens[0].tolist()) == max(scores, key=scores.get)
    finally:
        small.continues[22:26] = False


def test_the_number_of_masks_with_the_highest_sum_of_log_probabilities_wins():
    system = MaskedLMSystem(masked_lm(WORDS), WORDS, beams=2)
    for instance in INSTANCES:
        layout = system.lay_out(instance)
        [answer] = system.answer([layout])
        tried = range(1, max(4, layout.gap_length) + 1)
        found = {length: system.fill([layout], length) for length in tried}
        best = max(tried, key=lambda length: float(found[length].scores[0]))
        assert answer.tokens == best
        assert answer.score == pytest.approx(float(found[best].scores[0]), abs=1e-4)
        assert answer.text == WORDS.decode(found[best].tokens[0]).strip()
        assert answer.forward_passes <= sum(tried)
        assert answer.sequences <= sum(int(filled.sequences[0]) for filled in found.values())


def test_a_search_that_cannot_win_is_abandoned(small):
    small.beams = 3
    whole = small.fill([LAYOUT], 3)
    assert (int(whole.forward_passes[0]), int(whole.sequences[0])) == (3, 1 + 3 + 3)
    score = float(whole.scores[0])
    below, above, far_above = (small.fill([LAYOUT], 3, [floor]) for floor in (score - 1e-3, score + 1e-3, -1e-6))
    assert below.tokens.tolist() == whole.tokens.tolist()
    assert float(below.scores[0]) == pytest.approx(score, abs=1e-5)
    assert float(above.scores[0]) < score + 1e-3
    assert (int(far_above.forward_passes[0]), int(far_above.sequences[0])) == (1, 1)
    assert float(far_above.scores[0]) < -1e-6


def test_only_the_oracle_length_is_tried():
    system = MaskedLMSystem(masked_lm(WORDS), WORDS, beams=2, oracle_length=True)
    layouts = [system.lay_out(instance) for instance in INSTANCES]
    answers = system.answer(layouts)
    assert [answer.tokens for answer in answers] == [layout.gap_length for layout in layouts]
    assert [answer.forward_passes for answer in answers] == [layout.gap_length for layout in layouts]


def test_a_batch_gives_the_same_answers_as_one_by_one():
    system = MaskedLMSystem(masked_lm(WORDS), WORDS, beams=3)
    layouts = [system.lay_out(instance) for instance in INSTANCES]
    alone = [answer for layout in layouts for answer in system.answer([layout])]
    together = system.answer([layouts[number % len(layouts)] for number in range(32)])
    for number, answer in enumerate(together):
        other = alone[number % len(layouts)]
        assert (answer.text, answer.tokens, answer.sequences) == (other.text, other.tokens, other.sequences)
        assert answer.score == pytest.approx(other.score, abs=1e-3)


def test_the_rows_are_the_papers_layout():
    system = MaskedLMSystem(masked_lm(WORDS), WORDS)
    inputs = system.inputs([LAYOUT, ClozeLayout("b", (), (7, 8), (), False, 1)], 2)
    cls, sep, mask, pad = WORDS.cls_token_id, WORDS.sep_token_id, WORDS.mask_token_id, WORDS.pad_token_id
    assert inputs.token_ids.tolist() == [
        [cls, 30, 31, sep, 32, 33, 34, mask, mask, 35, sep],
        [cls, sep, 7, 8, mask, mask, sep, pad, pad, pad, pad],
    ]
    assert inputs.segment_ids.tolist()[0] == [0] * 4 + [1] * 7
    assert inputs.gap.tolist() == [[7, 8], [4, 5]]
    assert inputs.valid.sum(1).tolist() == [11, 7]


def test_passages_are_cut_to_the_models_positions():
    system = MaskedLMSystem(masked_lm(WORDS, positions=60), WORDS)
    for instance in INSTANCES:
        layout = system.lay_out(instance)
        assert len(layout) + 3 + max(4, layout.gap_length) <= 60
    assert system.lay_out(INSTANCES[0]).cut


def test_a_checkpoint_without_a_head_is_rejected(tmp_path):
    BertModel(masked_lm(WORDS).config).save_pretrained(tmp_path)
    WORDS.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"lacks .* of the weights of BertForMaskedLM"):
        load_masked_lm(str(tmp_path))
    with pytest.raises(ModelError, match="does not exist"):
        load_masked_lm(str(tmp_path / "nowhere"))


def test_impossible_settings_are_rejected():
    with pytest.raises(DecodingError, match="beams must be at least 1"):
        MaskedLMSystem(masked_lm(WORDS), WORDS, beams=0)
    bare = PreTrainedTokenizerFast(tokenizer_object=WORDS.backend_tokenizer)
    with pytest.raises(ModelError, match=r"needs a \[CLS\]"):
        MaskedLMSystem(masked_lm(WORDS), bare)
