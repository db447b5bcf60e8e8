"""The command as a user runs it, and a small untrained model to run it with."""

import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from insertion_models import cached_model_of
from tiny import EN_DE, kermit_model, save

from kermit import cli
from kermit.data.joint_tokenizer import train_tokenizer


@dataclass(frozen=True)
class Outcome:
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """The JSON objects that it printed, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


Run = Callable[..., Outcome]


@pytest.fixture
def kermit(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `kermit ARGUMENTS` through its entry point, in this process."""

    def run(*arguments: object, stdin: bytes = b"", typing: bool = False, terminal: bool = False) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["kermit", *map(str, arguments)])
        source = Terminal() if typing else io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", source)
        out, err, code = io.StringIO(), Terminal() if terminal else io.StringIO(), 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                cli.main()
            except SystemExit as stop:
                code = int(stop.code or 0)
        return Outcome(code, out.getvalue(), err.getvalue())

    return run


TEXTS = ["A man rides a red bike.", "Ein Mann fährt ein rotes Rad."]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny KERMIT model of English and German, untrained, and its card."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = train_tokenizer(TEXTS * 3, 300)
    save(kermit_model(tokenizer, factorizations=["joint"], **EN_DE), tokenizer, path)
    (path / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A tiny model\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def ordered_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model that inserts in rounds or from left to right, untrained."""
    path = tmp_path_factory.mktemp("models") / "ordered"
    tokenizer = train_tokenizer(TEXTS * 3, 300)
    return save(cached_model_of(tokenizer, termination_penalty=1.5), tokenizer, path)


@pytest.fixture
def ask(kermit: Run, folder: Path) -> Run:
    """Run a command with the tiny model; it must succeed."""

    def run(verb: str, *arguments: object, **how: object) -> Outcome:
        outcome = kermit(verb, *arguments, "--model", folder, **how)
        assert outcome.code == 0, outcome.err
        return outcome

    return run
