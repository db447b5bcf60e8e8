"""Model names are resolved to a folder, the output of a training run, the Hub, or the bundled model."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from kermit import Kermit, loading
from kermit.errors import ModelError
from kermit.loading import bundled_model, display_name, find_model


def test_the_bundled_model_is_the_default() -> None:
    assert find_model() == find_model("bundled") == bundled_model()


def test_a_training_folder_gives_its_best_model_named_after_the_run(tmp_path: Path) -> None:
    best = tmp_path / "run" / "best"
    best.mkdir(parents=True)
    (best / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="is not a model"):
        find_model(best.parent)
    (best / "model.safetensors").touch()
    assert find_model(best.parent) == best
    assert (display_name(best), display_name(best.parent)) == ("run", "run")


def test_a_training_folder_without_a_best_model_gives_its_newest_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (90, 100):
        checkpoint = tmp_path / f"checkpoint-{step}"
        checkpoint.mkdir()
        for name in ("config.json", "model.safetensors"):
            (checkpoint / name).touch()
    (tmp_path / "checkpoint-200.part").mkdir()
    assert find_model(tmp_path) == checkpoint
    assert "no best model yet; using its newest checkpoint, checkpoint-100" in caplog.text
    assert display_name(checkpoint) == tmp_path.name


def test_a_name_on_the_hub_is_downloaded_preferring_safetensors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[str]] = []

    def download(name: str, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        if "*.bin" in allow_patterns:
            (tmp_path / "pytorch_model.bin").touch()
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert find_model("someone/some-model") == tmp_path
    assert ["*.safetensors" in patterns for patterns in asked] == [True, False]


def test_an_unreachable_hub_is_an_error_that_names_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*arguments: Any, **settings: Any) -> str:
        raise OSError("no route")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(ModelError, match=r"^someone/some-model .*no route"):
        find_model("someone/some-model")


def test_the_facade_accepts_a_name_on_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = shutil.copytree(str(bundled_model()), tmp_path / "model")
    monkeypatch.setattr(loading, "_download", lambda name: Path(folder))
    assert Kermit.from_pretrained("someone/some-model").languages == ("en", "de")
