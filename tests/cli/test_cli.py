"""The commands as a user runs them: from a recipe to scores, where texts come from and go to, and how they fail."""

import gzip
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
import yaml

import kermit as package
from kermit.cli import app

Run = Callable[..., Any]


@pytest.fixture
def recipe_file(tiny_recipe: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny_recipe), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_recipe_is_trained_evaluated_and_used_for_translation(
    kermit: Run, recipe_file: Path, corpus: Path, tmp_path: Path
) -> None:
    model, data = tmp_path / "model", ("--data", corpus)
    done = kermit("train", recipe_file, *data, "--output", model, "--set", "schedule.max_steps=6")
    assert done.code == 0
    assert f"{model}: 6 steps, best validation BLEU" in done.out

    beams = ("--set", "beams=2", "--set", "max_tokens=8")
    say = ("translate", "--model", model, "--to", "de", *beams)
    records = [json.loads(line) for line in kermit(*say, "one two.", "three", "--json").out.splitlines()]
    assert [record["source"] for record in records] == ["one two.", "three"]
    assert set(records[0]) == {"source", "text", "rounds", "tokens", "log_prob", "finish"}
    assert kermit(*say, "one two.", "", "three").out.split("\n")[1] == ""
    assert "does not insert, so it has no rounds" in kermit(*say, "one", "--trace").err
    too_long = kermit(*say, stdin=b"one\n" + b"two " * 500)
    assert (too_long.code, too_long.err.startswith("error: stdin:2: ")) == (2, True)

    score = ("evaluate", "translation", "--model", model, *data, "--split", "test", *beams)
    plot = tmp_path / "rounds.png"
    (scores,) = json.loads(kermit(*score, "--directions", "en-de", "--json", "--plot", plot).out)
    assert scores["direction"] == "en-de"
    assert "family:transformer" in scores["signature"]
    assert plot.is_file()
    assert "BLEU" in kermit(*score).out

    distill = ("distill", "--teacher", model, "--to", "de", "--input", corpus / "test.en", *beams)
    assert "no pair is left (unfinished" in kermit(*distill, "--output", tmp_path / "distilled").err, (
        "it was hardly trained"
    )
    assert not (tmp_path / "distilled" / "test.de").exists()

    refused = kermit("infill", "one ____", "--model", model)
    assert refused.code == 2
    assert "a model of type marian can only translate" in refused.err


ENDS = ("--set", "termination_penalty=-100")  # at once, so that no limit is reported
LIMIT = ("--set", "max_tokens=4")


def test_texts_are_the_same_from_arguments_a_file_a_gzipped_file_and_stdin(ask: Run, tmp_path: Path) -> None:
    texts = ["A man.", "", "a red bike"]
    plain, packed = tmp_path / "texts.txt", tmp_path / "texts.gz"
    plain.write_bytes("\ufeff".encode() + "\r\n".join(texts).encode())
    packed.write_bytes(gzip.compress("\n".join(texts).encode()))
    whole = ask("translate", "--to", "de", *LIMIT, *texts).out
    assert whole.count("\n") == 3
    for source in (("--input", plain), ("-i", packed)):
        assert ask("translate", "--to", "de", *LIMIT, *source).out == whole
    for arguments in ((), ("--input", "-")):
        assert ask("translate", "--to", "de", *LIMIT, *arguments, stdin=plain.read_bytes()).out == whole


def test_texts_can_be_read_from_a_named_pipe(ask: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"A man.\n",))
    writer.start()
    assert (
        ask("translate", "--to", "de", *LIMIT, "-i", pipe).out == ask("translate", "--to", "de", *LIMIT, "A man.").out
    )
    writer.join()


def test_line_n_of_the_output_is_for_line_n_of_the_input(ask: Run) -> None:
    lines = ask("translate", "--to", "y", *LIMIT, "--set", "termination_penalty=50", stdin=b"A\r\n\r\n \nman\n").out
    assert [line != "" for line in lines.removesuffix("\n").split("\n")] == [True, False, False, True]


def test_empty_stdin_gives_no_results(ask: Run) -> None:
    for verb in ("infill", "complete", "score", "embed"):
        assert ask(verb).out == ""


def test_the_output_file_gets_its_name_once_it_is_complete(
    ask: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.txt"
    texts = ["A man.", "a red bike", "red"]
    printed = ask("translate", "--to", "de", *LIMIT, *texts).out
    assert ask("translate", "--to", "de", *LIMIT, *texts, "--output", target).out == ""
    assert target.read_text(encoding="utf-8") == printed
    packed, link = tmp_path / "out.gz", tmp_path / "link"
    link.symlink_to(target)
    for place in (packed, link):
        ask("translate", "--to", "de", *LIMIT, *texts[:2], "--output", place)
    assert gzip.decompress(packed.read_bytes()) == target.read_bytes()  # the old file is replaced, through the link
    assert printed.startswith(target.read_text(encoding="utf-8"))
    assert link.is_symlink()

    target.unlink()
    monkeypatch.setattr("kermit.cli.inputs.CHUNK", 2)
    whole, calls = package.Kermit.translate, []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(*arguments, **options)

    monkeypatch.setattr(package.Kermit, "translate", interrupted)
    with pytest.raises(AssertionError):
        ask("translate", "--to", "de", *LIMIT, *texts, "--output", target)
    assert not target.exists()
    assert printed.startswith((tmp_path / "out.txt.part").read_text(encoding="utf-8"))
    assert (tmp_path / "out.txt.part").stat().st_size > 0


def test_the_rounds_go_to_the_file_too(ask: Run, tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    ask("infill", "A ____", "--max-tokens-per-blank", 2, "--trace", "-o", target)
    assert target.read_text(encoding="utf-8").startswith("en\n  1  A[")


def test_a_progress_bar_appears_after_a_second_on_a_terminal(ask: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    say = ("translate", "--to", "de", *ENDS, "A man.")
    monkeypatch.setattr("kermit.cli.options.BAR_DELAY", 1000.0)
    assert "to de" not in ask(*say, terminal=True).err  # finished before a progress bar appears
    monkeypatch.setattr("kermit.cli.options.BAR_DELAY", 0.0)
    assert "to de" in ask(*say, terminal=True).err
    assert ask(*say, "-q", terminal=True).err == ""
    assert ask(*say).err == ""


def test_quiet_may_come_before_the_command(kermit: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kermit.cli.options.BAR_DELAY", 0.0)
    done = kermit("--quiet", "sample", *ENDS, "--model", folder, terminal=True)
    assert (done.code, done.err) == (0, "")


def test_a_closed_output_pipe_ends_the_command_silently(
    ask: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    read, write = os.pipe()
    os.close(read)
    errors = io.StringIO()
    monkeypatch.setattr(sys, "argv", ["kermit", "sample", *ENDS, "--model", str(folder)])
    with os.fdopen(write, "w") as nobody, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", nobody)
        patch.setattr(sys, "stderr", errors)
        with pytest.raises(SystemExit) as stop:
            package.cli.main()
        patch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), nobody.fileno())  # so that closing it does not fail
    assert stop.value.code == 1
    assert errors.getvalue() == ""


def test_an_interruption_exits_with_130_and_no_traceback(
    kermit: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kermit.pipeline.Kermit.sample", interrupt)
    done = kermit("sample", "--model", folder)
    assert (done.code, done.out, done.err) == (130, "", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "nowhere.yaml"), "nowhere.yaml: the recipe does not exist"),
        (("train", "{recipe}", "--set", "optimizer.learnig_rate=1"), "did you mean 'learning_rate'?"),
        (("train", "{recipe}", "--data", "/nowhere"), "train.en: the file does not exist"),
        (("translate", "--to", "de", "text", "--input", "{recipe}"), "give texts as arguments or with --input FILE"),
        (("translate", "--to", "de", "--input", "/nowhere"), "--input /nowhere does not exist"),
        (("translate", "--to", "de", "--input", "{bad}"), "{bad}:2: invalid UTF-8"),
        (("translate", "--to", "de", "a \udcff"), "argument 1: invalid UTF-8"),
        (("translate", "--to", "de", "--model", "/nowhere", "text"), "/nowhere does not exist"),
        (("translate", "--to", "de", "text", "--output", "/nowhere/out.txt"), "--output /nowhere/out.txt: No such"),
        (("infill", "--input", "{tabs}"), "{tabs}:1: more than one tab"),
        (("embed", "text", "--output", "/nowhere/out.npy"), "the folder /nowhere does not exist"),
        (("embed", "text", "--output", "out.npy", "--json"), "--json"),
        (("evaluate", "nothing"), "No such command"),
        (
            ("evaluate", "translation", "--model", "m", "--data", "d", "--plot", "/nowhere/a.png"),
            "folder /nowhere does not exist",
        ),
    ],
)
def test_user_errors_have_no_traceback_and_exit_with_2(
    arguments: tuple[str, ...],
    message: str,
    kermit: Run,
    folder: Path,
    recipe_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad, tabs = tmp_path / "bad.txt", tmp_path / "tabs.txt"
    bad.write_bytes(b"fine\n\xff\n")
    tabs.write_text("a\tb\tc\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    places = {"recipe": recipe_file, "bad": bad, "tabs": tabs}
    filled = [argument.format(**places) for argument in arguments]
    if arguments[0] in ("translate", "infill") and "--model" not in arguments:
        filled += ["--model", str(folder)]
    done = kermit(*filled)
    assert done.code == 2
    assert message.format(**places) in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert done.out == ""


def test_no_text_on_an_interactive_terminal_is_an_error(kermit: Run, folder: Path) -> None:
    done = kermit("translate", "--to", "de", "--model", folder, typing=True)
    assert done.code == 2
    assert "give texts as arguments, with --input FILE, or on stdin" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1, 2, 4])
def test_debug_shows_the_traceback_anywhere_on_the_command_line(place: int, kermit: Run, recipe_file: Path) -> None:
    arguments: list[object] = ["train", recipe_file, "--set", "nothing=1"]
    arguments.insert(place, "--debug")
    done = kermit(*arguments)
    assert done.code == 2
    assert "Traceback" in done.err
    assert "Traceback" not in kermit("train", recipe_file, "--set", "nothing=1").err


def test_the_module_prints_the_version_too() -> None:
    done = subprocess.run([sys.executable, "-m", "kermit", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"kermit {package.__version__}\n"
    assert app.info.name == "kermit"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("translate", "text"), "Missing option '--to'; see kermit translate --help"),
        (("translate", "--to", "de", "--decoding", "diagonal", "text"), "Invalid value for '--decoding'"),
        (("sample", "-n", "0"), "see kermit sample --help"),
        (("evaluate", "translation", "--nothing"), "No such option: --nothing"),
        (("--nothing",), "see kermit --help"),
        (("nothing",), "No such command 'nothing'"),
    ],
)
def test_a_wrong_command_is_a_one_line_error(kermit: Run, arguments: tuple[str, ...], message: str) -> None:
    done = kermit(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert message in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("more", [(), ("--input", "-")])
def test_a_closed_stdin_counts_as_no_text(
    kermit: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kermit", "translate", "--to", "de", "--model", str(folder), *more])
    monkeypatch.setattr(sys, "stdin", None)
    errors = io.StringIO()
    with pytest.raises(SystemExit) as stop, redirect_stderr(errors):
        package.cli.main()
    assert stop.value.code == 2
    assert "give texts as arguments, with --input FILE, or on stdin" in errors.getvalue()


def test_translate_samples_with_a_seed_and_rejects_one_without_sampling(kermit: Run, folder: Path) -> None:
    def text(*more: object) -> str:
        limits = ("--set", "max_tokens=6", "--set", "termination_penalty=5")
        done = kermit("translate", "--to", "de", "--model", folder, "A man", *limits, *more)
        assert done.code == 0, done.err
        return done.out

    hot = ("--set", "temperature=3")
    drawn = [text(*hot, "--seed", seed) for seed in (0, 1, 2, 0)]
    assert len(set(drawn)) > 1
    assert drawn[0] == drawn[3] == text(*hot)
    for words, message in (
        (("--seed", 3), "--seed"),
        (("--set", "seed=3"), "--set seed: use --seed"),
    ):
        done = kermit("translate", "--to", "de", "--model", folder, "A man", *words)
        assert (done.code, done.out) == (2, "")
        assert message in done.err


def test_a_trace_of_candidates_accepts_a_seed(ask: Run) -> None:
    how = ("--set", "candidates=2", "--set", "max_tokens=4", "--seed", 3)
    assert "A" in ask("trace", "--infill", "A ____.", *how).out
    assert ask("trace", "--to", "de", "A man", *how).out


def test_a_huge_number_is_not_an_internal_error(ask: Run) -> None:
    assert ask("infill", "A ____", "--max-tokens-per-blank", 10**30, "--set", "max_tokens=4").out
    assert ask("translate", "--to", "de", "A", "--set", f"max_tokens={10**30}", "--set", "max_rounds=2").out is not None
