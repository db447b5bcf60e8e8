"""Every ```python block of the README and the docs runs, and prints what the ```output block below it says."""

import io
import re
import runpy
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
import yaml
from tiny import EN_DE, bert, kermit_model, save
from transformers import BertModel

import kermit
from kermit.data.joint_tokenizer import train_tokenizer

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


TRAINING = {"extending.md"}
"""Pages whose examples train a model."""


def named(pages: list[Path]) -> list[object]:
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.slow] if page.name in TRAINING else [])
        for page in pages
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models that the pages name: tiny, with random weights."""
    folder = tmp_path_factory.mktemp("docs")
    numbers = "one two three four five six seven eight nine eins zwei drei vier fünf sechs sieben acht neun"
    tokenizer = train_tokenizer([numbers] * 3, 400)
    trunk = bert(tokenizer, width=32, layers=2)
    save(kermit_model(tokenizer, trunk, **EN_DE), tokenizer, folder / "my-model")
    save(BertModel(trunk), tokenizer, folder / "my-encoder")
    return folder


@pytest.mark.parametrize("page", named(PAGES))
def test_a_page_runs_and_prints_what_it_says(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    text = page.read_text("utf-8")
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for found in BLOCK.finditer(text):
        language, block = found.groups()
        if language == "output":
            assert printed == block
        elif language == "python":
            line = text.count("\n", 0, found.start()) + 1
            out = io.StringIO()
            with redirect_stdout(out):
                exec(compile("\n" * line + block, str(page), "exec"), names)
            printed = "\n".join(row.rstrip() for row in out.getvalue().splitlines()) + "\n"


def test_the_prior_of_the_readme_weighs_every_span_as_it_says() -> None:
    blocks = [block for _, block in BLOCK.findall((ROOT / "README.md").read_text("utf-8")) if "OrderPrior" in block]
    names: dict[str, Any] = {}
    exec(blocks[0], names)
    kept = torch.tensor([[True, False, False, True, False, False, True]])
    weights = names["objective"].prior.slot_weights(kept, torch.ones_like(kept))
    assert weights[0].tolist() == pytest.approx([0, 1 / 3, 2 / 3, 0, 3 / 7, 4 / 7, 0])


@pytest.mark.parametrize("page", named(PAGES))
def test_a_page_has_no_other_kind_of_block_and_no_dead_link(page: Path) -> None:
    text = page.read_text("utf-8")
    assert {language for language, _ in BLOCK.findall(text)} <= {"python", "output", "text", "sh", "yaml", "bibtex"}
    assert [link for link in LINK.findall(text) if not (page.parent / link).exists()] == []


def test_the_pictures_are_those_that_the_script_makes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["make_pictures", "--model", str(folder / "my-model"), "--output", str(tmp_path)])
    runpy.run_path(str(ROOT / "docs" / "make_pictures.py"), run_name="__main__")
    for name in ("slots", "balanced_tree", "balanced_rounds"):  # those that need no model
        assert (ROOT / "docs" / "pictures" / f"{name}.svg").read_bytes() == (tmp_path / f"{name}.svg").read_bytes()
    for name in ("rounds", "tree", "infilling"):
        assert ElementTree.parse(tmp_path / f"{name}.svg").getroot().tag.endswith("svg")


def test_the_version_is_the_same_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == kermit.__version__
    assert f"## [{kermit.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f'version = "{kermit.__version__}"' in (ROOT / "pyproject.toml").read_text("utf-8")
