"""`kermit export`: files are complete, checked, and found again."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from kermit import Kermit, KermitConfig, KermitForInsertion, Strategy
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.engines import exporting
from kermit.engines.comparison import Difference
from kermit.engines.exported_files import FilePrecision
from kermit.engines.onnx_engine import OnnxEngine
from kermit.errors import ModelError
from kermit.modeling import EncoderConfig, special_token_settings


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


def test_one_file_is_written_with_config_and_tokenizer(kermit, model: Path, tmp_path: Path) -> None:
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


def test_a_graph_that_differs_from_torch_is_not_written(kermit, model: Path, monkeypatch) -> None:
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
def test_a_missing_package_is_an_error_that_names_its_extra(kermit, folder: Path, monkeypatch, package) -> None:
    for name in [name for name in sys.modules if name.startswith("kermit.engines.")]:
        monkeypatch.delitem(sys.modules, name)  # those that have imported it
    monkeypatch.setitem(sys.modules, package, None)
    shown = kermit("export", folder)
    assert shown.code == 2
    assert f"the package {package}; install it with: pip install 'kermit-insertion[export]'" in shown.err


def test_models_of_other_families_are_rejected(kermit, teacher: Path, tmp_path: Path) -> None:
    shown = kermit("export", teacher)
    assert shown.code == 2
    assert "only models of type kermit can be exported" in shown.err
    shown = kermit("export", tmp_path)
    assert shown.code == 2
    assert "is not a model" in shown.err


def test_unusable_files_are_errors_that_say_what_to_do(kermit, model: Path) -> None:
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


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported model with separate layers for given and for inserted tokens."""
    folder = tmp_path_factory.mktemp("apart")
    tokenizer = train_tokenizer(["A man rides a red bike.", "Ein Mann fährt ein rotes Rad."] * 3, 300)
    ids = special_token_settings(tokenizer, cached_context=True)
    trunk = EncoderConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=4, given_layers=2, num_attention_heads=2,
        intermediate_size=48, initializer_range=0.3,
    )  # fmt: skip
    languages = {"languages": {"x": "en", "y": "de"}, "factorizations": ["joint"]}
    config = KermitConfig(
        trunk_config=trunk, slot_vector="both", cached_context=True, orders=["balanced_tree", "left_to_right"],
        **ids, **languages,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(3)
        KermitForInsertion(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    exporting.export_model(folder, precisions=[FilePrecision.FLOAT32])
    return folder


@pytest.mark.parametrize("strategy", list(Strategy))
def test_layers_for_given_tokens_are_exported_separately_and_change_no_text(apart: Path, strategy: Strategy) -> None:
    assert [name for name in files_in(apart) if "onnx" in name] == ["onnx/context.onnx", "onnx/model.onnx"]
    texts, other = ["A man rides.", "bike", "A red man rides a red bike."], ["Ein Mann.", "Rad", "Ein rotes Rad."]
    how = {"strategy": strategy, "max_tokens": 7}
    found = []
    for engine in ("onnx", "torch"):
        kermit = Kermit.from_pretrained(apart, engine=engine)
        generated = [
            *kermit.translate(texts, "de", settings=how),
            *kermit.translate(texts, "de", settings=how | {"candidates": 3, "ranking": "left_to_right"}),
            *kermit.infill(["A ____ rides a ____."] * 3, other, settings=how),
            *kermit.infill(["A ____ rides ____"], settings=how),
            *kermit.complete(["A ..."], ["... Rad"], settings=how),
            *kermit.sample(3, settings=how),
        ]
        scores = kermit.score(texts, other, method="left_to_right")
        vectors = kermit.embed(texts)
        found.append(([(one.x, one.y, one.rounds) for one in generated], [one.log_prob for one in scores], vectors))
    assert found[0][0] == found[1][0]
    assert found[0][1] == pytest.approx(found[1][1], abs=1e-3)
    assert found[0][2] == pytest.approx(found[1][2], abs=1e-4)


def test_a_model_without_its_second_file_must_be_exported_again(apart: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(apart, tmp_path / "model")
    (folder / "onnx" / "context.onnx").unlink()
    with pytest.raises(ModelError, match="run `kermit export` again"):
        OnnxEngine.load(folder)
