"""Every option of `train`, `distill` and `evaluate translation` does what it says."""

import json
import re
import sys

import pytest
import yaml

LIMIT = ("--set", "max_tokens=3")


@pytest.fixture
def recipe_file(tiny_recipe, tmp_path):
    path = tmp_path / "mine" / "tiny.yaml"
    path.parent.mkdir()
    schedule = {"max_steps": 2, "warmup_steps": 1}
    changes = {"schedule": schedule, "runtime": {"log_every": 1}, "evaluation": {"every": 2, "texts": 2}}
    path.write_text(yaml.safe_dump(tiny_recipe | changes), encoding="utf-8")
    return path


@pytest.mark.slow
def test_training_has_defaults_resumes_and_logs_only_to_stderr(
    kermit, recipe_file, corpus, tmp_path, monkeypatch, caplog
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERMIT_DATA", str(corpus))
    done = kermit("train", recipe_file, "--json")
    assert json.loads(done.out) == {"model": "runs/mine/tiny", "steps": 2, "metric": "bleu", "best": pytest.approx(0)}
    assert (tmp_path / "runs/mine/tiny/model.safetensors").is_file()
    assert {"step 1", "step 2"} <= {line[:6] for line in caplog.messages}
    assert any(re.match(r"step 2 of \d+.*: eval_loss \d", line) for line in caplog.messages)
    assert "add --resume" in kermit("train", recipe_file).err

    caplog.clear()
    done = kermit("train", recipe_file, "--resume", "--quiet", terminal=True)
    assert done.out.startswith("runs/mine/tiny: 2 steps")
    assert (done.code, done.err) == (0, "")
    assert caplog.messages == []


@pytest.mark.slow
def test_an_invalid_recipe_is_an_error(kermit, tmp_path):
    (tmp_path / "empty.yaml").touch()
    (tmp_path / "child.yaml").write_text("extends: parent.yaml\n", encoding="utf-8")
    (tmp_path / "file").touch()
    for arguments, message in (
        ((tmp_path,), f"{tmp_path} is a folder"),
        ((tmp_path / "empty.yaml",), "empty.yaml is empty"),
        ((tmp_path / "child.yaml",), f"parent.yaml: the recipe does not exist; {tmp_path / 'child.yaml'} extends it"),
        ((tmp_path / "child.yaml", "--output", tmp_path / "file"), "file is a file; give a folder"),
    ):
        done = kermit("train", *arguments)
        assert done.code == 2
        assert message in done.err


def test_distill_skips_bad_lines_on_request_and_continues_after_an_error(kermit, folder, tmp_path):
    text = tmp_path / "train.en"
    text.write_text("A man\n\na red bike\n", encoding="utf-8")
    asked = ("distill", "--teacher", folder, "--input", text, "--to", "de", "--output", tmp_path / "distilled")
    refused = kermit(*asked)
    assert (refused.code, refused.out) == (2, "")
    assert f"{text}:2: empty text" in refused.err

    limits = ("--set", "termination_penalty=50", "--set", "max_rounds=1", "--set", "max_tokens=1")
    refused = kermit(*asked, "--skip-bad", *limits, "--json")  # as one round is too few
    assert (refused.code, refused.out) == (2, "")
    assert "no pair is left (unfinished 2)" in refused.err
    drawn = ("--set", "temperature=1.0", "--set", "termination_penalty=-5", "--set", "seed=5")
    done = json.loads(kermit(*asked, "--skip-bad", *drawn, "--json").out)
    assert done == {
        "source": str(tmp_path / "distilled/train.en"),
        "target": str(tmp_path / "distilled/train.de"),
        "texts": done["texts"],
        "unfinished": 2 - done["texts"],
    }
    assert done["texts"] > 0
    assert f"train.de: {done['texts']} pairs, " in kermit(*asked, "--skip-bad", *drawn).out
    assert "made with different settings" in kermit(*asked, "--skip-bad").err


def test_precision_and_limit_are_respected(kermit, folder, corpus, tmp_path):
    asked = ("distill", "--teacher", folder, "--input", corpus / "train.en", "--to", "de", "--output", tmp_path)
    drawn = ("--set", "temperature=1.0", "--set", "termination_penalty=-5", "--set", "seed=5")
    found = json.loads(kermit(*asked, *drawn, "--limit", "30", "--precision", "bfloat16", "--json").out)
    assert found["texts"] + found["unfinished"] == 30
    made = json.loads((tmp_path / "train.en-de.json").read_text())
    assert (made["precision"], made["limit"]) == ("bfloat16", 30)
    scored = ("evaluate", "translation", "--model", folder, "--data", corpus, "--split", "val", *LIMIT, "--json")
    for words, name in (((), "float32"), (("--precision", "bfloat16"), "bfloat16")):
        for result in json.loads(kermit(*scored, *words).out):
            assert f"|precision:{name}|" in result["signature"]


def test_distill_runs_a_transformer_with_ctranslate2_and_filters(kermit, teacher, corpus, tmp_path, caplog):
    pytest.importorskip("ctranslate2")
    asked = ("distill", "--teacher", teacher, "--input", corpus / "train.en", "--to", "de", "--set", "max_tokens=30")
    fast = (*asked, "--backend", "ctranslate2", "--beams", 2)
    plain = json.loads(kermit(*fast, "--output", tmp_path / "plain", "--json").out)
    assert set(plain) == {"source", "target", "texts", "unfinished"}
    assert plain["texts"] + plain["unfinished"] == 240
    note = json.loads((tmp_path / "plain/train.en-de.json").read_text())
    assert (note["backend"], note["precision"], note["decoding"]["beams"]) == ("ctranslate2", "int8", 2)

    found = json.loads(kermit(*fast, "--output", tmp_path / "filtered", "--filter", "--json").out)
    assert list(found["filtered"]) == ["length", "copy", "repetition", "language"]
    left_out = sum(found["filtered"].values())
    assert left_out > 0, "it was trained for a moment"
    assert found["texts"] == plain["texts"] - left_out == len((tmp_path / "filtered/train.de").read_text().splitlines())
    assert json.loads((tmp_path / "filtered/train.en-de.json").read_text())["filtered"] == found["filtered"]
    assert any(f"{left_out} pairs left out by the filter (length " in line for line in caplog.messages)
    told = kermit(*fast, "--output", tmp_path / "filtered", "--filter").out  # nothing is repeated
    left_out += found["unfinished"]
    assert f"{found['texts']} pairs, {left_out} left out (unfinished {found['unfinished']}, length " in told

    slow = json.loads(kermit(*asked, "--beams", 2, "--output", tmp_path / "slow", "--json").out)
    assert abs(slow["texts"] - plain["texts"]) < 24


@pytest.mark.slow
def test_distill_runs_an_exported_model_with_onnx_runtime(kermit, folder, corpus, tmp_path):
    assert kermit("export", folder, "--precision", "float32", "--output", tmp_path / "exported").code == 0
    drawn = ("--set", "temperature=1.0", "--set", "termination_penalty=-5", "--set", "seed=5")
    asked = ("distill", "--input", corpus / "train.en", "--to", "de", "--limit", 30, *drawn, "--json")
    fast = kermit(*asked, "--teacher", tmp_path / "exported", "--backend", "onnx", "--output", tmp_path / "fast")
    slow = kermit(*asked, "--teacher", folder, "--output", tmp_path / "slow")
    assert json.loads(fast.out)["texts"] == json.loads(slow.out)["texts"] > 0
    assert (tmp_path / "fast/train.de").read_text() == (tmp_path / "slow/train.de").read_text()
    note = json.loads((tmp_path / "fast/train.en-de.json").read_text())
    assert (note["backend"], note["precision"]) == ("onnx", "float32")


def test_unsupported_uses_of_a_backend_are_errors(kermit, folder, teacher, corpus, tmp_path, monkeypatch):
    asked = ("distill", "--input", corpus / "test.en", "--to", "de", "--output", tmp_path / "out", "--teacher")
    fast = ("--backend", "ctranslate2")
    for words, message in (
        ((folder, *fast), "supports only the family transformer"),
        ((folder, "--beams", 3), "beams need the strategy left_to_right"),
        ((teacher, "--precision", "int8"), "--precision int8 needs --backend ctranslate2 or onnx"),
        ((teacher, "--backend", "onnx"), "--backend onnx needs a KERMIT model, not one of type marian"),
        ((folder, "--backend", "onnx"), "create it with `kermit export"),
        ((teacher, "--beams", 3, "--set", "beams=4"), "--set beams=4 and --beams both"),
    ):
        done = kermit(*asked, *words)
        assert (done.code, done.out) == (2, "")
        assert message in done.err
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert (
        "needs the package ctranslate2; pip install 'kermit-insertion[distill]'" in kermit(*asked, teacher, *fast).err
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "place", "message"),
    [
        ("--input", "folder", " is a folder; give a file"),
        ("--input", "nowhere", " does not exist"),
        ("--input", "empty", ": the file holds no text to translate"),
        ("--output", "empty", " is a file; give a folder"),
    ],
)
def test_wrong_input_to_distill_is_an_error(option, place, message, kermit, folder, corpus, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    asked = {"--input": corpus / "test.en", "--output": tmp_path / "out"} | {option: tmp_path / place}
    words = [word for pair in asked.items() for word in pair]
    done = kermit("distill", "--teacher", folder, "--to", "de", *words)
    assert done.code == 2
    assert f"{tmp_path / place}{message}" in done.err


def test_evaluation_respects_its_options(kermit, folder, corpus, tmp_path):
    def scores(*options):
        done = kermit("evaluate", "translation", "--model", folder, "--data", corpus, *LIMIT, *options, "--json")
        assert done.code == 0, done.err
        return json.loads(done.out)

    both = scores()
    assert [one["direction"] for one in both] == ["en-de", "de-en"]
    assert "split:test|" in both[0]["signature"]
    (one,) = scores("--directions", "de-en", "--split", "val", "--decoding", "serial", "--output", tmp_path / "found")
    assert one["direction"] == "de-en"
    for part in ("split:val|", "strategy=serial", "max_tokens=3"):
        assert part in one["signature"]
    assert one["mean_tokens"] <= 3
    assert [path.name for path in tmp_path.iterdir()] == ["found.en"]
    assert len((tmp_path / "found.en").read_text(encoding="utf-8").splitlines()) == 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--directions", ""), "write it as en-de"),
        (("--directions", "en-fr"), "the model was not trained for en-fr, only for en-de, de-en"),
        (("--split", "dev"), "holds neither dev.en nor dev.en.gz"),
        (("--split", "none"), "none.en: the file is empty"),
        (("--plot", "{data}"), "--plot {data} is a folder"),
        (("--output", "{data}/val"), "{data}/val.de is the reference; choose another name"),
        (("--output", "{data}/no/val"), "the folder {data}/no does not exist"),
    ],
)
def test_wrong_input_to_evaluate_is_an_error(arguments, message, kermit, folder, tmp_path):
    for name in ("none.en", "none.de"):
        (tmp_path / name).touch()
    for name in ("val.en", "val.de"):
        (tmp_path / name).write_text("A man\n", encoding="utf-8")
    split = () if "--split" in arguments else ("--split", "val")
    filled = [argument.format(data=tmp_path) for argument in arguments]
    done = kermit("evaluate", "translation", "--model", folder, "--data", tmp_path, *split, *filled)
    assert (done.code, done.out) == (2, "")
    assert message.format(data=tmp_path) in done.err
    assert (tmp_path / "val.de").read_text(encoding="utf-8") == "A man\n"
