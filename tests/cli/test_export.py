"""`kermit export`: files that are whole, checked, and where they are looked for."""

import json
import sys
from pathlib import Path

import pytest

from kermit.engines import exporting
from kermit.engines.check import Difference
from kermit.engines.onnx_engine import OnnxEngine
from kermit.errors import ModelError


@pytest.fixture
def model(ordered_folder: Path, tmp_path: Path) -> Path:
    """A folder of a tiny model with cached context."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in ordered_folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_both_files_are_written_into_the_folder_of_the_model(kermit, model: Path) -> None:
    shown = kermit("export", model)
    assert shown.code == 0, shown.err
    assert [name for name in files_in(model) if "onnx" in name] == ["onnx/model.onnx", "onnx/model_int8.onnx"]
    first, second = shown.out.splitlines()
    assert first.startswith(f"{model / 'onnx' / 'model.onnx'}: float32, ")
    assert second.startswith(f"{model / 'onnx' / 'model_int8.onnx'}: int8, ")
    assert "difference from torch on random tokens" in first
    assert OnnxEngine.load(model).info.languages == ("en", "de")


def test_one_file_is_written_with_what_a_folder_of_a_model_needs(kermit, model: Path, tmp_path: Path) -> None:
    shown = kermit("export", model, "--precision", "int8", "--output", tmp_path / "light", "--json")
    record = json.loads(shown.out)
    file = tmp_path / "light" / "onnx" / "model_int8.onnx"
    assert (record["file"], record["precision"], record["bytes"]) == (str(file), "int8", file.stat().st_size)
    assert 0 < record["best_difference"] < record["largest_difference"] < 1
    assert files_in(tmp_path / "light") == [
        "config.json",
        "onnx/model_int8.onnx",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert OnnxEngine.load(tmp_path / "light").info == OnnxEngine.load(tmp_path / "light", precision="int8").info
    with pytest.raises(ModelError, match=r"model\.onnx does not exist; .* `kermit export .* --precision float32`"):
        OnnxEngine.load(tmp_path / "light", precision="float32")


def test_a_graph_that_says_something_else_is_not_written(kermit, model: Path, monkeypatch) -> None:
    file = model / "onnx" / "model.onnx"
    file.parent.mkdir()
    file.write_bytes(b"older")
    monkeypatch.setattr(exporting, "compare", lambda *_: Difference(0.1, 0.1))
    shown = kermit("export", model, "--precision", "float32")
    assert shown.code == 2
    assert "the float32 graph differs from the model by 0.1; its file was not written" in shown.err
    assert file.read_bytes() == b"older"
    assert files_in(model / "onnx") == ["model.onnx"]


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(kermit, folder: Path, monkeypatch, package) -> None:
    for name in [name for name in sys.modules if name.startswith("kermit.engines.")]:
        monkeypatch.delitem(sys.modules, name)  # those that have imported it
    monkeypatch.setitem(sys.modules, package, None)
    shown = kermit("export", folder)
    assert shown.code == 2
    assert f"the package {package}; install it with: pip install 'kermit-insertion[export]'" in shown.err


def test_what_is_no_kermit_model_is_refused(kermit, teacher: Path, tmp_path: Path) -> None:
    shown = kermit("export", teacher)
    assert shown.code == 2
    assert "only models of type kermit can be exported" in shown.err
    shown = kermit("export", tmp_path)
    assert shown.code == 2
    assert "is not a model" in shown.err


def test_files_that_cannot_be_used_say_what_to_do(kermit, model: Path) -> None:
    with pytest.raises(ModelError, match="does not exist; create it with `kermit export"):
        OnnxEngine.load(model)
    with pytest.raises(ModelError, match="precision must be one of float32, int8, not 'int4'"):
        OnnxEngine.load(model, precision="int4")
    assert kermit("export", model, "--precision", "float32").code == 0
    file = model / "onnx" / "model.onnx"
    content = file.read_bytes()
    file.write_bytes(content.replace(b"graph_version", b"graph_Version"))
    with pytest.raises(ModelError, match=r"model\.onnx: the graph was exported by another version of kermit; run"):
        OnnxEngine.load(model)
    with pytest.raises(ModelError, match="threads must be 1 or more, not 0"):
        OnnxEngine.load(model, threads=0)
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match=r"model\.onnx: the graph cannot be loaded: .*; run `kermit export` again"):
        OnnxEngine.load(model)


def test_the_bundled_model_is_exported_into_another_folder(kermit) -> None:
    shown = kermit("export")
    assert (shown.code, shown.out) == (2, "")
    assert "with --output FOLDER" in shown.err
