"""Every option of the commands that use a model works, and options without effect are rejected."""

import json

import numpy as np
import pytest

LIMIT = ("--set", "max_tokens=4")
ENDLESS = (*LIMIT, "--set", "termination_penalty=50")
GENERATE = {
    "translate": ("--to", "de", "A man."),
    "infill": ("A ____ bike.",),
    "complete": ("--x", "A ...", "--y", "... Rad", "--samples", "0"),
    "sample": (),
}


def record(outcome):
    return json.loads(outcome.out)


@pytest.mark.parametrize("verb", list(GENERATE))
def test_decoding_and_settings_reach_the_decoder(ask, verb):
    asked = (verb, *GENERATE[verb], *ENDLESS, "--json")
    serial = record(ask(*asked, "--decoding", "serial"))
    parallel = record(ask(*asked, "--decoding", "parallel"))
    assert (serial["tokens"], serial["rounds"], serial["finish"]) == (4, 5, "max_tokens")
    assert parallel["rounds"] < 5
    assert record(ask(*asked, "--set", "max_tokens=2"))["tokens"] == 2
    assert record(ask(*asked, "--decoding", "serial", "--set", "max_rounds=1"))["finish"] == "max_rounds"


@pytest.mark.parametrize("verb", list(GENERATE))
def test_the_likeliest_of_several_candidates_is_no_less_likely_than_the_first(ask, verb):
    asked = (verb, *GENERATE[verb], *LIMIT, "--set", "max_rounds=3", "--json")
    first = record(ask(*asked))
    best = record(ask(*asked, "--set", "candidates=6", "--set", "ranking=likelihood"))
    assert best["rounds"] >= first["rounds"]
    if best["finish"] == first["finish"]:
        a_token = [one["log_prob"] / (one["tokens"] + 1) for one in (first, best)]
        assert a_token[1] >= a_token[0] - 1e-5


def test_zero_candidates_are_an_error(kermit, folder):
    outcome = kermit("infill", "A ____ bike.", "--set", "candidates=0", "--model", folder)
    assert outcome.code == 2
    assert "candidates" in outcome.err


def test_a_seed_is_allowed_with_candidates(ask):
    asked = ("infill", "A ____ bike.", *ENDLESS, "--set", "candidates=3")
    assert ask(*asked, "--seed", 3).out == ask(*asked, "--seed", 3).out


@pytest.mark.parametrize("verb", ["infill", "complete", "sample"])
def test_samples_depend_on_the_seed(ask, verb):
    samples = () if verb == "sample" else ("--samples", 1)
    asked = (verb, *GENERATE[verb][:4], *samples, *ENDLESS, "--set", "temperature=5", "--json")
    drawn = [record(ask(*asked, "--seed", seed)) for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1]
    assert [one.pop("seed") for one in drawn] == [3, 3, 4]
    assert drawn[0] != drawn[2]


@pytest.mark.parametrize("verb", ["complete", "sample", "score", "embed"])
def test_results_go_to_the_file(ask, verb, tmp_path):
    arguments = {"score": ("A man", "--orders", 2), "embed": ("A man",)}.get(verb, (*GENERATE.get(verb, ()), *LIMIT))
    target = tmp_path / "out.txt"
    printed = ask(verb, *arguments).out
    assert ask(verb, *arguments, "--output", target).out == ""
    assert target.read_text(encoding="utf-8") == printed != ""


@pytest.mark.parametrize("verb", ["infill", "score", "embed"])
def test_texts_come_from_a_file(ask, verb, tmp_path):
    arguments = ("--orders", 2) if verb == "score" else LIMIT if verb == "infill" else ()
    texts = tmp_path / "texts.txt"
    texts.write_text("A man ____\nred ____\n", encoding="utf-8")
    assert ask(verb, "--input", texts, *arguments).out == ask(verb, "A man ____", "red ____", *arguments).out


def test_the_number_of_tokens_per_blank_is_limited(ask):
    for bounds, tokens in ((("--min-tokens-per-blank", 5), 5), (("--max-tokens-per-blank", 2), 2)):
        penalty = -50 if tokens == 5 else 50
        asked = ("infill", "A ____ bike.", *bounds, "--set", f"termination_penalty={penalty}", "--json")
        assert record(ask(*asked))["tokens"] == tokens


def test_the_temperature_of_the_prior_changes_the_estimate(ask):
    asked = ("score", "A man rides a red bike.", "--prior", "balanced_tree", "--orders", 4)
    assert ask(*asked, "--temperature", 0.1).out != ask(*asked, "--temperature", 5).out


def test_one_side_given_alone_is_a_text_of_that_side(ask):
    for option, side in (("--x", "en"), ("--y", "de")):
        for verb, arguments in (("score", ("--orders", 2)), ("embed", ()), ("infill", LIMIT)):
            text = "red ____"
            alone = ask(verb, option, text, *arguments, "--json")
            assert alone.out == ask(verb, text, "--side", side, *arguments, "--json").out
            assert set(record(alone)) & {"x", "y"} == {option[2:]}


def test_an_empty_line_stays_empty(ask):
    assert ask("infill", *LIMIT, stdin=b"A ____\n\nred ____\n").out.split("\n")[1] == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("infill", "A man ___"), "argument 1: no blank to fill; write a blank as four underscores, ____"),
        (("infill", "A ____", "A man"), "argument 2: no blank to fill"),
        (("complete", "--x", "A man", "--y", "Rad"), "the pair: no open place; write ... where text may be inserted"),
        (("infill", "A ____", "--seed", 1), "--seed has no effect"),
        (("complete", "--x", "A", "--samples", 0, "--seed", 1), "--seed has no effect"),
        (("infill", "--x", "A ____", "--side", "de"), "--side has no effect"),
        (("embed", "--x", "A", "--y", "B", "--side", "x"), "--side has no effect"),
        (("score", "A", "--temperature", 2), "--temperature"),
        (("score", "A", "--method", "exact", "--orders", 2), "--orders has no effect"),
        (("score", "A", "--method", "exact", "--prior", "uniform"), "--prior has no effect"),
        (("score", "A", "--side", "de", "--factorization", "x"), "the factorization x needs the first side"),
        (("score", "--x", "A", "--factorization", "y_given_x"), "the factorization y_given_x needs the second side"),
    ],
)
def test_an_option_without_effect_is_rejected(kermit, folder, arguments, message):
    done = kermit(*arguments, "--model", folder)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_a_folder_instead_of_a_file_is_an_error(kermit, folder, tmp_path):
    taken = tmp_path / "out.npy"
    taken.mkdir()
    for arguments in (("embed", "A", "--output", taken), ("embed", "--input", taken), ("translate", "-i", taken)):
        to = ("--to", "de") if arguments[0] == "translate" else ()
        done = kermit(*arguments, *to, "--model", folder)
        assert done.code == 2
        assert f"{taken} is a folder" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["out.npy"]


def test_pairs_are_embedded_from_a_file(ask, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("A man\tEin Mann\n", encoding="utf-8")
    from_file = np.loadtxt(ask("embed", "--input", pairs).out.splitlines())
    np.testing.assert_array_equal(
        from_file, np.loadtxt(ask("embed", "--x", "A man", "--y", "Ein Mann").out.splitlines())
    )


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (("sample", "--seed", 5, "--set", "temperature=null"), "--seed has no effect"),
        (("sample", "-n", 2, "--set", "temperature=null"), "--count has no effect"),
        (("infill", "A ____", "--decoding", "parallel", "--set", "strategy=serial"), "repeats --decoding parallel"),
        (("translate", "--to", "de", "A", "--decoding", "serial", "--set", "strategy=serial"), "remove one of them"),
    ],
)
def test_decoding_options_without_effect_are_rejected(kermit, folder, asked, why):
    outcome = kermit(*asked, "--model", folder)
    assert outcome.code == 2
    assert why in outcome.err


def test_sampling_without_a_temperature_is_greedy(ask):
    first, again = (ask("sample", *LIMIT, "--set", "temperature=null").out for _ in range(2))
    assert first == again


def test_the_error_lists_only_settings_that_are_accepted(kermit, folder):
    outcome = kermit("translate", "--to", "de", "A", "--set", "nothing=1", "--model", folder)
    assert outcome.code == 2
    assert "seed" not in outcome.err.split("known:")[1]
