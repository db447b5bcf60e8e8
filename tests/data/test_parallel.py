import gzip
import json
from pathlib import Path

import pytest

from kermit.data.parallel import Pair, TextSource, read_pairs
from kermit.data.plain import Fault, OnBad, Report, read_texts
from kermit.errors import DataError, Place


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def texts(pairs: list[Pair]) -> list[tuple[str, str]]:
    return [(pair.x, pair.y) for pair in pairs]


def test_line_aligned_files_plain_and_gzipped_are_read_side_by_side(tmp_path: Path) -> None:
    x = write(tmp_path / "a.en.gz", "\ufeffone\r\ntwo\u2028more\n")
    y = write(tmp_path / "a.de", "eins\nzwei")
    report = Report()
    pairs = list(read_pairs(TextSource(x=x, y=y), report))
    assert texts(pairs) == [("one", "eins"), ("two\u2028more", "zwei")]
    assert pairs[1].places == (Place(str(x), 2), Place(str(y), 2))
    assert report.read == 2


def test_unpaired_text_has_the_other_side_empty(tmp_path: Path) -> None:
    file = write(tmp_path / "mono", "one\ntwo\n")
    assert texts(list(read_pairs(TextSource(x=file), Report()))) == [("one", ""), ("two", "")]
    assert texts(list(read_pairs(TextSource(y=file), Report()))) == [("", "one"), ("", "two")]


def test_tsv_and_jsonl_files_are_read(tmp_path: Path) -> None:
    tsv = write(tmp_path / "a.tsv", 'id\tone "quoted"\teins\nid\ttwo\tzwei\n')
    assert texts(list(read_pairs(TextSource(tsv=tsv, columns=(1, 2)), Report()))) == [
        ('one "quoted"', "eins"),
        ("two", "zwei"),
    ]
    lines = [{"translation": {"en": "one", "de": "eins"}}, {"translation": {"en": "two", "de": "zwei"}}]
    jsonl = write(tmp_path / "a.jsonl", "\n".join(json.dumps(line) for line in lines))
    source = TextSource(jsonl=jsonl, fields=("translation.en", "translation.de"))
    assert texts(list(read_pairs(source, Report()))) == [("one", "eins"), ("two", "zwei")]
    for unpaired in (TextSource(jsonl=jsonl, fields=(None, "translation.de")), TextSource(tsv=tsv, columns=(None, 2))):
        report = Report()
        assert texts(list(read_pairs(unpaired, report))) == [("", "eins"), ("", "zwei")]
        assert report.read == 2


@pytest.mark.parametrize("longer", ["x", "y"])
@pytest.mark.parametrize("on_bad", list(OnBad))
def test_unequal_line_counts_are_always_an_error_with_file_and_line(tmp_path: Path, longer: str, on_bad: OnBad) -> None:
    files = {side: write(tmp_path / side, "a\nb\n" + ("c\nd\n" if side == longer else "")) for side in "xy"}
    with pytest.raises(DataError, match=r":2: the file ends here.* has 4 lines"):
        list(read_pairs(TextSource(x=files["x"], y=files["y"]), Report(on_bad)))


@pytest.mark.parametrize(
    ("x", "y", "fault", "line"),
    [
        (b"ok\n\xff\xfe\nok\n", b"ok\nb\nok\n", Fault.INVALID_UTF8, "x:2"),
        (b"ok\na\nok\n", b"ok\n\xe4\nok\n", Fault.INVALID_UTF8, "y:2"),
        (b"ok\n  \nok\n", b"ok\nb\nok\n", Fault.EMPTY, "x:2"),
        (b"ok\na\nok\n", b"ok\n\nok\n", Fault.EMPTY, "y:2"),
    ],
)
def test_a_broken_pair_is_an_error_or_counted(tmp_path: Path, x: bytes, y: bytes, fault: Fault, line: str) -> None:
    source = TextSource(x=write(tmp_path / "x", x), y=write(tmp_path / "y", y))
    with pytest.raises(DataError, match=rf"{line}: {fault.value}"):
        list(read_pairs(source, Report(OnBad.ERROR)))
    report = Report(OnBad.SKIP)
    assert texts(list(read_pairs(source, report))) == [("ok", "ok"), ("ok", "ok")]
    assert report.skipped == {fault: 1}
    assert f"1 {fault.value}" in report.summary()
    assert line in report.summary()


def test_malformed_records_name_their_line(tmp_path: Path) -> None:
    tsv = write(tmp_path / "a.tsv", "one\teins\nalone\n")
    with pytest.raises(DataError, match=r"a\.tsv:2: malformed record \(column 1 is missing"):
        list(read_pairs(TextSource(tsv=tsv), Report()))
    jsonl = write(tmp_path / "a.jsonl", '{"x": "a", "y": "b"}\n{"x": "a"}\n{"x": 1, "y": "b"}\nno json\n')
    report = Report(OnBad.SKIP)
    assert texts(list(read_pairs(TextSource(jsonl=jsonl), report))) == [("a", "b")]
    assert report.skipped == {Fault.MALFORMED: 3}


@pytest.mark.parametrize(
    ("line", "reason"),
    [('{"x": "a"}', "no field 'y'"), ('{"x": 1, "y": "b"}', "'x' is a int, not a text"), ("{", "not JSON: ")],
)
def test_a_malformed_json_line_has_a_plain_reason(tmp_path: Path, line: str, reason: str) -> None:
    jsonl = write(tmp_path / "a.jsonl", f"{line}\n")
    with pytest.raises(DataError, match=rf"a\.jsonl:1: malformed record \({reason}"):
        list(read_pairs(TextSource(jsonl=jsonl), Report()))


def test_half_a_surrogate_pair_is_not_valid_utf8(tmp_path: Path) -> None:
    jsonl = write(tmp_path / "a.jsonl", '{"x": "\\ud83d\\ude00", "y": "b"}\n{"x": "a", "y": "\\ud800"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:2: invalid UTF-8"):
        list(read_pairs(TextSource(jsonl=jsonl), Report()))
    report = Report(OnBad.SKIP)
    assert texts(list(read_pairs(TextSource(jsonl=jsonl), report))) == [("\U0001f600", "b")]
    assert report.skipped == {Fault.INVALID_UTF8: 1}


def test_a_missing_file_and_a_broken_gzip_are_errors_that_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere: .* does not exist"):
        list(read_texts(tmp_path / "nowhere", Report()))
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(b"line\n" * 5000)[:-12])
    twisted = bytearray(gzip.compress(bytes(range(256)) * 50, mtime=0))
    twisted[60:90] = b"?" * 30
    (tmp_path / "twisted.gz").write_bytes(twisted)
    for name in ("cut", "twisted"):
        with pytest.raises(DataError, match=rf"{name}\.gz: invalid gzip"):
            TextSource(x=tmp_path / f"{name}.gz").checksum()
    with pytest.raises(DataError, match=r"cut\.gz:\d+: invalid gzip"):
        list(read_texts(cut, Report()))


def test_the_checksum_depends_on_the_text_and_not_on_its_compression(tmp_path: Path) -> None:
    plain, packed = write(tmp_path / "a", "one\n"), write(tmp_path / "b.gz", "one\n")
    other = write(tmp_path / "c", "two\n")
    assert TextSource(x=plain).checksum() == TextSource(x=packed).checksum()
    assert TextSource(x=plain).checksum() != TextSource(x=other).checksum()
    assert TextSource(x=plain).checksum() != TextSource(y=plain).checksum()


def test_a_dataset_by_name_is_read_through_datasets(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    write(folder / "train.jsonl", '{"en": "one", "de": "eins"}\n{"en": "two", "de": "zwei"}\n')
    source = TextSource(hub=str(folder), fields=("en", "de"))
    assert texts(list(read_pairs(source, Report()))) == [("one", "eins"), ("two", "zwei")]
    with pytest.raises(DataError, match="no text field"):
        list(read_pairs(TextSource(hub=str(folder), fields=("en", "fr")), Report()))
    write(folder / "train.jsonl", '{"en": "one", "de": "eins"}\n{"en": null, "de": "zwei"}\n')
    with pytest.raises(DataError, match=r"corpus\[train\]:1: malformed record \('en' is a NoneType, not a text\)"):
        list(read_pairs(source, Report()))
    report = Report(OnBad.SKIP)
    assert texts(list(read_pairs(source, report))) == [("one", "eins")]
    assert report.skipped == {Fault.MALFORMED: 1}
    with pytest.raises(DataError, match="cannot load the dataset"):
        list(read_pairs(TextSource(hub=str(tmp_path / "none")), Report()))
