import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kermit.slots import SlotScores
from kermit.modeling.ragged import row_logsumexp

NUMBERS = st.one_of(st.floats(-50, 50), st.just(-math.inf))


@given(st.lists(st.lists(NUMBERS, max_size=4), min_size=1, max_size=4))
def test_logsumexp_by_row_equals_that_of_each_row(rows: list[list[float]]) -> None:
    values = torch.tensor([value for row in rows for value in row])
    index = torch.tensor([number for number, row in enumerate(rows) for _ in row], dtype=torch.long)
    found = row_logsumexp(values, index, len(rows))
    for row, value in zip(rows, found.tolist(), strict=True):
        total = sum(math.exp(x) for x in row)
        assert value == pytest.approx(math.log(total) if total else -math.inf, abs=1e-4)


def test_logsumexp_by_row_takes_large_values_and_has_the_softmax_as_its_gradient() -> None:
    values = torch.tensor([1000.0, 1000.0, -1000.0, 3.0], requires_grad=True)
    found = row_logsumexp(values, torch.tensor([0, 0, 2, 2]), 3)
    assert found.tolist() == pytest.approx([1000 + math.log(2), -math.inf, 3.0])
    (2 * found[0] + found[2]).backward()
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([1, 1, 0, 1])


def scores(location: list[float], stop: list[float] | None) -> SlotScores:
    rows = torch.tensor([0, 0, 2])
    content = torch.zeros(3, 5)
    return SlotScores(rows, torch.tensor([1, 2, 1]), content, torch.tensor(location), stop and torch.tensor(stop))


def test_locations_are_a_softmax_over_the_open_slots_of_the_canvas() -> None:
    log_location, log_stop = scores([math.log(3), 0.0, 7.0], None).log_location()
    assert log_stop is None
    assert log_location.exp().tolist() == pytest.approx([0.75, 0.25, 1.0])


def test_stopping_stands_beside_the_locations() -> None:
    log_location, log_stop = scores([math.log(3), 0.0, 7.0], [math.log(4), 5.0, 7.0]).log_location()
    assert log_stop is not None
    assert log_location.exp().tolist() == pytest.approx([3 / 8, 1 / 8, 0.5])
    assert log_stop.exp().tolist() == pytest.approx([0.5, 1.0, 0.5])  # a canvas without open slots can only stop
