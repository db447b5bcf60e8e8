"""GLUE's scores, worked out by hand, and the averages of the paper's table."""

import numpy as np
import pytest

from kermit.errors import DataError
from kermit.tasks.glue.data import Example, Part
from kermit.tasks.glue.scoring import answers_of, glue_average, score_task
from kermit.tasks.glue.table import TASKS, task_named

# the paper's table of GLUE results; two numbers where a task has two metrics
PAPER = {
    "BERT": ([60.5, 94.9, (89.3, 85.4), (87.6, 86.5), (72.1, 89.3), (86.7, 85.9), 92.7, 70.1, 65.1, 39.6], 80.5),
    "KERMIT": ([60.0, 94.2, (88.6, 84.3), (86.6, 85.6), (71.7, 89.0), (85.6, 85.2), 92.0, 68.4, 65.1, 37.6], 79.8),
}


def part(labels: list[float | None], name: str = "") -> Part:
    return Part(name, [Example("x", None, label, "") for label in labels])


@pytest.mark.parametrize("model", list(PAPER))
def test_the_average_is_that_of_the_papers_table(model: str) -> None:
    numbers, average = PAPER[model]
    scores = {task.name: float(np.mean(number)) for task, number in zip(TASKS, numbers, strict=True)}
    assert round(glue_average(scores), 1) == average


def test_the_average_is_over_the_existing_tasks_without_ax() -> None:
    assert glue_average({"CoLA": 50.0, "RTE": 60.0, "AX": 10.0}) == 55.0
    assert glue_average({"AX": 10.0}) is None


def test_accuracy_and_f1_by_hand() -> None:
    # correct: 3 of 5; positives: 2 of 3 found, 3 predicted
    scores = score_task(task_named("MRPC"), [part([1, 1, 1, 0, 0])], [np.array([1, 1, 0, 1, 0])])
    assert scores.metrics == {"f1": 66.67, "accuracy": 60.0}
    assert scores.score == pytest.approx((66.67 + 60) / 2, abs=0.01)


def test_matthews_by_hand() -> None:
    # TP 2, FN 1, FP 1, TN 1: (2 * 1 - 1 * 1) / sqrt(3 * 3 * 2 * 2)
    scores = score_task(task_named("CoLA"), [part([1, 1, 1, 0, 0])], [np.array([1, 1, 0, 1, 0])])
    assert scores.metrics == {"matthews": round(100 / 6, 2)}


def test_matthews_of_three_labels_is_1_if_all_are_correct() -> None:
    scores = score_task(task_named("AX"), [part([0, 1, 2, 1])], [np.array([0, 1, 2, 1])])
    assert scores.metrics == {"matthews": 100.0}


def test_correlations_by_hand() -> None:
    # deviations (-1, 0, 1) and (-2, -1, 3): 5 / sqrt(2 * 14); the ranks agree
    scores = score_task(task_named("STS-B"), [part([1, 2, 3])], [np.array([0.0, 1.0, 5.0])])
    assert scores.metrics == {"pearson": round(500 / 28**0.5, 2), "spearman": 100.0}


def test_answers_that_are_all_the_same_score_0_and_not_nan() -> None:
    same = score_task(task_named("STS-B"), [part([1, 2, 3])], [np.array([2.0, 2.0, 2.0])])
    assert same.metrics == {"pearson": 0.0, "spearman": 0.0}
    assert score_task(task_named("CoLA"), [part([0, 1])], [np.array([1, 1])]).score == 0
    assert score_task(task_named("QQP"), [part([0, 1])], [np.array([0, 0])]).metrics == {"f1": 0.0, "accuracy": 50.0}


def test_both_parts_of_mnli_have_the_same_weight_whatever_their_size() -> None:
    parts = [part([0, 1], "matched"), part([0, 1, 2, 0], "mismatched")]
    scores = score_task(task_named("MNLI"), parts, [np.array([0, 1]), np.array([1, 1, 1, 1])])
    assert scores.metrics == {"accuracy_matched": 100.0, "accuracy_mismatched": 25.0}
    assert scores.score == 62.5


def test_answers_are_the_best_label_or_the_number_within_its_limits() -> None:
    assert answers_of(task_named("MNLI"), np.array([[0.1, 0.9, 0.0], [3.0, 1.0, 2.0]])).tolist() == [1, 0]
    numbers = np.array([[-1.0], [2.5], [7.0]])
    assert answers_of(task_named("STS-B"), numbers).tolist() == [0.0, 2.5, 5.0]


def test_examples_without_labels_cannot_be_scored() -> None:
    with pytest.raises(DataError, match="no labels"):
        score_task(task_named("CoLA"), [part([None])], [np.array([1])])
