import gzip
from pathlib import Path

import pytest

from kermit.data.articles import ArticleSource, read_paragraphs, split_sentences
from kermit.data.plain import OnBad, Report
from kermit.errors import DataError


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read(source: ArticleSource, report: Report | None = None) -> list[tuple[str, bool]]:
    return [(paragraph.text, paragraph.opens) for paragraph in read_paragraphs(source, report or Report())]


def test_a_line_is_a_paragraph_and_blank_lines_separate_articles(tmp_path: Path) -> None:
    file = write(tmp_path / "text.txt", "\n\nOne. Two.\r\n  Three. \n\n \nFour.\n")
    assert read(ArticleSource(text=file)) == [("One. Two.", True), ("Three.", False), ("Four.", True)]


def test_a_folder_is_read_in_the_order_of_names_and_every_file_starts_an_article(tmp_path: Path) -> None:
    write(tmp_path / "b" / "a.txt", "Three.\n")
    write(tmp_path / "a.txt.gz", "One.\nTwo.\n")
    write(tmp_path / ".hidden", "no\n")
    assert read(ArticleSource(text=tmp_path)) == [("One.", True), ("Two.", False), ("Three.", True)]
    packed = ArticleSource(text=tmp_path).checksum()
    write(tmp_path / "a.txt.gz", "One.\nTwo more.\n")
    assert ArticleSource(text=tmp_path).checksum() != packed


def test_a_record_of_a_dataset_is_an_article(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    write(folder / "train.jsonl", '{"body": "One.\\n\\nTwo."}\n{"body": "Three."}\n')
    assert read(ArticleSource(hub=str(folder), field="body")) == [("One.", True), ("Two.", False), ("Three.", True)]
    with pytest.raises(DataError, match=r"set\[train\]:0: the dataset has no text field .*; set `field`"):
        read(ArticleSource(hub=str(folder)))
    write(folder / "train.jsonl", '{"body": "One."}\n{"body": null}\n')
    report = Report(OnBad.SKIP)
    assert read(ArticleSource(hub=str(folder), field="body"), report) == [("One.", True)]
    assert "skipped 1: 1 malformed record" in report.summary()


def test_broken_text_is_an_error_with_its_line_or_is_counted(tmp_path: Path) -> None:
    file = write(tmp_path / "text.txt", b"One.\n\xff\xfe\nTwo.\n")
    with pytest.raises(DataError, match=r"text\.txt:2: invalid UTF-8"):
        read(ArticleSource(text=file))
    report = Report(OnBad.SKIP)
    assert read(ArticleSource(text=file), report) == [("One.", True), ("Two.", False)]
    assert "skipped 1: 1 invalid UTF-8" in report.summary()
    with pytest.raises(DataError, match="does not exist"):
        read(ArticleSource(text=tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="folder is empty"):
        read(ArticleSource(text=tmp_path / "empty"))


@pytest.mark.parametrize(
    ("paragraph", "sentences"),
    [
        ("It rains. It pours!", ["It rains.", "It pours!"]),
        ('He said "No." Then he left.', ['He said "No."', "Then he left."]),
        ("About 3.5 km, e.g. here, or so.", ["About 3.5 km, e.g. here, or so."]),
        ("What?! (Nothing.) 12 men.", ["What?!", "(Nothing.)", "12 men."]),
        ("下雨了。天黑了。", ["下雨了。", "天黑了。"]),
        ("no end", ["no end"]),
    ],
)
def test_sentences_end_at_punctuation_unless_a_lower_case_letter_follows(paragraph: str, sentences: list[str]) -> None:
    assert split_sentences(paragraph) == sentences


def test_sentences_after_an_opening_quote_are_split_and_time_per_sentence_does_not_grow() -> None:
    assert split_sentences('He left. "Why?" she said. (No one knew.) [So it ended.') == [
        "He left.",
        '"Why?" she said.',
        "(No one knew.)",
        "[So it ended.",
    ]
    assert split_sentences("It ended. ") == ["It ended. "]
    assert len(split_sentences("One two three. " * 200_000)) == 200_000
