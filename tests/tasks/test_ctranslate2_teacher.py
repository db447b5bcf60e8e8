"""A Transformer run by CTranslate2 translates as transformers does, and distils by the same rules."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kermit.data.plain import OnBad
from kermit.errors import DataError, ModelError
from kermit.tasks.ctranslate2_teacher import CTranslate2Teacher
from kermit.tasks.distillation import distill
from kermit.tasks.translation import Direction
from kermit.tasks.translator import Translator
from kermit.training.settings import Settings

EN_DE = Direction("en", "de")


@pytest.fixture(scope="module")
def translator(teacher: Path) -> Translator:
    return Translator.load(teacher, "cpu")


@pytest.fixture(scope="module")
def converted(translator: Translator) -> CTranslate2Teacher:
    pytest.importorskip("ctranslate2")
    return CTranslate2Teacher.convert(translator, "float32")


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("length_penalty", [0.5, 1.0])
def test_both_backends_translate_alike(
    translator: Translator, converted: CTranslate2Teacher, corpus: Path, beams: int, length_penalty: float
) -> None:
    texts = [*(corpus / "test.en").read_text().splitlines(), " ", "[SEP] [CLS] dogs"]
    decoding = translator.decoding(beams=beams, length_penalty=length_penalty, max_tokens=30)
    expected = translator.translate(texts, EN_DE, decoding)
    found = converted.translate(texts, EN_DE, decoding)
    assert [result.source for result in found] == texts
    assert found[-2] == expected[-2], "a blank text"
    same = [(a, b) for a, b in zip(found, expected, strict=True) if (a.text, a.finish) == (b.text, b.finish)]
    assert len(same) >= len(texts) - 2
    for a, b in same:
        assert (a.rounds, a.tokens) == (b.rounds, b.tokens)
        if a.finish == "finished":
            assert b.log_prob - 1e-4 < a.log_prob <= b.log_prob + 0.01 * b.rounds  # special tokens have no share


def test_int8_is_the_default_and_close(translator: Translator, corpus: Path) -> None:
    pytest.importorskip("ctranslate2")
    quantised = CTranslate2Teacher.convert(translator)
    assert quantised.precision == "int8"
    texts = (corpus / "train.en").read_text().splitlines()[:40]
    decoding = translator.decoding(beams=1, max_tokens=30)
    expected, found = (made.translate(texts, EN_DE, decoding) for made in (translator, quantised))
    assert sum(a.text == b.text for a, b in zip(found, expected, strict=True)) >= 20


def test_a_translation_that_does_not_end_is_told_and_left_out(
    translator: Translator, converted: CTranslate2Teacher, teacher: Path, corpus: Path, tmp_path: Path
) -> None:
    texts = (corpus / "train.en").read_text().splitlines()
    decoding = translator.decoding(beams=1, max_tokens=8)
    results = converted.translate(texts, EN_DE, decoding)
    unfinished = [result for result in results if result.finish == "max_tokens"]
    assert 0 < len(unfinished) < len(texts)
    assert {result.tokens for result in unfinished} == {8}
    made = distill(converted, teacher, corpus / "train.en", EN_DE, decoding, tmp_path)
    assert made.unfinished == len(unfinished)
    kept = [(result.source, result.text) for result in results if result.finish == "finished"]
    written = (path.read_text().splitlines() for path in (made.source, made.target))
    assert list(zip(*written, strict=True)) == kept
    note = json.loads((tmp_path / "train.en-de.json").read_text())
    assert (note["backend"], note["precision"], note["unfinished"]) == ("ctranslate2", "float32", len(unfinished))
    assert note["backend_version"] == converted.version


class StoppedError(Exception):
    pass


def test_distillation_goes_on_with_the_same_backend_alone(
    translator: Translator, converted: CTranslate2Teacher, teacher: Path, corpus: Path, tmp_path: Path
) -> None:
    asked: Any = (teacher, corpus / "train.en", EN_DE, translator.decoding(beams=2, max_tokens=30))
    whole = distill(converted, *asked, tmp_path / "whole", block_size=100)

    def stop(count: int) -> None:
        if any(output.glob(".train.en-de.blocks/*.jsonl")):
            raise StoppedError

    output = tmp_path / "again"
    with pytest.raises(StoppedError):
        distill(converted, *asked, output, block_size=100, progress=stop)
    with pytest.raises(DataError, match=r"made with another backend \("):
        distill(translator, *asked, output, block_size=100)
    with pytest.raises(DataError, match=r"made with another precision \("):
        distill(replace(converted, precision="int8"), *asked, output, block_size=100)
    with pytest.raises(DataError, match=r"made with another filter \("):
        distill(converted, *asked, output, block_size=100, filter_pairs=True)
    newer = replace(converted, version="99.0")  # another version goes on
    again = distill(newer, *asked, output, block_size=100)
    assert again.target.read_text() == whole.target.read_text()
    assert json.loads((output / "train.en-de.json").read_text())["backend_version"] == "99.0"


def test_translations_of_earlier_versions_are_known(translator: Translator, teacher: Path, tmp_path: Path) -> None:
    (tmp_path / "some.en").write_text("one\ntwo dogs.\n")
    asked: Any = (translator, teacher, tmp_path / "some.en", EN_DE, translator.decoding(), tmp_path / "out")
    made = distill(*asked)
    place = tmp_path / "out" / "some.en-de.json"
    earlier = json.loads(place.read_text())
    for key in ("backend", "backend_version", "filter"):
        del earlier[key]
    place.write_text(json.dumps(earlier))
    assert distill(*asked) == made


def test_a_text_too_long_is_skipped(
    translator: Translator, converted: CTranslate2Teacher, teacher: Path, tmp_path: Path
) -> None:
    (tmp_path / "long.en").write_text("one\n" + "two " * 600 + "\nthree\n")
    asked: Any = (converted, teacher, tmp_path / "long.en", EN_DE, translator.decoding(max_tokens=30), tmp_path / "out")
    with pytest.raises(DataError, match=r"long\.en:2: text longer than the limit"):
        distill(*asked)
    made = distill(*asked, on_bad=OnBad.SKIP)
    assert made.texts + made.unfinished == 2


def test_what_the_backend_cannot_do_is_told(
    translator: Translator, converted: CTranslate2Teacher, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match=r"no precision int3 on this machine; known: .*int8"):
        CTranslate2Teacher.convert(translator, "int3")
    with pytest.raises(ModelError, match="was not trained for de-en"):
        converted.translate(["eins"], Direction("de", "en"), translator.decoding())
    with pytest.raises(ModelError, match="by beam search"):
        converted.translate(["one"], EN_DE, Settings())
    monkeypatch.setattr(translator.model.config, "activation_function", "mish")
    with pytest.raises(ModelError, match="no activation mish"):
        CTranslate2Teacher.convert(translator)


def test_only_transformers_are_converted() -> None:
    with pytest.raises(ModelError, match="runs only the family transformer, and the teacher is of the family kermit"):
        CTranslate2Teacher.convert(Translator.load(device="cpu"))


def test_a_missing_package_is_told_with_the_extra(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ModelError, match=r"needs the package ctranslate2; pip install 'kermit-insertion\[distill\]'"):
        CTranslate2Teacher.convert(translator)
