"""The README and the docs: examples print the documented output, recipes load, and links work.

``UPDATE_DOCS=1 pytest tests/test_docs.py`` writes the output of the examples into the pages.
"""

import io
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from fastapi.testclient import TestClient
from scripts import load_script
from tiny import EN_DE, bert, kermit_model, save
from transformers import BertModel

import kermit
from kermit import Kermit
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.serving.app import create_app
from kermit.serving.settings import ServiceSettings
from kermit.training.recipe import load_recipe
from kermit.training.run import train

ROOT = Path(__file__).parent.parent
README, DOCS = ROOT / "README.md", ROOT / "docs"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
ADDRESS = re.compile(r"https://[^\s)>\]]+")


TRAINING = {"extending.md"}
"""Pages whose examples train a model."""


def named(pages: list[Path]) -> list[object]:
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.slow] if page.name in TRAINING else [])
        for page in pages
    ]


def blocks(page: Path, language: str) -> list[str]:
    return [block for kind, block in BLOCK.findall(page.read_text("utf-8")) if kind == language]


# ------------------------------------------------------------------------------------------------------------- examples


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models that the pages name, tiny and with random weights, and with the repository's scripts."""
    folder = tmp_path_factory.mktemp("docs")
    numbers = "one two three four five six seven eight nine eins zwei drei vier fünf sechs sieben acht neun"
    tokenizer = train_tokenizer([numbers] * 3, 400)
    trunk = bert(tokenizer, width=32, layers=2)
    save(kermit_model(tokenizer, trunk, **EN_DE), tokenizer, folder / "my-model")
    save(BertModel(trunk), tokenizer, folder / "my-encoder")
    for name in ("examples", "recipes"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def lines(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def console(block: str) -> str:
    """Run the commands after `$` of a block; return the block with their output."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    shown = ""
    for command in re.findall(r"^\$ (.+)$", block, re.MULTILINE):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        shown += f"$ {command}\n{lines(done.stdout)}"
    return shown


def with_output(page: Path) -> str:
    """A page with the current output of its examples."""
    text, names, printed = page.read_text("utf-8"), {"__name__": "__main__"}, ""

    def run(found: re.Match[str]) -> str:
        nonlocal printed
        language, block = found.groups()
        match language:
            case "python":
                out, line = io.StringIO(), text.count("\n", 0, found.start()) + 1
                with redirect_stdout(out):
                    exec(compile("\n" * line + block, str(page), "exec"), names)
                printed = lines(out.getvalue())
            case "output":
                block = printed
            case "console":
                block = console(block)
        return f"```{language}\n{block}```"

    return BLOCK.sub(run, text)


@pytest.mark.parametrize("page", named(PAGES))
def test_a_page_runs_and_prints_the_documented_output(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    found = with_output(page)
    if os.environ.get("UPDATE_DOCS"):
        page.write_text(found, encoding="utf-8")
    assert page.read_text("utf-8") == found


def test_the_prior_that_prefers_late_tokens_weights_every_span_as_documented() -> None:
    [block] = [block for block in blocks(DOCS / "orders.md", "python") if "LateFirstPrior" in block]
    names: dict[str, Any] = {}
    exec(block, names)
    kept = np.array([[True, False, False, True, False, False, True]])
    weights = names["objective"].prior.slot_weights(kept, np.ones_like(kept))
    assert weights[0].tolist() == pytest.approx([0, 1 / 3, 2 / 3, 0, 3 / 7, 4 / 7, 0])


def test_the_pictures_equal_the_output_of_the_script(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["make_pictures", "--model", str(folder / "my-model"), "--output", str(tmp_path)])
    runpy.run_path(str(DOCS / "make_pictures.py"), run_name="__main__")
    for name in ("slots", "balanced_tree", "balanced_rounds"):  # those that need no model
        assert (DOCS / "pictures" / f"{name}.svg").read_bytes() == (tmp_path / f"{name}.svg").read_bytes()
    for name in ("rounds", "tree", "infilling"):
        assert ElementTree.parse(tmp_path / f"{name}.svg").getroot().tag.endswith("svg")


def test_every_request_on_the_serving_page_is_answered(folder: Path) -> None:
    text = "".join(blocks(DOCS / "serving.md", "sh")).replace("\\\n", " ")
    app = create_app(Kermit.from_pretrained(folder / "my-model"), ServiceSettings(max_tokens=40))
    assert set(re.findall(r"localhost:8000(/\S+)", text)) >= set(app.openapi()["paths"])
    with TestClient(app) as client:
        for path, rest in re.findall(r"^curl -sN? localhost:8000(\S+)(.*)$", text, re.MULTILINE):
            if body := re.search(r"-d '(.+)'", rest):
                answer = client.post(path, json=json.loads(body.group(1)))
            elif form := re.search(r"--data-urlencode '(\w+)=(.+)'", rest):
                answer = client.post(path, data={form.group(1): form.group(2)})
            else:
                answer = client.get(path)
            assert answer.status_code == 200, f"{path}: {answer.text}"


# -------------------------------------------------------------------------------------------------------------- recipes


@pytest.mark.parametrize("page", named([page for page in PAGES if blocks(page, "yaml")]))
def test_every_part_of_a_recipe_on_a_page_is_valid(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERMIT_RUNS", "/runs")
    base = ROOT / "recipes" / ("pretraining/kermit_small.yaml" if page.stem == "pretraining" else "quickstart.yaml")
    for number, block in enumerate(blocks(page, "yaml")):
        part = yaml.safe_load(block)
        part = {"data": {"train": part}} if isinstance(part, list) else part
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump({"extends": str(base), **part}), encoding="utf-8")
        recipe = load_recipe(path).recipe
        assert len(recipe.data.train) == len(part.get("data", {}).get("train", recipe.data.train))


def test_the_recipe_of_the_tutorial_is_part_of_the_quickstart_recipe() -> None:
    [block] = blocks(DOCS / "tutorial.md", "yaml")
    recipe = yaml.safe_load((ROOT / "recipes" / "quickstart.yaml").read_text("utf-8"))
    assert yaml.safe_load(block).items() <= recipe.items()


@pytest.mark.slow
def test_the_quickstart_recipe_trains_on_its_pairs(tmp_path: Path) -> None:
    script = load_script("examples/railway_pairs.py")
    pairs = script.draw_pairs(400, seed=0)
    assert len({english for english, _ in pairs}) == 400
    assert all(re.findall(r"\d+", english) == re.findall(r"\d+", german) for english, german in pairs)
    for split, some in {"train": pairs[:300], "val": pairs[300:310]}.items():
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in some)
            (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")
    small = ["schedule.max_steps=2", "evaluation.every=2", "evaluation.texts=2", "decoding.max_tokens=4"]
    loaded = load_recipe(ROOT / "recipes" / "quickstart.yaml", data=tmp_path, overrides=small)
    result = train(loaded, tmp_path / "run")
    assert result.steps == 2
    assert result.best is not None


# --------------------------------------------------------------------------------------------------- links and contents


@pytest.mark.parametrize("page", named(PAGES))
def test_a_page_has_no_other_kind_of_block_and_no_dead_link(page: Path) -> None:
    text = page.read_text("utf-8")
    kinds = {"python", "output", "console", "text", "sh", "yaml", "bibtex"}
    assert {language for language, _ in BLOCK.findall(text)} <= kinds
    assert [link for link in LINK.findall(text) if not (page.parent / link).exists()] == []


def test_links_to_the_repository_are_consistent_and_lead_to_files() -> None:
    repository = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["repository-code"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project.get("urls", {}).get("Repository", repository) == repository
    raw = repository.replace("https://github.com/", "https://raw.githubusercontent.com/") + "/main/"
    owner = repository.removeprefix("https://github.com/").split("/")[0]
    for page in [*PAGES, ROOT / "mkdocs.yml"]:
        for address in ADDRESS.findall(page.read_text("utf-8")):
            if owner not in address:
                continue
            assert address.startswith((repository, raw)), f"{page}: {address}"
            path = re.sub(r"^/(blob|tree)/main/", "", address.removeprefix(repository)).removeprefix(raw)
            assert (ROOT / path.lstrip("/")).exists(), f"{page}: {address}"


def test_the_readme_is_short_and_works_outside_the_repository() -> None:
    text = README.read_text("utf-8")
    assert len(text.splitlines()) < 150
    assert LINK.findall(text) == []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len(table.splitlines()) - 2 <= 8
    defined = set(re.findall(r"^\[([^\]]+)\]: ", text, re.MULTILINE))
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    used = set(re.findall(r"\]\[([^\]]+)\]", prose)) | set(re.findall(r"(?<!\])\[([^\]]+)\](?![\[(:])", prose))
    assert used == defined


def test_the_api_reference_has_every_public_name_once() -> None:
    pages = sorted((DOCS / "api").glob("*.md"))
    found = [name for page in pages for name in re.findall(r"^::: kermit\.(\S+)$", page.read_text("utf-8"), re.M)]
    assert sorted(found) == sorted(kermit.__all__)


@pytest.mark.skipif(not (ROOT / "src/kermit/engines").exists(), reason="the page describes the layout with engines")
def test_every_file_on_the_architecture_page_exists() -> None:
    text = (DOCS / "architecture.md").read_text("utf-8")
    layout = re.findall(r"^  (\w\S*)", next(block for block in blocks(DOCS / "architecture.md", "text")), re.MULTILINE)
    files = re.findall(r"^\| \d+ \| `(\S+)`", text, re.MULTILINE)
    assert len(files) == 24
    assert [name for name in [*layout, *files] if not (ROOT / "src" / "kermit" / name).exists()] == []


def test_the_version_is_the_same_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == kermit.__version__
    assert f"## [{kermit.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f'version = "{kermit.__version__}"' in (ROOT / "pyproject.toml").read_text("utf-8")
