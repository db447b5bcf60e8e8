"""Ways to get the package: the notebook runs, and the image, the workflow and the links refer to existing files."""

import json
import re
import sys
import tomllib
import types
from pathlib import Path

import pytest
import yaml
from insertion_models import cached_model_of

from kermit import Kermit
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.loading import bundled_model
from kermit.serving.app import create_app

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
README = (ROOT / "README.md").read_text("utf-8")
INSTRUCTION = re.compile(r"^([A-Z]+) +((?:.*\\\n)*.*)$", re.MULTILINE)


@pytest.mark.skipif(bundled_model() is None, reason="there is no bundled model")
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown: list[object] = []
    ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.version_info = (9, 0)  # type: ignore[attr-defined]
    display.SVG, display.display = str, shown.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    notebook = json.loads((ROOT / "examples" / "quickstart.ipynb").read_text("utf-8"))
    names: dict[str, object] = {}
    for number, cell in enumerate(notebook["cells"]):
        assert cell.get("outputs", []) == []  # no output of another model
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    assert [text[:4] for text in map(str, shown)] == ["<svg", "<svg"]
    assert (tmp_path / "decode.png").read_bytes().startswith(b"\x89PNG")


def instructions() -> list[tuple[str, str]]:
    return INSTRUCTION.findall((ROOT / "Dockerfile").read_text("utf-8"))


def test_the_image_uses_only_files_that_exist_and_are_in_the_build_context() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    copied = [name for kind, rest in instructions() if kind == "COPY" for name in rest.split()[:-1]]
    mounted = re.findall(r"type=bind,source=([^,\s]+)", "".join(rest for _, rest in instructions()))
    assert {*copied, *mounted} == sent
    assert all((ROOT / name).exists() for name in sent)


def test_the_image_serves_without_root_and_its_health_check_uses_an_existing_route() -> None:
    last = dict(instructions())
    assert int(last["USER"]) > 0
    assert json.loads(last["ENTRYPOINT"]) + json.loads(last["CMD"]) == [
        "kermit", "serve", "--host", "0.0.0.0", "--port", last["EXPOSE"],
    ]  # fmt: skip
    (asked,) = re.findall(rf"http://127\.0\.0\.1:{last['EXPOSE']}(/\w+)", last["HEALTHCHECK"])
    assert asked in served_paths()
    assert "[serve]" in last["RUN"]
    assert "serve" in PROJECT["optional-dependencies"]


def served_paths() -> list[str]:
    tokenizer = train_tokenizer(["a b c"] * 3, 300)
    return list(create_app(Kermit(cached_model_of(tokenizer), tokenizer)).openapi()["paths"])


def test_the_workflow_runs_the_same_script_as_the_ci() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "check.yml").read_text("utf-8"))
    steps = workflow["jobs"]["check"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    versions = workflow["jobs"]["check"]["strategy"]["matrix"]["python"]
    assert f">={versions[0]}" == PROJECT["requires-python"]
    for version in versions:
        assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


def test_the_package_metadata_links_to_the_project() -> None:
    assert {"Homepage", "Documentation", "Repository", "Changelog", "Paper"} <= PROJECT["urls"].keys()
    for name in ("Documentation", "Changelog"):
        path = PROJECT["urls"][name].removeprefix(f"{REPOSITORY}/blob/main/").removeprefix(f"{REPOSITORY}/tree/main/")
        assert (ROOT / path).exists()


def test_links_and_pictures_of_the_readme_work_outside_the_repository() -> None:
    links = re.findall(r"\]\(([^)\s#]+)", README)
    assert [link for link in links if not link.startswith("https://")] == []
    raw = REPOSITORY.replace("github.com", "raw.githubusercontent.com") + "/main/"
    own = [link for link in links if link.startswith((REPOSITORY, raw))]
    assert own
    for link in own:
        path = re.sub(rf"^({re.escape(raw)}|{re.escape(REPOSITORY)}/(blob|tree)/main/)", "", link)
        assert (ROOT / path).exists(), link


def test_the_readme_opens_with_the_animated_picture() -> None:
    (first, *_) = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert first.endswith("docs/pictures/animated.svg")
    assert "@keyframes" in (ROOT / "docs" / "pictures" / "animated.svg").read_text("utf-8")
