"""`kermit augment`: its files, repeated runs, and errors."""

import gzip
import json
import re
from pathlib import Path

import pytest

from kermit.data.variants import DEFAULTS

ENGLISH = ["Tom saw 25 dogs in Boston.", "Is this Boston or Mary?", "Everything was closed yesterday."] * 10
GERMAN = ["Tom sah 25 Hunde in Boston.", "Ist das Boston oder Mary?", "Gestern war alles geschlossen."] * 10
RATES = ("--set", "copies=5", "--set", "lower=0.5", "--set", "names=0.1", "--set", "words=2")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder with train.en.gz and train.de."""
    (tmp_path / "train.en.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in ENGLISH).encode()))
    (tmp_path / "train.de").write_text("".join(f"{line}\n" for line in GERMAN), encoding="utf-8")
    return tmp_path


@pytest.fixture
def asked(texts: Path) -> tuple[object, ...]:
    return ("augment", "--x", texts / "train.en.gz", "--y", texts / "train.de", "--output", texts / "out", *RATES)


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_line_aligned_files_are_written_with_a_record_of_the_settings(kermit, texts, asked) -> None:
    done = kermit(*asked, "--seed", 1)
    assert done.code == 0, done.err
    out = texts / "out"
    names = {f"{name}.{language}" for name in ("source_x", "source_y", "both") for language in ("en", "de")}
    assert {path.name for path in out.iterdir()} == {*names, "augment.json"}
    made = json.loads((out / "augment.json").read_text(encoding="utf-8"))
    assert made["rates"] == {**DEFAULTS, "copies": 5, "lower": 0.5, "names": 0.1, "words": 2}
    assert (made["seed"], made["pairs"], made["languages"]) == (1, 30, ["en", "de"])
    assert made["lines"]["lower"] == {"source_x": 15, "source_y": 15}
    assert made["lines"]["names"] == {"both": 3}
    assert "lower: 15 lines in source_x and 15 lines in source_y\n" in done.out
    assert "copies: 5 lines in both\n" in done.out
    for name, count in made["files"].items():
        english, german = lines(out / f"{name}.en"), lines(out / f"{name}.de")
        assert len(english) == len(german) == count == sum(kind.get(name, 0) for kind in made["lines"].values())
    assert set(lines(out / "source_x.de")) <= set(GERMAN)
    assert set(lines(out / "source_y.en")) <= set(ENGLISH)


def test_repeating_the_command_does_nothing_but_restore_missing_files(kermit, texts, asked, caplog) -> None:
    first = kermit(*asked)
    file = texts / "out" / "both.de"
    content, before = file.read_bytes(), file.stat().st_mtime_ns
    again = kermit(*asked)
    assert again.out == first.out
    assert "nothing to do" in caplog.text
    assert file.stat().st_mtime_ns == before
    file.unlink()
    assert kermit(*asked).out == first.out
    assert file.read_bytes() == content


def test_a_rate_does_not_change_other_kinds(kermit, texts, asked) -> None:
    kermit(*asked)
    kermit(*asked[:6], texts / "more", *RATES, "--set", "typos=0", "--set", "lower=0.2")
    out, more = texts / "out", texts / "more"
    assert (out / "both.de").read_bytes() == (more / "both.de").read_bytes()
    assert len(lines(more / "source_x.en")) == 6 + 1
    assert set(lines(more / "source_x.en")) <= set(lines(out / "source_x.en"))


@pytest.mark.parametrize(
    ("change", "what"), [(("--seed", 2), "seed"), (("--set", "lower=0.1"), "rates"), ((), "inputs")]
)
def test_variants_made_with_other_settings_are_not_overwritten(change, what, kermit, texts, asked) -> None:
    kermit(*asked)
    if what == "inputs":
        (texts / "train.de").write_text("".join(f"{line}!\n" for line in GERMAN), encoding="utf-8")
    before = (texts / "out" / "both.en").read_bytes()
    refused = kermit(*asked, *change)
    assert (refused.code, refused.out) == (2, "")
    assert re.search(f"made with different settings .*{what}.*augment.json", refused.err)
    assert (texts / "out" / "both.en").read_bytes() == before


@pytest.mark.parametrize("name", ["both.en", "augment.json"])
def test_files_that_augment_did_not_write_are_not_overwritten(name, kermit, texts, asked) -> None:
    (texts / "out").mkdir()
    (texts / "out" / name).write_text("mine\n")
    refused = kermit(*asked)
    assert refused.code == 2
    assert name in refused.err
    assert [path.read_text() for path in (texts / "out").iterdir()] == ["mine\n"]


def test_several_pairs_of_files_are_read_and_json_is_printed(kermit, texts, asked) -> None:
    for language in ("en", "de"):
        (texts / f"more.{language}").write_text("OK, 12.\n\n", encoding="utf-8")
    more = ("--x", texts / "more.en", "--y", texts / "more.de", "--json")
    refused = kermit(*asked, *more)
    assert refused.code == 2
    assert "more.en:2: empty text" in refused.err
    record = json.loads(kermit(*asked, *more, "--skip-bad").out)
    assert set(record) == {"output", "pairs", "lines"}
    assert record["pairs"] == 31


def test_a_file_without_lines_is_not_written(kermit, texts, asked) -> None:
    off = [word for kind in DEFAULTS if kind != "copies" for word in ("--set", f"{kind}=0")]
    assert kermit(*asked, *off).out == "copies: 5 lines in both\n"
    assert sorted(path.name for path in (texts / "out").iterdir()) == ["augment.json", "both.de", "both.en"]
    nothing = kermit(*asked[:6], texts / "none", *off, "--set", "copies=0")
    assert nothing.code == 2
    assert "nothing was written; raise the rates" in nothing.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--set", "upper=1"), "upper: unknown kind"),
        (("--set", "typo=1"), "did you mean 'typos'?"),
        (("--set", "typos=2"), "typos=2: must be a share of the pairs, from 0 to 1"),
        (("--set", "typos"), "--set typos: write it as key=value"),
        (("--seed", "-1"), "--seed"),
        (("--x", "{}/nowhere.en", "--y", "{}/train.de"), "nowhere.en does not exist"),
        (("--x", "{}/short.en", "--y", "{}/train.de"), "short.en:1: the file ends here"),
        (("--x", "{}/short.en"), "--x is given 2 times and --y 1 times"),
        (("--x", "{}/short.fr", "--y", "{}/train.de"), "--x: files of several languages (en, fr)"),
        (("--x", "{}/plain", "--y", "{}/train.de"), "plain: the name does not end in a language"),
        (("--output", "{}/short.en"), "short.en is a file; give a folder"),
    ],
)
def test_wrong_input_to_augment_is_an_error(change, message, kermit, texts, asked) -> None:
    for name in ("short.en", "short.fr", "plain"):
        (texts / name).write_text("one\n")
    done = kermit(*asked, *(word.format(texts) for word in change))
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert not (texts / "out").exists()


def test_two_files_of_one_language_and_missing_text_are_errors(kermit, texts) -> None:
    (texts / "empty.en").touch()
    (texts / "empty.de").touch()
    for x, y, message in (
        ("empty.en", "empty.de", "the file is empty"),
        ("train.de", "empty.de", "both sides are named .de"),
    ):
        done = kermit("augment", "--x", texts / x, "--y", texts / y, "--output", texts / "out")
        assert done.code == 2
        assert message in done.err
