import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from kermit.decoding import choosing
from kermit.decoding.choosing import log_locations
from kermit.modeling.insertion import logsumexp_by_row

NUMBERS = st.one_of(st.floats(-50, 50), st.just(-math.inf))


@given(st.lists(st.lists(NUMBERS, max_size=4), min_size=1, max_size=4))
def test_logsumexp_by_row_equals_the_logsumexp_of_each_row(rows: list[list[float]]) -> None:
    values = [value for row in rows for value in row]
    index = np.array([number for number, row in enumerate(rows) for _ in row], dtype=np.int64)
    tensors = logsumexp_by_row(torch.tensor(values, dtype=torch.float32), torch.tensor(index), len(rows))
    arrays = choosing.row_logsumexp(np.array(values, dtype=np.float64), index, len(rows))
    for row, tensor, array in zip(rows, tensors.tolist(), arrays.tolist(), strict=True):
        total = sum(math.exp(x) for x in row)
        expected = math.log(total) if total else -math.inf
        assert tensor == pytest.approx(expected, abs=1e-4)
        assert array == pytest.approx(expected, abs=1e-9)


def test_logsumexp_by_row_handles_large_values_and_its_gradient_is_the_softmax() -> None:
    values = torch.tensor([1000.0, 1000.0, -1000.0, 3.0], requires_grad=True)
    found = logsumexp_by_row(values, torch.tensor([0, 0, 2, 2]), 3)
    assert found.tolist() == pytest.approx([1000 + math.log(2), -math.inf, 3.0])
    (2 * found[0] + found[2]).backward()
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([1, 1, 0, 1])


ROWS = np.array([0, 0, 2])


def test_locations_are_a_softmax_over_the_open_slots_of_the_canvas() -> None:
    log_location, log_stop = log_locations(ROWS, np.array([math.log(3), 0.0, 7.0]), None, 3)
    assert log_stop is None
    assert np.exp(log_location).tolist() == pytest.approx([0.75, 0.25, 1.0])


def test_stopping_is_one_action_next_to_the_locations() -> None:
    stop = np.array([math.log(4), 5.0, 7.0])
    log_location, log_stop = log_locations(ROWS, np.array([math.log(3), 0.0, 7.0]), stop, 3)
    assert log_stop is not None
    assert np.exp(log_location).tolist() == pytest.approx([3 / 8, 1 / 8, 0.5])
    assert np.exp(log_stop).tolist() == pytest.approx([0.5, 1.0, 0.5])  # a canvas without open slots can only stop
