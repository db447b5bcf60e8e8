"""The looking-up benchmark: its questions, and that it distinguishes a model that copies from one that does not."""

import json

import pytest
import torch
from cloze_models import gpt2, kermit, masked_lm, tokenizer, write_data
from scripts import load_script

from kermit.tasks.cloze.instances import ClozeInstance

MODELS = {"kermit": kermit, "masked-lm": masked_lm, "causal-lm": gpt2}
PASSAGE = "The dog of the king was blue, and the cat was red."
INSTANCES = [
    ClozeInstance.from_text(PASSAGE, "What was blue?", "The ____ was blue.", ["dog"], id="0"),
    ClozeInstance.from_text(PASSAGE, "Who was it?", "It was the ____.", ["dog of the king"], id="1"),
    ClozeInstance.from_text("Nobody knows.", "What was red?", "The ____ was red.", ["cat"], id="2"),
]


@pytest.fixture(scope="module")
def script():
    return load_script("benchmarks/looking_up.py")


@pytest.fixture(params=MODELS)
def loaded(request, script, tmp_path):
    words = tokenizer()
    for thing in (MODELS[request.param](words), words):
        thing.save_pretrained(tmp_path)
    score, load = script.SYSTEMS[request.param]
    return request.param, score, load(str(tmp_path)), tmp_path


def test_gaps_of_one_token_that_occurs_in_the_passage_are_used(script, loaded):
    _, score, system, _ = loaded
    [(layout, token)] = script.questions(system, INSTANCES, 10)
    assert layout.id == "0"
    assert system.tokenizer.decode([token]).strip() == "dog"
    bare = script.without(layout, token)
    assert token not in bare.first + bare.before
    assert len(layout) - len(bare) == (layout.first + layout.before).count(token) > 0
    assert script.measure(score, system, [layout], [token]) != script.measure(score, system, [bare], [token])


def test_only_the_token_of_the_gap_is_scored(script):
    def copies(system, layouts):
        seen = torch.tensor([[float(token in layout.before) for token in range(6)] for layout in layouts])
        return (10 * seen).log_softmax(1)

    words = tokenizer()
    system = script.MaskedLMSystem(masked_lm(words), words)
    [(layout, _)] = script.questions(system, INSTANCES, 1)
    there = script.replace(layout, first=(), before=(3, 1))
    bare = script.without(there, 3)
    found = script.measure(copies, None, [there, bare], [3, 3])
    mean = sum(copies(None, [layout])[0, 3].item() for layout in (there, bare)) / 2
    assert found == {"log_prob": round(mean, 2), "best": 0.0}
    assert script.measure(copies, None, [script.replace(there, before=(3,))], [3])["best"] == 100.0


def test_the_script_prints_json(script, loaded, monkeypatch, capsys):
    name, _, _, folder = loaded
    qa2d, squad = write_data(folder)
    monkeypatch.setattr(script, "read_cloze", lambda *_: type("Read", (), {"instances": INSTANCES}))
    words = ["looking_up", "--system", name, "--model", folder, "--qa2d", qa2d, "--squad", squad]
    monkeypatch.setattr("sys.argv", [str(word) for word in words])
    script.main()
    found = json.loads(capsys.readouterr().out)
    assert (found["system"], found["questions"]) == (name, 1)
    assert found["with"].keys() == found["without"].keys() == {"log_prob", "best"}
    assert found["with"]["log_prob"] < 0
