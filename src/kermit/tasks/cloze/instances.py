"""Cloze instances from QA2D and SQuAD: the answer is removed from the declarative sentence (the paper's section 4.3).

QA2D (Demszky et al., 2018) has a declarative sentence with the answer for some of SQuAD's questions; passage, question
and gold answers are SQuAD's. Skipped rows are counted by reason. This module knows no tokenizer and no model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, NonNegativeInt

from kermit.canvas.blanks import BlankedText
from kermit.data.plain import BROKEN_GZIP, open_bytes, read_lines
from kermit.errors import DataError, Place, in_a_line
from kermit.tasks.cloze.spacing import (
    find_words,
    has_letters,
    join_words,
    letters,
    space_between,
    split_words,
    without_outer_punctuation,
)

_COLUMNS = ("dataset", "example_uid", "question", "answer", "turker_answer")


class Skip(StrEnum):
    """Why a row of QA2D was skipped."""

    OTHER_DATASET = "other_dataset"
    UNKNOWN_ID = "unknown_id"
    REPEATED_ID = "repeated_id"
    EMPTY = "empty_side"
    WRONG_OFFSET = "answer_start_elsewhere"
    OTHER_ANSWER = "answer_not_squads"
    ABSENT = "answer_absent_from_sentence"
    REPEATED = "answer_more_than_once"
    ALONE = "sentence_is_the_answer"


@dataclass(frozen=True)
class ClozeInstance:
    """A passage, a question, and a sentence with a gap.

    Args:
        left: the sentence before the gap, without trailing white space.
        right: the sentence after the gap, with leading white space, if any.
        joined: whether no white space separates `left` and the gap, as after an opening bracket.
    """

    id: str
    passage: str
    question: str
    left: str
    right: str
    joined: bool
    gap: str
    answers: tuple[str, ...]

    @classmethod
    def from_text(
        cls, passage: str, question: str, sentence: str, answers: Sequence[str], id: str = ""
    ) -> ClozeInstance:
        """Build an instance from a sentence with one gap, written as four underscores."""
        parts = BlankedText.parse(sentence)
        if len(parts.fragments) != 2:
            raise DataError(f"{sentence!r} has {len(parts.spaces)} blanks; mark exactly one gap with ____")
        if not answers:
            raise DataError(f"the cloze {sentence!r} has no answer; give at least one")
        left, right = parts.fragments
        return cls(id, passage, question, left, right, parts.joined[0], answers[0], tuple(answers))

    def __len__(self) -> int:
        return sum(map(len, (self.passage, self.question, self.left, self.right)))


@dataclass(frozen=True)
class ClozeSet:
    """Instances in QA2D's order, its number of rows, and the number of skipped rows by reason."""

    instances: tuple[ClozeInstance, ...]
    rows: int
    skipped: Mapping[Skip, int]


class _Answer(BaseModel):
    text: str
    answer_start: NonNegativeInt


class _Question(BaseModel):
    id: str
    question: str
    answers: list[_Answer]


class _Paragraph(BaseModel):
    context: str
    qas: list[_Question]


class _Article(BaseModel):
    paragraphs: list[_Paragraph]


class _Squad(BaseModel):
    """SQuAD's file."""

    data: list[_Article]


def read_cloze(qa2d: Path, squad: Path) -> ClozeSet:
    """Read instances from QA2D's TSV, with passages and answers from the SQuAD JSON that its ids refer to."""
    questions = _read_squad(squad)
    instances: dict[str, ClozeInstance] = {}
    skipped: Counter[Skip] = Counter()
    rows = 0
    for row in _read_qa2d(qa2d):
        rows += 1
        made = _instance(row, questions, instances)
        if isinstance(made, Skip):
            skipped[made] += 1
        else:
            instances[made.id] = made
    if not instances:
        reasons = ", ".join(f"{count:,} {reason.value}" for reason, count in skipped.items()) or "no rows"
        raise DataError(
            f"{qa2d}: no row gives a cloze instance with {squad} ({reasons}); check that the two belong together"
        )
    return ClozeSet(tuple(instances.values()), rows, {reason: skipped[reason] for reason in Skip if skipped[reason]})


def _instance(
    row: Mapping[str, str], questions: Mapping[str, tuple[str, _Question]], seen: Mapping[str, ClozeInstance]
) -> ClozeInstance | Skip:
    if row["dataset"] != "SQuAD":
        return Skip.OTHER_DATASET
    identity = row["example_uid"]
    if identity not in questions:
        return Skip.UNKNOWN_ID
    passage, found = questions[identity]
    if identity in seen:
        return Skip.REPEATED_ID
    answer, sentence = split_words(row["answer"]), split_words(row["turker_answer"])
    gold = tuple(dict.fromkeys(one.text for one in found.answers))
    if not (answer and sentence and passage.strip() and found.question.strip() and all(map(str.strip, gold))):
        return Skip.EMPTY
    if not all(passage.startswith(one.text, one.answer_start) for one in found.answers):
        return Skip.WRONG_OFFSET
    if letters(answer) not in {letters(text.split()) for text in gold}:
        return Skip.OTHER_ANSWER
    places = find_words(answer, sentence)
    if not places and (bare := without_outer_punctuation(answer)):
        places = find_words(bare, sentence)
    if len(places) != 1:
        return Skip.REPEATED if places else Skip.ABSENT
    [(start, end)] = places
    left, gap, right = sentence[:start], sentence[start:end], sentence[end:]
    if not any(map(has_letters, left + right)):
        return Skip.ALONE
    return ClozeInstance(
        id=identity,
        passage=passage,
        question=found.question.strip(),
        left=join_words(left),
        right=space_between(gap[-1], right[0]) + join_words(right) if right else "",
        joined=bool(left) and not space_between(left[-1], gap[0]),
        gap=join_words(gap),
        answers=gold,
    )


def _read_qa2d(path: Path) -> Iterator[dict[str, str]]:
    lines = read_lines(path)
    head = next(lines, None)
    names = (head.text or "").split("\t") if head is not None else []
    if missing := [name for name in _COLUMNS if name not in names]:
        raise DataError(
            f"the header lacks {', '.join(missing)}; the first line of QA2D's TSV names its columns",
            place=Place(str(path), 1),
        )
    for line in lines:
        if line.text is None:
            raise DataError("invalid UTF-8; fix the line", place=line.place)
        if not line.text.strip():
            continue
        cells = line.text.split("\t")
        if len(cells) != len(names):
            raise DataError(f"{len(cells)} columns, but the header has {len(names)}; fix the line", place=line.place)
        yield dict(zip(names, cells, strict=True))


def _read_squad(path: Path) -> dict[str, tuple[str, _Question]]:
    """Read every question with its passage, by its id."""
    with open_bytes(path) as stream:
        try:
            articles = _Squad.model_validate_json(stream.read(), strict=True).data
        except (ValueError, *BROKEN_GZIP) as error:
            raise DataError(f"{path}: not in SQuAD's format: {in_a_line(error)}; download it again") from error
    paragraphs = [paragraph for article in articles for paragraph in article.paragraphs]
    return {question.id: (paragraph.context, question) for paragraph in paragraphs for question in paragraph.qas}
