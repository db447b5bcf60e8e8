"""The left-to-right strategy, ranking and score of every command, with a model trained for it and one that was not."""

import json
import shutil

import pytest
import torch

from kermit import DecodingSettings, Factorization, Kermit, Strategy

ORDERED = ("--decoding", "left_to_right")
ENDLESS = ("--set", "max_tokens=4", "--set", "termination_penalty=50")
GENERATE = {
    "translate": ("--to", "de", "A man."),
    "infill": ("A ____ bike.",),
    "complete": ("--x", "A ...", "--y", "... Rad", "--samples", "0"),
    "sample": (),
}
UNTRAINED = "needs a model trained with left_to_right among its orders"


@pytest.fixture
def ask_ordered(kermit, ordered_folder):
    """Run a command with the model that inserts from left to right; it must succeed."""

    def run(verb, *arguments, **how):
        outcome = kermit(verb, *arguments, "--model", ordered_folder, **how)
        assert outcome.code == 0, outcome.err
        return outcome

    return run


@pytest.fixture(scope="module")
def pipeline(ordered_folder):
    return Kermit.from_pretrained(ordered_folder)


def record(outcome):
    return json.loads(outcome.out)


@pytest.mark.parametrize("verb", list(GENERATE))
def test_every_command_inserts_one_token_after_the_other(ask_ordered, verb):
    asked = (verb, *GENERATE[verb], *ENDLESS, "--json", "--trace")
    found = record(ask_ordered(*asked, *ORDERED))
    assert (found["tokens"], found["finish"]) == (4, "max_tokens")
    rounds = [insertions for insertions in found["trace"]["rounds"] if insertions]
    assert [len(insertions) for insertions in rounds] == [1] * 4
    slots = [insertion["slot"] for (insertion,) in rounds]
    assert slots == sorted(set(slots))
    assert record(ask_ordered(*asked, "--set", "strategy=left_to_right")) == found


@pytest.mark.parametrize("verb", list(GENERATE))
def test_a_text_that_reached_a_limit_is_reported_on_stderr(ask_ordered, verb):
    assert "max_tokens; the text may be incomplete" in ask_ordered(verb, *GENERATE[verb], *ENDLESS).err
    enough = ("--set", "max_tokens=200", "--set", "termination_penalty=-50")
    assert "stopped by" not in ask_ordered(verb, *GENERATE[verb], *enough).err


@pytest.mark.parametrize("verb", list(GENERATE))
def test_a_model_that_was_not_trained_in_that_order_is_rejected(kermit, folder, verb):
    asked = (verb, *GENERATE[verb], *ENDLESS, "--model", folder)
    for how, message in (
        (ORDERED, f"left_to_right decoding {UNTRAINED}; use the strategy parallel or serial"),
        (("--set", "candidates=2", "--set", "ranking=left_to_right"), f"ranking left_to_right {UNTRAINED}"),
    ):
        done = kermit(*asked, *how)
        assert (done.code, done.out) == (2, "")
        assert message in done.err


def test_a_model_of_only_that_order_rejects_other_strategies(kermit, ordered_folder, tmp_path):
    only = Kermit.from_pretrained(ordered_folder)
    only.engine.model.config.orders = ["left_to_right"]
    only.save_pretrained(tmp_path)
    for strategy in ("parallel", "serial"):
        done = kermit("sample", *ENDLESS, "--decoding", strategy, "--model", tmp_path)
        assert (done.code, done.out) == (2, "")
        assert "use the strategy left_to_right" in done.err
    for how in ((), ORDERED):
        assert kermit("sample", *ENDLESS, *how, "--model", tmp_path).code == 0


@pytest.mark.parametrize("decoding", list(Strategy))
def test_candidates_are_ranked_from_left_to_right(ask_ordered, pipeline, decoding):
    how = ("--decoding", decoding, "--set", "max_tokens=6", "--set", "candidates=4", "--set", "ranking=left_to_right")
    found = record(ask_ordered("translate", "--to", "de", "A man.", *how, "--json"))
    settings = DecodingSettings(decoding, max_tokens=6, candidates=4, ranking="left_to_right")
    (expected,) = pipeline.translate(["A man."], "de", settings=settings)
    assert found["text"] == expected.y
    assert found["log_prob"] == pytest.approx(expected.log_prob, abs=1e-4)


@pytest.mark.parametrize("verb", list(GENERATE))
def test_a_model_decodes_with_its_own_strategy_by_default(kermit, ordered_folder, tmp_path, verb):
    folder = shutil.copytree(ordered_folder, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"strategy": "left_to_right"}), encoding="utf-8")

    def rounds(*more):
        return record(kermit(verb, *GENERATE[verb], *ENDLESS, "--json", "--model", folder, *more))["rounds"]

    assert rounds() == rounds("--decoding", "left_to_right") > rounds("--decoding", "parallel")
    facade = Kermit.from_pretrained(folder)
    assert facade.decoding({}).strategy == "left_to_right"
    own = facade.translate("A man.", "de", settings=DecodingSettings(max_tokens=4, termination_penalty=50))
    assert own.rounds >= own.tokens == 4
    (folder / "config.json").write_text(json.dumps(config | {"strategy": "sideways"}), encoding="utf-8")
    done = kermit(verb, *GENERATE[verb], "--model", folder)
    assert (done.code, done.out) == (2, "")
    assert "sideways" in done.err


def test_translating_from_left_to_right_ignores_the_models_penalty(ask_ordered, ordered_folder, pipeline):
    facade = Kermit.from_pretrained(ordered_folder)
    assert facade.decoding({}).termination_penalty == 1.5
    assert facade.decoding({"strategy": "left_to_right"}).termination_penalty is None
    told = {"strategy": "left_to_right", "termination_penalty": 2.0}
    assert facade.decoding(told).termination_penalty == 2.0
    texts = ["A man.", "red bike", "rides", "A", "a red man rides"]
    settings = DecodingSettings("left_to_right", max_tokens=9)
    expected = [result.y for result in pipeline.translate(texts, "de", settings=settings)]
    lines = ask_ordered("translate", "--to", "de", *texts, "--set", "max_tokens=9", *ORDERED, "--json").out.splitlines()
    assert [json.loads(line)["text"] for line in lines] == expected


def test_an_evaluation_reports_its_strategy(kermit, ordered_folder, corpus):
    asked = ("evaluate", "translation", "--data", corpus, "--directions", "en-de", *ENDLESS, *ORDERED, "--json")
    done = kermit(*asked, "--model", ordered_folder)
    assert done.code == 0, done.err
    (scores,) = record(done)
    assert "strategy=left_to_right" in scores["signature"]
    assert scores["mean_tokens"] == 4


# ---------------------------------------------------------------------------------------------------------------- score


@pytest.mark.parametrize("way", [None, *Factorization])
def test_a_score_is_one_exact_number_per_text(ask_ordered, pipeline, way):
    x, y = ["A", "A red bike"], ["Rad", "Ein rotes Rad"]
    expected = [score.log_prob for score in pipeline.score(x, y, factorization=way, method="left_to_right")]
    asked = ("score", "--method", "left_to_right", *(() if way is None else ("--factorization", way.value)))
    stdin = "".join(f"{pair[0]}\t{pair[1]}\n" for pair in zip(x, y, strict=True)).encode()
    found = [json.loads(line) for line in ask_ordered(*asked, "--json", stdin=stdin).out.splitlines()]
    assert [set(one) for one in found] == [{"x", "y", "log_prob", "method"}] * 2
    assert [one["method"] for one in found] == ["left_to_right"] * 2
    assert [one["log_prob"] for one in found] == pytest.approx(expected, abs=1e-4)
    plain = ask_ordered(*asked, stdin=stdin).out.splitlines()
    assert [float(line) for line in plain] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("option", [("--orders", 4), ("--prior", "uniform"), ("--temperature", 2), ("--seed", 1)])
def test_options_for_random_orders_are_rejected(kermit, ordered_folder, option):
    done = kermit("score", "A", "--method", "left_to_right", *option, "--model", ordered_folder)
    assert (done.code, done.out) == (2, "")
    assert f"{option[0]} has no effect: --method left_to_right" in done.err


def test_a_score_needs_a_model_trained_in_that_order(kermit, folder):
    done = kermit("score", "A", "--method", "left_to_right", "--model", folder)
    assert (done.code, done.out) == (2, "")
    assert "left_to_right needs a model with cached_context that was trained with left_to_right" in done.err


# ---------------------------------------------------------------------------------------------------------------- trace


@pytest.mark.parametrize("layout", ["rounds", "tree"])
@pytest.mark.parametrize("form", ["text", "svg", "html"])
@pytest.mark.parametrize(
    "what",
    [("--to", "de", "A red bike"), ("--infill", "A ____ bike ____"), ("--x", "A ...", "--y", "... Rad")],
    ids=["translate", "infill", "complete"],
)
def test_each_kind_of_decode_has_a_picture(ask_ordered, what, form, layout):
    shown = ask_ordered("trace", *what, *ENDLESS, *ORDERED, "--layout", layout, "--format", form).out
    assert shown.strip()
    if what[0] != "--x":
        assert "en" in shown or "de" in shown


def test_a_round_that_ends_a_blank_is_counted_but_not_shown(kermit, ordered_folder, tmp_path):
    ends = Kermit.from_pretrained(ordered_folder)
    with torch.no_grad():
        ends.engine.model.head.bias[ends.specials.end_of_slot_id] = 1e3  # every blank gets one token, the minimum
    ends.save_pretrained(tmp_path)
    asked = ("trace", "--infill", "A ____ man ____", *ORDERED, "--model", tmp_path)
    rounds = record(kermit(*asked, "-f", "json"))["trace"]["rounds"]
    assert [len(insertions) for insertions in rounds] == [1, 0, 1, 0]
    title, *lines = kermit(*asked).out.splitlines()
    assert title == "en"
    assert [line.split()[0] for line in lines] == ["1", "3"]
