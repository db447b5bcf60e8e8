"""Which engine is selected for a model's folder."""

import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from exported import own_model

from kermit import Kermit
from kermit.engines.exported_files import StaleFileError
from kermit.engines.exporting import export_model
from kermit.engines.selection import load_engine
from kermit.engines.torch_engine import TorchEngine
from kermit.errors import KermitError, ModelError
from kermit.loading import bundled_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The bundled model without exported files."""
    bundled = bundled_model()
    assert bundled is not None
    for file in bundled.iterdir():
        if file.is_file():
            (tmp_path / file.name).symlink_to(file)
    return tmp_path


def export(folder: Path, *names: str) -> None:
    (folder / "onnx").mkdir()
    for name in names:
        (folder / "onnx" / name).touch()


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments that an ONNX engine would be loaded with."""
    found: list[dict[str, Any]] = []

    class OnnxEngine:
        @staticmethod
        def load(folder: Path, **how: Any) -> str:
            found.append({"folder": folder, **how})
            return "onnx"

    module = ModuleType("kermit.engines.onnx_engine")
    module.OnnxEngine = OnnxEngine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return found


def test_torch_is_used_without_an_exported_file(folder: Path) -> None:
    assert isinstance(load_engine(folder), TorchEngine)
    with pytest.raises(ModelError, match="kermit export"):
        load_engine(folder, "onnx")


def test_an_exported_file_is_preferred_and_int8_to_float32(folder: Path, loads: list[dict[str, Any]]) -> None:
    export(folder, "model.onnx", "model_int8.onnx")
    assert load_engine(folder, threads=1) == "onnx"
    assert load_engine(folder, "onnx", precision="float32") == "onnx"
    assert loads == [
        {"folder": folder, "precision": "auto", "threads": 1},
        {"folder": folder, "precision": "float32", "threads": 1},
    ]
    for how in ({"engine": "torch"}, {"device": "cpu"}, {"dtype": torch.float32}):
        assert isinstance(load_engine(folder, **how), TorchEngine)
    assert len(loads) == 2


def test_a_precision_that_was_not_exported_is_an_error(folder: Path) -> None:
    export(folder, "model.onnx")
    with pytest.raises(ModelError, match="--precision int8"):
        load_engine(folder, "onnx", precision="int8")
    with pytest.raises(ModelError, match="--precision int8"):
        load_engine(folder, precision="int8")


@pytest.mark.parametrize("how", [{"engine": "tensorflow"}, {"precision": "int4"}])
def test_an_unknown_engine_or_precision_is_an_error_that_lists_the_known_ones(
    folder: Path, how: dict[str, Any]
) -> None:
    with pytest.raises(KermitError, match=r"tensorflow|int4"):
        Kermit.from_pretrained(folder, **how)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with its exported files."""
    folder = tmp_path_factory.mktemp("exported")
    own_model(42).save_pretrained(folder)
    export_model(folder)
    return folder


def test_an_engine_reports_its_precision(exported: Path) -> None:
    assert load_engine(exported).info.precision == "int8"
    assert load_engine(exported, precision="float32").info.precision == "float32"


def test_a_file_of_other_weights_is_rejected_and_auto_falls_back_to_torch(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "model"))
    model = own_model(42)
    with torch.no_grad():
        model.head.bias += 1
    model.save_pretrained(folder)
    with pytest.raises(StaleFileError, match=r"weights in .* have changed since it was exported; run `kermit export"):
        load_engine(folder, "onnx")
    assert isinstance(load_engine(folder), TorchEngine)
    assert "using torch until then" in caplog.text
    monkeypatch.setattr("kermit.engines.selection.find_spec", lambda name: None)
    with pytest.raises(StaleFileError):
        load_engine(folder)
    (folder / "model.safetensors").unlink()
    assert load_engine(folder, "onnx").info.precision == "int8"  # only exported files: nothing to compare with
