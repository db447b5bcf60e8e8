from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from kermit.data import encoding
from kermit.data.encoding import encode_sources
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.data.parallel import TextSource
from kermit.data.plain import OnBad
from kermit.errors import DataError
from kermit.text.tokenizer import decode_ids


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(["one two three"], 280)


def files(folder: Path, x: str, y: str) -> TextSource:
    (folder / "x").write_text(x, encoding="utf-8")
    (folder / "y").write_text(y, encoding="utf-8")
    return TextSource(x=folder / "x", y=folder / "y")


def test_rows_hold_both_sides_and_their_source(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    source = files(tmp_path, "one\ntwo\n", "eins\nzwei\n")
    text = encode_sources([source, TextSource(y=tmp_path / "y")], tokenizer, max_tokens=20)
    rows = text.fetch(range(len(text)))
    assert [decode_ids(tokenizer, row["x"]) for row in rows] == ["one", "two", "", ""]
    assert [decode_ids(tokenizer, row["y"]) for row in rows] == ["eins", "zwei", "eins", "zwei"]
    assert [row["source"] for row in rows] == [0, 0, 1, 1]
    assert text.x_lengths.tolist() == [len(row["x"]) for row in rows]
    assert text.y_lengths.tolist() == [len(row["y"]) for row in rows]
    assert np.array_equal(text.sources, [0, 0, 1, 1])


def test_the_cache_is_reused_and_a_changed_file_is_read_again(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode() -> list[str]:
        text = encode_sources([source], tokenizer, max_tokens=20)
        return [decode_ids(tokenizer, row["x"]) for row in text.fetch(range(len(text)))]

    source = files(tmp_path, "one\n", "eins\n")
    assert encode() == ["one"]
    with monkeypatch.context() as patch:
        patch.setattr(encoding, "encode_texts", lambda *_: pytest.fail("what is in the cache is encoded again"))
        assert encode() == ["one"]
    (tmp_path / "x").write_text("two\n")
    assert encode() == ["two"]


def test_a_text_beyond_the_limit_is_an_error_with_its_line_or_is_reported(
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KERMIT_CACHE", str(tmp_path / "c"))
    source = files(tmp_path, "one\n" + "q" * 30 + "\n", "eins\nzwei\n")
    with pytest.raises(DataError, match=r"x:2: text longer than the limit \(30 tokens, .*`data.max_tokens` is 8\)"):
        encode_sources([source], tokenizer, max_tokens=8)
    other = files(tmp_path, "one\ntwo\n", "eins\n" + "q" * 30 + "\n")
    with pytest.raises(DataError, match=r"y:2: text longer than the limit"):
        encode_sources([other], tokenizer, max_tokens=8)
    source = files(tmp_path, "one\n" + "q" * 30 + "\n", "eins\nzwei\n")
    with caplog.at_level("INFO", "kermit"):
        text = encode_sources([source], tokenizer, max_tokens=8, on_bad=OnBad.SKIP)
    assert len(text) == 1
    assert "read 1 texts, skipped 1: 1 text longer than the limit" in caplog.text
    assert not list((tmp_path / "c" / "encoded").glob(".*")), "a failed encoding leaves nothing behind"


def test_no_remaining_text_is_an_error(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    source = files(tmp_path, "\n", "eins\n")
    with pytest.raises(DataError, match="no valid text"):
        encode_sources([source], tokenizer, max_tokens=8, on_bad=OnBad.SKIP)
