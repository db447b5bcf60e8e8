import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from kermit.loading import list_checkpoints
from kermit.provenance import restore_interrupted_swap, written_whole
from kermit.training.trainer import remove_old


def test_a_folder_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    place = tmp_path / "checkpoint-1"
    with pytest.raises(FileNotFoundError), written_whole(place) as scratch:
        (scratch / "half" / "missing").write_text("half")
    assert list_checkpoints(tmp_path) == []
    with written_whole(place) as scratch:
        (scratch / "all").write_text("all")
        assert list_checkpoints(tmp_path) == []
    assert [path.name for path in place.iterdir()] == ["all"]


def test_files_have_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with written_whole(tmp_path / "best") as scratch:
            save_file({"weight": torch.ones(2)}, scratch / "model.safetensors")
            (scratch / "config.json").write_text("{}")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "best").iterdir()} == {0o640}


def test_a_new_version_replaces_the_old_one(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with written_whole(tmp_path / "best") as scratch:
            (scratch / "file").write_text(text)
    assert (tmp_path / "best" / "file").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    (tmp_path / "best").rename(tmp_path / "best.old")  # as if killed between the two renames
    restore_interrupted_swap(tmp_path / "best")
    assert (tmp_path / "best" / "file").read_text() == "second"


def test_old_checkpoints_and_leftovers_are_removed_by_number(tmp_path: Path) -> None:
    for name in ("checkpoint-5", "checkpoint-40", "checkpoint-300", "checkpoint-301.part", "checkpoint-x"):
        (tmp_path / name).mkdir()
    remove_old(tmp_path, 2)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["checkpoint-40", "checkpoint-300"]
    assert not (tmp_path / "checkpoint-301.part").exists()
