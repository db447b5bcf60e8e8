"""Signatures, checksums and manifests: results record their settings, and other settings are rejected."""

from pathlib import Path

import pytest

from kermit.errors import DataError
from kermit.provenance import Manifest, differences, listed, model_checksum, partial, signature, write_json


def test_a_signature_lists_its_parts_and_ends_with_the_version() -> None:
    parts = {"task": "cloze", "decoding": listed({"beams": 5, "seed": None})}
    assert signature(parts, "1.2") == "kermit|task:cloze|decoding:beams=5,seed=None|version:1.2"


def test_differences_are_listed_by_dotted_key() -> None:
    before, now = {"a": {"b": 1, "c": 2}, "d": [1], "e": 5}, {"a": {"b": 1, "c": 3}, "d": [2], "f": 6}
    assert differences(before, now) == {
        "a.c": (2, 3),
        "d": ([1], [2]),
        "e": (5, "not set"),
        "f": ("not set", 6),
    }


def test_the_checksum_of_a_model_depends_only_on_weights_configuration_and_tokenizer(tmp_path: Path) -> None:
    for name in ("model.safetensors", "config.json", "tokenizer.json", "README.md"):
        (tmp_path / name).write_text(name)
    first = model_checksum(tmp_path)
    (tmp_path / "README.md").write_text("other")
    assert model_checksum(tmp_path) == first
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        (tmp_path / name).write_text("other")
        assert model_checksum(tmp_path) != first
        (tmp_path / name).write_text(name)
    assert model_checksum(tmp_path) == first
    assert model_checksum(tmp_path / "model.safetensors") != model_checksum(tmp_path / "config.json")


def test_a_manifest_resumes_with_the_same_settings_and_rejects_others(tmp_path: Path) -> None:
    place = tmp_path / "new" / "made.json"
    manifest = Manifest(place, {"seed": 1, "rates": {"typos": 0.1}}, results=("lines",))
    assert manifest.made("variants") == {}
    manifest.write(lines=3)
    assert manifest.made("variants")["lines"] == 3
    with pytest.raises(DataError, match=r"variants made with different settings \(rates\.typos was 0\.1, now 0\.2;"):
        Manifest(place, {"seed": 1, "rates": {"typos": 0.2}}, results=("lines",)).made("variants")
    with pytest.raises(DataError, match="seed was 1, now not set"):
        Manifest(place, {"rates": {"typos": 0.1}}, results=("lines",)).made("variants")
    place.write_text("[1]")
    with pytest.raises(DataError, match="is not a manifest of variants"):
        manifest.made("variants")


def test_a_file_is_replaced_only_when_the_new_one_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"a": 1})
    assert not partial(file).exists()
    with pytest.raises(TypeError):
        write_json(file, {"a": object()})
    assert file.read_text() == '{\n  "a": 1\n}\n'
