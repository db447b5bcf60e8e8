from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from kermit.data.batching import (
    SPECIALS_PER_ROW,
    Batch,
    BatchPlanner,
    BatchStream,
    RankShare,
    batch_generator,
    padded,
)
from kermit.errors import DataError


@dataclass(frozen=True)
class Lengths:
    """A text of which only the lengths are known, the same in every epoch."""

    x_lengths: np.ndarray
    y_lengths: np.ndarray
    sources: np.ndarray

    def epoch(self, number: int) -> Lengths:
        return self


def lengths(rows: int = 300, sources: int = 1) -> Lengths:
    draw = np.random.default_rng(0)
    of_source = np.sort(draw.integers(0, sources, rows))
    return Lengths(draw.integers(1, 30, rows), draw.integers(1, 30, rows), of_source)


def planner(rows: int = 300, tokens: int = 200, weights: tuple[float, ...] = (1.0,), seed: int = 5) -> BatchPlanner:
    return BatchPlanner(lengths(rows, len(weights)), weights, tokens, seed)


@settings(max_examples=40, deadline=None)
@given(tokens=st.integers(70, 2000), seed=st.integers(0, 99), epoch=st.integers(0, 9))
def test_an_epoch_holds_every_row_once_and_no_batch_exceeds_its_budget(tokens: int, seed: int, epoch: int) -> None:
    plan = planner(tokens=tokens, seed=seed)
    batches = plan.epoch(epoch)
    assert sorted(row for batch in batches for row in batch.rows) == list(range(300))
    for index, batch in enumerate(batches):
        longest = max(plan.text.x_lengths[row] + plan.text.y_lengths[row] + SPECIALS_PER_ROW for row in batch.rows)
        assert longest * len(batch.rows) <= tokens
        assert (batch.epoch, batch.index) == (epoch, index)


def test_an_epoch_depends_only_on_seed_and_number() -> None:
    assert planner().epoch(3) == planner().epoch(3)
    assert planner().epoch(3) != planner().epoch(4)
    assert planner(seed=1).epoch(3) != planner(seed=2).epoch(3)


def test_rows_of_similar_length_share_a_batch_but_not_the_same_ones_every_epoch() -> None:
    plan = planner(rows=3000, tokens=1000)
    batches = plan.epoch(0)
    real = sum(
        int(plan.text.x_lengths[row] + plan.text.y_lengths[row]) + SPECIALS_PER_ROW for b in batches for row in b.rows
    )
    assert real / (1000 * len(batches)) > 0.9
    assert {frozenset(batch.rows) for batch in batches}.isdisjoint(frozenset(b.rows) for b in plan.epoch(1))


def test_the_weight_of_a_source_is_how_often_an_epoch_contains_it() -> None:
    plan = planner(weights=(2.0, 0.25, 1.5))
    sizes = Counter(plan.text.sources.tolist())
    seen = [Counter(row for batch in plan.epoch(epoch) for row in batch.rows) for epoch in (0, 1)]
    for counts in seen:
        by_source: Counter[int] = Counter()
        for row, count in counts.items():
            by_source[int(plan.text.sources[row])] += count
        assert by_source[0] == 2 * sizes[0]
        assert by_source[1] == round(0.25 * sizes[1])
        assert by_source[2] == sizes[2] + round(0.5 * sizes[2])
    assert seen[0] != seen[1], "the random part is drawn anew"


def test_the_stream_continues_epoch_after_epoch() -> None:
    plan = planner()
    one = len(plan.epoch(0))
    stream = BatchStream(plan, one + 3)
    batches = [batch for (batch,) in stream]
    assert len(stream) == len(batches) == one + 3
    assert batches == [*plan.epoch(0), *plan.epoch(1)[:3]]


def test_a_text_too_long_for_any_batch_is_an_error_with_the_fix() -> None:
    with pytest.raises(DataError, match=r"raise `batch\.tokens`"):
        planner(tokens=20).epoch(0)


def test_batches_too_small_for_the_processes_are_an_error_at_the_start_with_the_fix() -> None:
    text = lengths()
    longest = int((text.x_lengths + text.y_lengths).max()) + SPECIALS_PER_ROW
    BatchPlanner(text, (1.0,), tokens=5 * longest, seed=1, processes=3).epoch(0)
    told = rf"only 2 texts, too few for 3 processes; raise `batch\.tokens` to {5 * longest}"
    with pytest.raises(DataError, match=told):
        BatchPlanner(text, (1.0,), tokens=5 * longest - 1, seed=1, processes=3).epoch(0)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=4, max_size=40),
    processes=st.integers(1, 4),
    more=st.integers(0, 60),
    seed=st.integers(0, 99),
)
def test_batches_of_the_minimum_size_can_be_divided(lengths: list[int], processes: int, more: int, seed: int) -> None:
    tokens = (max(lengths) + SPECIALS_PER_ROW) * (2 * processes - 1) + more
    x, none = np.asarray(lengths), np.zeros(len(lengths), dtype=np.int64)
    for batch in BatchPlanner(Lengths(x, none, none), (1.0,), tokens, seed, processes).epoch(0):
        assert len(batch.rows) >= processes


def test_every_batch_has_its_own_random_generator() -> None:
    def draw(seed: int, epoch: int, index: int) -> float:
        return float(batch_generator(seed, Batch(epoch, index, ())).random())

    assert draw(1, 2, 3) == draw(1, 2, 3)
    assert len({draw(1, 2, 3), draw(2, 2, 3), draw(1, 3, 3), draw(1, 2, 4)}) == 4


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_the_shares_of_all_processes_are_the_whole_batch(processes: int) -> None:
    whole = {"a": np.arange(7), "b": np.arange(14).reshape(7, 2)}
    shares = [RankShare(rank, processes).of(whole) for rank in range(processes)]
    assert sorted(np.concatenate([share["a"] for share in shares]).tolist()) == list(range(7))
    for share in shares:
        assert np.array_equal(share["b"][:, 0], 2 * share["a"])
    with pytest.raises(DataError, match="too few for 8 processes"):
        RankShare(0, 8).of(whole)


def test_padding_is_on_the_right() -> None:
    assert padded([[1, 2], [], [3]], 9).tolist() == [[1, 2], [9, 9], [3, 9]]


@pytest.mark.parametrize("left_over", [1, 2, 30])
def test_the_last_batch_can_be_divided_among_processes(left_over: int) -> None:
    each = 200 // (8 + SPECIALS_PER_ROW)
    rows = 5 * each + left_over % each
    text = Lengths(np.full(rows, 4), np.full(rows, 4), np.zeros(rows, dtype=np.int64))
    planned = BatchPlanner(text, (1.0,), tokens=200, seed=1).epoch(0)
    sizes = sorted(len(batch.rows) for batch in planned)
    assert sum(sizes) == rows
    assert sizes[0] >= each // 2
    assert max(sizes) <= each
