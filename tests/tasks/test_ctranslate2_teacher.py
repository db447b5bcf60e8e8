"""A Transformer run with CTranslate2 translates as with transformers, and distils by the same rules."""

import json
import sys
from copy import copy
from difflib import SequenceMatcher
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from kermit.errors import DataError, ModelError
from kermit.families.transformer import BeamSearch
from kermit.pipeline import Kermit
from kermit.tasks.ctranslate2_teacher import converted as convert
from kermit.tasks.distillation import distill
from kermit.tasks.translation import Direction

EN_DE = Direction("en", "de")


@pytest.fixture(scope="module")
def translator(teacher: Path) -> Kermit:
    return Kermit.from_pretrained(teacher, device="cpu")


@pytest.fixture(scope="module")
def converted(translator: Kermit) -> Kermit:
    pytest.importorskip("ctranslate2")
    return convert(translator, "float32")


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("length_penalty", [0.5, 1.0])
def test_both_backends_give_the_same_translations(
    translator: Kermit, converted: Kermit, corpus: Path, beams: int, length_penalty: float
) -> None:
    texts = [*(corpus / "test.en").read_text().splitlines(), " ", "[SEP] [CLS] dogs"]
    decoding = BeamSearch(beams=beams, length_penalty=length_penalty, max_tokens=30)
    expected = translator.translate(texts, "de", settings=decoding)
    found = converted.translate(texts, "de", settings=decoding)
    assert [result.x for result in found] == texts
    assert found[-2] == expected[-2], "a blank text"
    same = [(a, b) for a, b in zip(found, expected, strict=True) if (a.y, a.finish) == (b.y, b.finish)]
    assert len(same) >= len(texts) - 2
    for a, b in same:
        assert (a.rounds, a.tokens) == (b.rounds, b.tokens)
        if a.finish == "finished":
            assert b.log_prob - 1e-4 < a.log_prob <= b.log_prob + 0.01 * b.rounds  # special tokens are not counted


def test_int8_is_the_default_and_close(translator: Kermit, corpus: Path) -> None:
    pytest.importorskip("ctranslate2")
    quantised = convert(translator)
    assert quantised.precision == "int8"
    texts = (corpus / "train.en").read_text().splitlines()[:40]
    decoding = BeamSearch(beams=1, max_tokens=30)
    expected, found = (made.translate(texts, "de", settings=decoding) for made in (translator, quantised))
    # how many are equal depends on the CPU's instructions for int8
    alike = [SequenceMatcher(None, a.y, b.y).ratio() for a, b in zip(found, expected, strict=True)]
    assert fmean(alike) > 0.6


def test_a_translation_that_does_not_end_is_reported_and_left_out(
    translator: Kermit, converted: Kermit, teacher: Path, corpus: Path, tmp_path: Path
) -> None:
    texts = (corpus / "train.en").read_text().splitlines()
    decoding = BeamSearch(beams=1, max_tokens=8)
    results = converted.translate(texts, "de", settings=decoding)
    unfinished = [result for result in results if result.finish == "max_tokens"]
    assert 0 < len(unfinished) < len(texts)
    assert {result.tokens for result in unfinished} == {8}
    made = distill(converted, teacher, corpus / "train.en", EN_DE, decoding, tmp_path)
    assert made.unfinished == len(unfinished)
    kept = [(result.x, result.y) for result in results if result.finish == "finished"]
    written = (path.read_text().splitlines() for path in (made.source, made.target))
    assert list(zip(*written, strict=True)) == kept
    note = json.loads((tmp_path / "train.en-de.json").read_text())
    assert (note["backend"], note["precision"], note["unfinished"]) == ("ctranslate2", "float32", len(unfinished))
    assert note["backend_version"] == converted.searcher.version


def changed(teacher: Kermit, **facts: str) -> Kermit:
    other = copy(teacher)
    other.searcher = copy(teacher.searcher)
    for name, value in facts.items():
        setattr(other if hasattr(other, name) else other.searcher, name, value)
    return other


class StoppedError(Exception):
    pass


def test_distillation_continues_only_with_the_same_backend(
    translator: Kermit, converted: Kermit, teacher: Path, corpus: Path, tmp_path: Path
) -> None:
    asked: Any = (teacher, corpus / "train.en", EN_DE, BeamSearch(beams=2, max_tokens=30))
    whole = distill(converted, *asked, tmp_path / "whole", block_size=100)

    def stop(count: int) -> None:
        if any(output.glob(".train.en-de.blocks/*.jsonl")):
            raise StoppedError

    output = tmp_path / "again"
    with pytest.raises(StoppedError):
        distill(converted, *asked, output, block_size=100, progress=stop)
    with pytest.raises(DataError, match=r"made with different settings .*backend"):
        distill(translator, *asked, output, block_size=100)
    with pytest.raises(DataError, match=r"made with different settings .*precision"):
        distill(changed(converted, precision="int8"), *asked, output, block_size=100)
    with pytest.raises(DataError, match=r"made with different settings .*filter"):
        distill(converted, *asked, output, block_size=100, filter_pairs=True)
    newer = changed(converted, version="99.0")  # another version continues
    again = distill(newer, *asked, output, block_size=100)
    assert again.target.read_text() == whole.target.read_text()
    assert json.loads((output / "train.en-de.json").read_text())["backend_version"] == "99.0"


def test_unsupported_settings_of_the_backend_are_errors(
    translator: Kermit, converted: Kermit, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match=r"int3 on this machine.*int8"):
        convert(translator, "int3")
    with pytest.raises(ModelError, match="was not trained to translate de to en"):
        converted.translate(["eins"], "en")
    monkeypatch.setattr(translator.searcher.model.config, "activation_function", "mish")
    with pytest.raises(ModelError, match="activation mish"):
        convert(translator)


def test_only_transformers_are_converted() -> None:
    with pytest.raises(ModelError, match=r"only the family transformer.*kermit"):
        convert(Kermit.from_pretrained(device="cpu"))


def test_a_missing_package_is_an_error_that_names_the_extra(
    translator: Kermit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ModelError, match=r"needs the package ctranslate2; pip install 'kermit-insertion\[distill\]'"):
        convert(translator)
