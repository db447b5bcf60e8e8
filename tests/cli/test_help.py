"""The help and its page are fast, have an example of each command, and describe existing options."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.main import get_command

from kermit.cli import app
from kermit.cli.verbs import PANELS
from kermit.decoding import Strategy
from kermit.results import ScoreMethod

ROOT_FOLDER = Path(__file__).parents[2]
PAGE = (ROOT_FOLDER / "docs" / "cli.md").read_text(encoding="utf-8")
PAGES = [ROOT_FOLDER / "README.md", *sorted((ROOT_FOLDER / "docs").glob("*.md"))]
ROOT: Any = get_command(app)


def verbs(command: Any = ROOT, name: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command, `evaluate translation` as two words."""
    for word, below in command.commands.items():
        if hasattr(below, "commands"):
            yield from verbs(below, (*name, word))
        else:
            yield (*name, word), below


VERBS = dict(verbs())


def examples(text: str) -> list[list[str]]:
    """The commands of a text, split as in a shell."""
    found = []
    for line in text.splitlines():
        for part in re.split(r"\| *|> *\S+$", re.sub(r"^\s*(Example: *)?(\.venv/bin/)?([A-Z_]+=\S+ +)?", "", line)):
            if part.startswith("kermit "):
                found.append(shlex.split(part, comments=True)[1:])
    return found


def check(arguments: list[str]) -> None:
    """Whether the command has these options; nothing is run."""
    command, words = ROOT, list(arguments)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        command = command.commands[words.pop(0)]
    if command is ROOT:
        assert set(words) <= {option for parameter in ROOT.params for option in parameter.opts}
    else:
        command.make_context(command.name, words)


def test_help_does_not_import_heavy_packages() -> None:
    script = (
        "import sys, kermit.cli\n"
        f"for words in {[[], *map(list, VERBS)]!r}:\n"
        "    sys.argv = ['kermit', *words, '--help']\n"
        "    try:\n        kermit.cli.main()\n"
        "    except SystemExit as stop:\n        assert not stop.code, words\n"
        "heavy = {'torch', 'transformers', 'datasets', 'numpy', 'sacrebleu', 'matplotlib'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for verb in VERBS:
        assert verb[-1] in done.stdout


def test_commands_are_grouped_by_purpose(kermit) -> None:
    shown = kermit("--help").out
    places = [shown.index(f" {panel} ─") for panel in PANELS]
    assert places == sorted(places)
    assert [ROOT.commands[name].rich_help_panel in PANELS for name in ROOT.commands] == [True] * len(ROOT.commands)
    use = shown[places[0] : places[1]]
    assert re.findall(r"│ (\w+) ", use) == [
        "translate",
        "infill",
        "complete",
        "sample",
        "score",
        "embed",
        "trace",
        "info",
    ]


@pytest.mark.parametrize("verb", [pytest.param(verb, id=" ".join(verb)) for verb in VERBS])
def test_the_help_of_a_command_describes_it_and_has_a_valid_example(verb) -> None:
    text = VERBS[verb].help
    assert not text.splitlines()[0].startswith("Example")
    (example,) = examples(text)
    assert tuple(example[: len(verb)]) == verb
    check(example)


@pytest.mark.parametrize("verb", [pytest.param(verb, id=" ".join(verb)) for verb in VERBS])
def test_options_are_explained(verb) -> None:
    for parameter in VERBS[verb].params:
        assert parameter.help, parameter.name


def test_the_page_has_exactly_one_section_per_command() -> None:
    assert sorted(re.findall(r"^## kermit (\w+)$", PAGE, re.MULTILINE)) == sorted(ROOT.list_commands(None))


def commands(text: str) -> list[list[str]]:
    """The commands of a page's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [example for block in blocks for example in examples(block.replace("\\\n", " "))]


def test_the_page_has_an_example_of_every_command() -> None:
    assert {example[0] for example in commands(PAGE)} >= set(ROOT.commands)


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_every_command_on_every_page_is_valid(page: Path) -> None:
    for example in commands(page.read_text(encoding="utf-8")):
        check(example)


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_every_script_on_a_page_exists_and_has_its_options(page: Path) -> None:
    for script, words in re.findall(
        r"python ((?:benchmarks|docs|examples)/\S+\.py)([^`\n#]*)", page.read_text("utf-8")
    ):
        source = (ROOT_FOLDER / script).read_text(encoding="utf-8")
        for option in re.findall(r"--[a-z][a-z0-9-]*", words):
            assert f'"{option}"' in source, (script, option)


def fields(verb: str) -> set[str]:
    """The JSON fields that the page documents for the command."""
    (section,) = re.findall(rf"^## kermit {verb}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    (line,) = re.findall(r"^Fields: (.*?)(?:\n\n|\Z)", section, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`(\w+)`", line))


LIMIT = ("--set", "max_tokens=3")


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("translate", ("--to", "de", "A", *LIMIT, "--trace", "--json")),
        ("infill", ("--x", "A ____", "--y", "B", *LIMIT, "--samples", 1, "--trace", "--json")),
        ("complete", ("--x", "A ...", "--y", "... B", *LIMIT, "--trace", "--json")),
        ("sample", (*LIMIT, "--trace", "--json")),
        ("score", ("--x", "A", "--y", "B", "--orders", 2, "--json")),
        ("embed", ("--x", "A", "--y", "B", "--json")),
        ("trace", ("--to", "de", "A", *LIMIT, "--format", "json")),
        ("info", ("--json",)),
    ],
)
def test_the_fields_on_the_page_are_those_that_are_printed(verb, arguments, ask) -> None:
    record = json.loads(ask(verb, *arguments).out)
    assert fields(verb) - {"importance"} == set(record)
    if "trace" in record:
        about = PAGE[PAGE.index("A `trace` holds") :].split("\n\n")[0]
        insertion = record["trace"]["rounds"][0][0]
        assert {*record["trace"], *insertion} <= set(re.findall(r"`(\w+)`", about))


def test_completion_offers_commands_and_option_values() -> None:
    def completed(line: str) -> list[str]:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        script = "import sys; sys.argv = ['kermit']; import kermit.cli; kermit.cli.main()"
        environment = {**os.environ, "_KERMIT_COMPLETE": "complete_bash", **words}
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            env=environment,
            cwd=ROOT_FOLDER,
            check=False,
        )
        return done.stdout.split()

    assert {"translate", "trace"} <= set(completed("kermit tra"))
    assert set(completed("kermit embed --pooling ")) == {"mean", "first"}
    assert set(completed("kermit sample --decoding ")) == set(Strategy)
    assert set(completed("kermit evaluate cloze --decoding ")) == set(Strategy)
    assert set(completed("kermit score --method ")) == set(get_args(ScoreMethod))
    assert set(completed("kermit translate --to ")) == {"en", "de"}
    assert set(completed("kermit translate --set strategy=p")) == {"strategy=parallel"}
    assert {"temperature=", "top_k="} <= set(completed("kermit sample --set t"))
    assert {"schedule.max_steps=", "schedule.name="} <= set(completed("kermit train recipes/quickstart.yaml --set sch"))
    assert "typos=" in completed("kermit augment --set ty")


def test_flags_are_shown_without_a_value_in_the_help(kermit) -> None:
    for verb in (("translate",), ("info",), ("evaluate", "cloze")):
        shown = kermit(*verb, "--help").out
        assert "--json" in shown
        assert "bool" not in shown


def test_arguments_are_shown_by_name_and_not_by_type(kermit):
    shown = kermit("infill", "--help").out
    assert "[TEXT]..." in shown
    assert "<list[str]>" not in shown
