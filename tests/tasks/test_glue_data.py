"""Every task is read in its published layout, and errors name file and line."""

import os
from pathlib import Path

import pytest
from glue_files import SIZES, write_glue

from kermit.errors import DataError
from kermit.tasks.glue.data import Example, GlueData, Part, examples_checksum
from kermit.tasks.glue.table import TASKS, GlueTask, Split, task_named

REAL = Path(os.environ.get("KERMIT_DATA", "/nowhere")) / "glue"
PARTS = {"MNLI": ["matched", "mismatched"]}
PUBLISHED = {
    "CoLA": (8551, 1043),
    "SST-2": (67_349, 872),
    "MRPC": (3668, 408),
    "STS-B": (5749, 1500),
    "RTE": (2490, 277),
    "WNLI": (635, 71),
}


def by_name(task: GlueTask) -> str:
    return task.name


def rewritten(path: Path, number: int, line: bytes) -> None:
    """The file with one line (counted from 1) replaced."""
    lines = path.read_bytes().split(b"\n")
    lines[number - 1] = line
    path.write_bytes(b"\n".join(lines))


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> GlueData:
    return GlueData(write_glue(tmp_path_factory.mktemp("glue")))


@pytest.mark.parametrize("task", TASKS, ids=by_name)
@pytest.mark.parametrize("split", list(Split))
def test_every_split_of_every_task_is_read_in_its_own_layout(glue: GlueData, task: GlueTask, split: Split) -> None:
    if task.name == "AX" and split is Split.TRAIN:
        assert not glue.has(task, split)
        with pytest.raises(DataError, match=r"AX has no train split; .*MNLI"):
            glue.read(task, split)
        return
    assert glue.has(task, split)
    parts = glue.read(task, split)
    assert [part.name for part in parts] == (PARTS.get(task.name, [""]) if split is not Split.TRAIN else [""])
    for part in parts:
        assert len(part.examples) == SIZES[split]
        for example in part.examples:
            assert (example.y is None) == (task.name in ("CoLA", "SST-2"))
            if split is Split.TEST:
                assert example.label is None
            elif task.is_regression:
                assert 0 <= example.label <= 5
            else:
                assert example.label in range(len(task.labels))
        if split is Split.TEST:
            assert [example.index for example in part.examples] == list("01234")


def test_a_label_is_the_number_of_its_word() -> None:
    assert task_named("MNLI").labels.index("contradiction") == 2
    assert task_named("RTE").labels.index("entailment") == 0


def test_cola_has_no_header_in_train_and_one_in_test(tmp_path: Path) -> None:
    folder = tmp_path / "CoLA"
    folder.mkdir()
    (folder / "train.tsv").write_text("gj04\t1\t\tOne more.\nr-67\t0\t*\tMore one.\n", encoding="utf-8")
    (folder / "test.tsv").write_text("index\tsentence\n7\tBill whistled.\n", encoding="utf-8")
    data, cola = GlueData(tmp_path), task_named("CoLA")
    [train] = data.read(cola, Split.TRAIN)
    assert train.examples == [Example("One more.", None, 1, ""), Example("More one.", None, 0, "")]
    [test] = data.read(cola, Split.TEST)
    assert test.examples == [Example("Bill whistled.", None, None, "7")]


def test_double_quotes_are_text_and_a_byte_order_mark_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "MRPC"
    folder.mkdir()
    rows = 'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tHe said : " no\t" yes " , he said\n'
    (folder / "dev.tsv").write_bytes(b"\xef\xbb\xbf" + rows.encode())
    [part] = GlueData(tmp_path).read(task_named("MRPC"), Split.DEV)
    assert part.examples == [Example('He said : " no', '" yes " , he said', 1, "")]


def test_a_text_may_hold_other_line_separators_and_loses_the_space_around_it(tmp_path: Path) -> None:
    folder = tmp_path / "SST-2"
    folder.mkdir()
    (folder / "dev.tsv").write_text("sentence\tlabel\n so\u2028so \t0\r\n", encoding="utf-8", newline="")
    [part] = GlueData(tmp_path).read(task_named("SST-2"), Split.DEV)
    assert part.examples == [Example("so\u2028so", None, 0, "")]


def test_the_broken_rows_of_qqp_are_left_out_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_glue(tmp_path)
    [part] = GlueData(tmp_path).read(task_named("QQP"), Split.TRAIN)
    assert len(part.examples) == SIZES["train"]
    assert f"skipped 1 invalid rows of the published file; the first: {tmp_path}/QQP/train.tsv:4" in caplog.text
    rewritten(tmp_path / "QQP" / "test.tsv", 3, b"1\tonly a question")
    with pytest.raises(DataError, match=r"test.tsv:3: 2 tab-separated columns instead of 3"):
        GlueData(tmp_path).read(task_named("QQP"), Split.TEST)
    rewritten(tmp_path / "QQP" / "dev.tsv", 3, b"1\tonly a question")
    with pytest.raises(DataError, match=r"dev.tsv:3: 2 tab-separated columns"):
        GlueData(tmp_path).read(task_named("QQP"), Split.DEV)


@pytest.mark.parametrize(
    ("task", "file", "line", "text", "message"),
    [
        ("CoLA", "train.tsv", 5, b"gj04\t1\tA sentence.", "3 tab-separated columns instead of 4"),
        ("CoLA", "dev.tsv", 1, b"gj04\t2\t\tA sentence.", "the label '2' is none of 0, 1"),
        ("CoLA", "dev.tsv", 2, b"gj04\t1\t\t ", "the column sentence is empty"),
        ("CoLA", "dev.tsv", 3, b"gj04\t1\t\t\xff", "invalid UTF-8"),
        ("MRPC", "dev.tsv", 2, b"1\t7\t8\tA sentence.\t", "the column #2 String is empty"),
        ("MNLI", "dev_mismatched.tsv", 2, b"\t".join([b"-"] * 16), "the gold_label '-' is none of entailment"),
        ("STS-B", "train.tsv", 4, b"\t".join([b"x"] * 9 + [b"good"]), "the score 'good' is not a number"),
        ("STS-B", "train.tsv", 4, b"\t".join([b"x"] * 9 + [b"5.1"]), "the score 5.1 is not between 0 and 5"),
        ("STS-B", "train.tsv", 4, b"\t".join([b"x"] * 9 + [b"nan"]), "is not between 0 and 5"),
        ("RTE", "dev.tsv", 1, b"index\tpremise\thypothesis\tlabel", "the header lacks the column sentence1, sentence2"),
        ("RTE", "test.tsv", 1, b"number\tsentence1\tsentence2", "the header lacks the column index; it has number"),
    ],
)
def test_a_broken_row_is_an_error_with_file_and_line(
    task: str, file: str, line: int, text: bytes, message: str, tmp_path: Path
) -> None:
    write_glue(tmp_path)
    path = tmp_path / task / file
    rewritten(path, line, text)
    split = Split(file.split(".")[0].split("_")[0])
    with pytest.raises(DataError) as caught:
        GlueData(tmp_path).read(task_named(task), split)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)


def test_a_missing_or_empty_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    write_glue(tmp_path)
    (tmp_path / "CoLA" / "dev.tsv").unlink()
    (tmp_path / "CoLA" / "train.tsv").write_text("", encoding="utf-8")
    data, cola = GlueData(tmp_path), task_named("CoLA")
    assert not data.has(cola, Split.DEV)
    with pytest.raises(DataError, match=r"CoLA/dev.tsv: the file does not exist"):
        data.read(cola, Split.DEV)
    with pytest.raises(DataError, match=r"CoLA/train.tsv: the train split has no examples"):
        data.read(cola, Split.TRAIN)
    with pytest.raises(DataError, match="nowhere does not exist"):
        GlueData.find(tmp_path / "nowhere")


def test_task_names_are_read_leniently_and_a_typo_is_an_error() -> None:
    assert task_named("sst2").name == task_named("SST-2").name == "SST-2"
    with pytest.raises(DataError, match=r"did you mean 'MNLI'\?\); known: CoLA"):
        task_named("MNIL")


def test_the_default_folder_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERMIT_DATA", str(tmp_path))
    with pytest.raises(DataError, match="glue does not exist; set --data"):
        GlueData.find(None)
    (tmp_path / "glue").mkdir()
    assert GlueData.find(None).folder == tmp_path / "glue"
    assert GlueData.find(tmp_path).folder == tmp_path


def test_the_checksum_depends_on_texts_labels_and_parts() -> None:
    one = [Part("", [Example("a", "b", 1, "0")])]
    assert examples_checksum(one) == examples_checksum([Part("", [Example("a", "b", 1, "7")])])
    for other in (
        [Part("", [Example("a", "c", 1, "0")])],
        [Part("", [Example("a", "b", 0, "0")])],
        [Part("matched", [Example("a", "b", 1, "0")])],
    ):
        assert examples_checksum(other) != examples_checksum(one)


@pytest.mark.skipif(not REAL.is_dir(), reason="KERMIT_DATA names no folder with GLUE's files")
@pytest.mark.parametrize("name", list(PUBLISHED))
def test_the_published_files_have_the_published_sizes(name: str) -> None:
    data, task = GlueData(REAL), task_named(name)
    found = tuple(len(data.read(task, split)[0].examples) for split in (Split.TRAIN, Split.DEV))
    assert found == PUBLISHED[name]
    assert len(data.read(task, Split.TEST)[0].examples) == task.submission[name]
