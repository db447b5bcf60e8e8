"""The quickstart example runs from start to end with an untrained model."""

import runpy
import sys
from pathlib import Path
from xml.etree import ElementTree

EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart.py"


def test_the_quickstart_runs_and_draws_a_picture(folder, tmp_path, monkeypatch, capsys):
    picture = tmp_path / "decode.svg"
    arguments = ["--model", str(folder), "--picture", str(picture), "--max-tokens", "6"]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    for title in ("Translate", "Infill", "Complete", "Sample", "Score", "Embed", "Trace"):
        assert f"== {title}" in shown
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 100
