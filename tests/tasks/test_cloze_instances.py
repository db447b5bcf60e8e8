"""Cloze instances from QA2D and SQuAD: gaps, and the reasons for skipped rows."""

import gzip
import json
import os
from pathlib import Path

import pytest
from cloze_models import write_data

from kermit.errors import DataError
from kermit.tasks.cloze.instances import ClozeInstance, Skip, read_cloze
from kermit.tasks.cloze.spacing import find_words, join_words, split_words

DATA = os.environ.get("KERMIT_DATA")  # read now: the tests themselves run without it
HEAD = "dataset\texample_uid\tquestion\tanswer\tturker_answer\trule-based\n"


@pytest.fixture
def made(tmp_path):
    """Reads one row of QA2D against one question of SQuAD."""

    def read(answer, sentence, *, passage=None, gold=None, start=None, question="Who?", dataset="SQuAD"):
        gold = answer if gold is None else gold
        passage = f"It was {gold}." if passage is None else passage
        answers = [{"text": gold, "answer_start": passage.index(gold) if start is None else start}]
        # a valid row, so that the set is not empty
        entries = [
            {"id": "good", "question": "Why?", "answers": [{"text": "It", "answer_start": 0}]},
            {"id": "id", "question": question, "answers": answers},
        ]
        record = {"data": [{"paragraphs": [{"context": passage, "qas": entries}]}]}
        (tmp_path / "squad.json").write_text(json.dumps(record), encoding="utf-8")
        rows = f"SQuAD\tgood\tq\tIt\tIt was .\t-\n{dataset}\tid\tq\t{answer}\t{sentence}\t-\n"
        (tmp_path / "qa2d.tsv").write_text(HEAD + rows, encoding="utf-8")
        found = read_cloze(tmp_path / "qa2d.tsv", tmp_path / "squad.json")
        [instance] = [instance for instance in found.instances if instance.id != "good"] or [None]
        return instance or next(iter(found.skipped))

    return read


@pytest.mark.parametrize(
    ("answer", "sentence", "gold", "left", "gap", "right"),
    [
        ("65 %", "Prussia controlled 65 % of land .", "65%", "Prussia controlled", "65%", " of land."),
        ("two", "Two pools are there .", "two", "", "Two", " pools are there."),
        ("1,500 V", "The voltage is 1,500 V.", "1,500 V", "The voltage is", "1,500 V", "."),
        ("the U.S.", "It was in the U.S.", "the U.S.", "It was in", "the U.S.", ""),
        ("Polish refugees .", "Polish refugees came .", "Polish refugees.", "", "Polish refugees", " came."),
        ("Ann 's dog", "It is Ann 's dog , is n't it ?", "Ann's dog", "It is", "Ann's dog", ", isn't it?"),
        ("$ 15.5 m", "He paid $ 15.5 m for it .", "$15.5m", "He paid", "$15.5 m", " for it."),
    ],
)
def test_the_answer_is_taken_out_and_the_rest_is_written_as_running_text(
    made, answer, sentence, gold, left, gap, right
):
    instance = made(answer, sentence, gold=gold)
    assert (instance.left, instance.gap, instance.right) == (left, gap, right)
    assert instance.answers == (gold,)
    assert not instance.joined


def test_a_gap_after_an_opening_quote_or_bracket_touches_it(made):
    instance = made("rural districts", "They are called `` rural districts '' there .")
    assert (instance.left, instance.right, instance.joined) == ('They are called "', '" there.', True)


@pytest.mark.parametrize(
    ("reason", "row"),
    [
        (Skip.OTHER_DATASET, {"dataset": "QAMR"}),
        (Skip.EMPTY, {"sentence": " "}),
        (Skip.EMPTY, {"question": " "}),
        (Skip.WRONG_OFFSET, {"start": 3}),
        (Skip.OTHER_ANSWER, {"gold": "Bob"}),
        (Skip.ABSENT, {"sentence": "Annie was there ."}),
        (Skip.ABSENT, {"sentence": "The half-Ann was there ."}),
        (Skip.REPEATED, {"sentence": "Ann saw ann ."}),
        (Skip.ALONE, {"sentence": "`` Ann . ''"}),
    ],
)
def test_a_skipped_row_is_counted_by_reason(made, reason, row):
    assert made(**{"answer": "Ann", "sentence": "Ann was there .", **row}) is reason


def test_every_row_is_an_instance_or_has_a_reason(tmp_path):
    found = read_cloze(*write_data(tmp_path))
    assert [instance.id for instance in found.instances] == ["q0", "q1", "q2"]
    assert found.skipped == {Skip.OTHER_DATASET: 1, Skip.UNKNOWN_ID: 1, Skip.ABSENT: 1}
    assert found.rows == 6


def test_blank_lines_are_not_rows(tmp_path):
    qa2d, squad = write_data(tmp_path)
    head, *rows = gzip.decompress(qa2d.read_bytes()).decode().splitlines()
    spaced = tmp_path / "spaced.tsv"
    spaced.write_text("\n".join([head, "", *rows[:3], "\t \r", *rows[3:], "", "", ""]), encoding="utf-8")
    assert read_cloze(spaced, squad) == read_cloze(qa2d, squad)


def test_a_repeated_id_makes_one_instance(tmp_path):
    _, squad = write_data(tmp_path)
    plain = tmp_path / "twice.tsv"
    row = "SQuAD\tq1\tWho ?\tAustria\tAustria held the rest .\t-\n"
    plain.write_text(HEAD + row + row, encoding="utf-8")
    assert read_cloze(plain, squad).skipped == {Skip.REPEATED_ID: 1}


def paragraph(context="A b.", question="What?", start=0):
    """SQuAD with one question."""
    asked = {"id": "q1", "question": question, "answers": [{"text": "A", "answer_start": start}]}
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": [asked]}]}]})


def test_a_damaged_gzip_file_is_an_error(tmp_path):
    qa2d, _ = write_data(tmp_path)
    packed = bytearray(gzip.compress(paragraph().encode() * 50))
    packed[20:40] = bytes(20)
    (tmp_path / "squad.json.gz").write_bytes(packed)
    with pytest.raises(DataError, match=r"squad.json.gz: not in SQuAD's format"):
        read_cloze(qa2d, tmp_path / "squad.json.gz")


@pytest.mark.parametrize(
    ("qa2d", "squad", "message"),
    [
        ("dataset\tquestion\n", None, r"qa2d.tsv:1: the header lacks example_uid, answer, turker_answer"),
        ("", None, r"qa2d.tsv:1: the header lacks dataset"),
        (HEAD + "SQuAD\tq1\n", None, r"qa2d.tsv:2: 2 columns, but the header has 6"),
        (HEAD + "SQuAD\tq9\t?\tA\tA .\t-\n", None, r"no row .*1 unknown_id"),
        (HEAD, '{"data": [', r"squad.json: not in SQuAD's format: .*Invalid JSON"),
        (HEAD, '{"data": [{"paragraphs": [{"qas": [{}]}]}]}', r"squad.json: not in SQuAD's format"),
        (HEAD, paragraph(context=None), r"squad.json: .*paragraphs.0.context .*valid string"),
        (HEAD, paragraph(question=3), r"squad.json: .*qas.0.question .*valid string"),
        (
            HEAD,
            paragraph(start="0"),
            r"squad.json: .*answers.0.answer_start .*valid integer",
        ),
    ],
)
def test_a_broken_file_is_an_error_with_file_and_line(tmp_path, qa2d, squad, message):
    _, good = write_data(tmp_path)
    (tmp_path / "qa2d.tsv").write_text(qa2d, encoding="utf-8")
    if squad is not None:
        good.write_text(squad, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_cloze(tmp_path / "qa2d.tsv", good)


def test_words_are_found_however_they_were_split_and_quoted_but_not_inside_words():
    sentence = split_words("The ` Golden Age ' , 65 % of it , was golden-age-like .")
    assert find_words(["''", "golden", "age", "''"], sentence) == [(1, 5)]
    assert find_words(["65%"], sentence) == [(6, 8)]
    assert find_words(["golden"], sentence) == [(2, 3)]
    assert find_words(["gold"], sentence) == []


def test_joined_words_are_running_text():
    words = ["He", "said", ":", "``", "I", "ca", "n't", "(", "yet", ")", "pay", "$", "5", ".", "''"]
    assert join_words(words) == 'He said: "I can\'t (yet) pay $5."'
    assert join_words([]) == ""


def test_a_sentence_with_one_blank_is_an_instance():
    instance = ClozeInstance.from_text("P.", "Q?", "She (____) ran.", ["a", "b"])
    assert (instance.left, instance.right, instance.joined, instance.gap) == ("She (", ") ran.", True, "a")
    for sentence in ("No blank.", "____ and ____"):
        with pytest.raises(DataError, match="exactly one gap"):
            ClozeInstance.from_text("P.", "Q?", sentence, ["a"])


@pytest.mark.skipif(DATA is None, reason="needs the folder of real data, with qa2d/ and squad/, in KERMIT_DATA")
def test_the_real_data_has_the_documented_counts():
    folder = Path(DATA)
    found = read_cloze(folder / "qa2d" / "dev.tsv.gz", folder / "squad" / "train-v1.1.json.gz")
    assert found.rows == 6366
    assert len(found.instances) == 3938
    assert found.skipped == {
        Skip.OTHER_DATASET: 1994,
        Skip.UNKNOWN_ID: 2,
        Skip.OTHER_ANSWER: 2,
        Skip.ABSENT: 406,
        Skip.REPEATED: 9,
        Skip.ALONE: 15,
    }
    for instance in found.instances:
        assert instance.gap
        assert instance.left.strip() == instance.left
        assert any(answer in instance.passage for answer in instance.answers)
