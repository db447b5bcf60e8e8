"""Cached context: rows written out by hand, and which tokens see which."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from insertion_models import BLANK, CACHED_SPECIALS, CLS, SEP, A, B, C, blanks_of, cached_model, read
from torch import Tensor

from kermit.canvas import Canvas, CanvasBatch, Factorization, Insertion
from kermit.canvas.arrays import Integers
from kermit.canvas.blank_room import BlankRoom
from kermit.canvas.context import GIVEN, PADDING, Generations, RowLayout, generations_of, lay_out
from kermit.errors import CanvasError
from kermit.objectives.training_canvases import Texts


def rows_of(
    x: tuple[int, ...],
    y: tuple[int, ...] | None,
    way: Factorization,
    *,
    missing: dict[int, int],
    marked: tuple[int, ...] = (),
    left_to_right: bool = False,
    width: int = 2,
) -> RowLayout:
    """One text; `missing` has the round of each token that is not given, by its place in the complete canvas."""
    batch = CanvasBatch.from_segments(CACHED_SPECIALS, [(x,) if y is None else (x, y)])
    texts = Texts.of(batch, [way])
    generated, rounds = np.zeros_like(batch.valid), np.zeros_like(batch.token_ids)
    marks = np.zeros_like(batch.valid)
    for place, number in missing.items():
        generated[0, place], rounds[0, place] = True, number
    marks[0, list(marked)] = True
    texts = Texts(batch, texts.present, generated, texts.open_segments, marks)
    return laid_out(texts, rounds, left_to_right=left_to_right, width=width)


def laid_out(texts: Texts, rounds: Integers, *, left_to_right: bool = False, width: int = 2) -> RowLayout:
    made = Generations(
        texts.batch.token_ids,
        texts.batch.segment_ids,
        texts.present,
        texts.given,
        texts.marks,
        texts.open_slots,
        rounds,
        np.array([left_to_right]),
        CACHED_SPECIALS,
    )
    return lay_out(made, BLANK, BlankRoom(width))


def test_a_translation_row_has_the_source_once_and_a_block_per_round() -> None:
    rows = rows_of((A, B), (C, A, B), Factorization.Y_GIVEN_X, missing={4: 2, 5: 1, 6: 2}).rows
    assert rows.token_ids.tolist() == [[CLS, A, B, SEP, SEP, A, SEP, C, A, B, SEP]]
    assert rows.blocks.tolist() == [[0, 0, 0, 0, 1, 2, 2, 3, 3, 3, 3]]
    assert rows.positions.tolist() == [[0, 1, 2, 3, 1, 1, 2, 1, 2, 3, 4]]
    assert rows.segment_ids.tolist() == [[0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]]
    seen = rows.mask[0]
    assert seen[4].nonzero()[0].tolist() == [0, 1, 2, 3, 4]
    assert seen[5].nonzero()[0].tolist() == [0, 1, 2, 3, 5, 6]
    assert seen[2].nonzero()[0].tolist() == [0, 1, 2, 3]


def test_a_blank_has_room_and_a_marker_in_the_given_part_and_in_every_block() -> None:
    # A ____ B with C missing from the blank
    layout = rows_of((A, C, B), None, Factorization.JOINT, missing={2: 1}, marked=(3,))
    assert layout.rows.token_ids.tolist() == [[CLS, A, BLANK, B, SEP, BLANK, C, BLANK]]
    assert layout.rows.blocks.tolist() == [[0, 0, 0, 0, 0, 1, 2, 2]]
    assert layout.rows.positions.tolist() == [[0, 1, 4, 5, 6, 4, 2, 4]]
    # the blank's slot, then those on both sides of C; nothing else is open
    assert layout.slots.left.tolist() == [1, 1, 6]
    assert layout.slots.right.tolist() == [5, 6, 7]
    assert layout.slots.numbers.tolist() == [3, 2, 3]


def test_tokens_beyond_the_room_of_a_blank_have_fractional_positions() -> None:
    layout = rows_of(
        (A, C, C, C, C, C, B), None, Factorization.JOINT, missing=dict.fromkeys(range(2, 7), 1), marked=(7,)
    )
    block = layout.rows.positions[layout.rows.blocks == 2]
    assert block.tolist() == [1.5, 2.0, 2.5, 3.0, 3.5, 4.0]


def test_without_a_marker_tokens_are_placed_between_their_neighbours_and_the_slot_is_asked_once() -> None:
    batch = CanvasBatch.from_segments(CACHED_SPECIALS, [((A, C, C, B),)])
    texts = Texts.of(batch, [Factorization.JOINT])
    generated = np.array([[False, False, True, True, False, False]])
    texts = Texts(batch, texts.present, generated, texts.open_segments)
    rounds = np.array([[0, 0, 1, 2, 0, 0]])
    layout = laid_out(texts, rounds)
    assert layout.rows.token_ids.tolist() == [[CLS, A, B, SEP, C, C, C]]
    assert layout.rows.positions.tolist()[0][:5] == [0, 1, 2, 3, 1.5]
    assert layout.rows.positions.tolist()[0][5:] == pytest.approx([4 / 3, 5 / 3])
    fresh = layout.slots.fresh
    assert np.bincount(layout.slots.rounds[fresh]).tolist() == [3, 2, 3]  # all of the first; then those next to C


def test_with_nothing_given_the_block_is_the_papers_canvas() -> None:
    rows = rows_of((A, B), (C,), Factorization.JOINT, missing={1: 2, 2: 1, 4: 1}).rows
    assert not (rows.blocks == GIVEN).any()
    last = rows.blocks == 3
    assert rows.token_ids[last].tolist() == [CLS, A, B, SEP, C, SEP]
    assert rows.positions[last].tolist() == [0, 1, 2, 3, 1, 2]


def test_with_limited_positions_each_of_many_blanks_gets_less_room() -> None:
    given, markers = np.array([10, 10, 10, 10]), np.array([0, 1, 5, 40])
    assert BlankRoom(8).step(given, markers).tolist() == [9, 9, 9, 9]
    step = BlankRoom(8, limit=31).step(given, markers)
    assert step.tolist() == [9, 9, 4, 0.5]
    assert (given + step * markers <= 30).all()


def test_left_to_right_the_end_of_a_span_comes_first_and_spans_follow_one_another() -> None:
    # A ____ B ____ with C C in the first blank and A in the second
    layout = rows_of(
        (A, C, C, B, A), None, Factorization.JOINT, missing={2: 0, 3: 0, 5: 0}, marked=(4, 6), left_to_right=True
    )
    rows = layout.rows
    block = rows.blocks == 1
    assert rows.token_ids[block].tolist() == [C, C, BLANK, A, BLANK]
    assert rows.times[block].tolist() == [2, 3, 1, 5, 4]
    assert rows.positions[block].tolist() == [2, 3, 4, 6, 8]
    # every slot is read from the token before it and the end of its span
    places = block[0].nonzero()[0].tolist()
    assert layout.slots.left.tolist() == [1, places[0], places[1], 3, places[3]]
    assert layout.slots.right.tolist() == [places[2]] * 3 + [places[4]] * 2


def states(canvas: Canvas, start: Canvas, left_to_right: bool = False) -> tuple[Tensor, Integers]:
    """The hidden states of a canvas that grew from another, and the blocks of its tokens."""
    flags = [[False] * len(side) for side in canvas.segments]
    for side, (now, before) in enumerate(zip(canvas.segments, start.segments, strict=True)):
        kept = iter(before)
        expected = next(kept, None)
        for place, token in enumerate(now):
            if token == expected:
                expected = next(kept, None)
            else:
                flags[side][place] = True
    model = cached_model()
    batch = CanvasBatch.from_canvases([canvas], inserted=[flags])
    layout = lay_out(generations_of(batch, left_to_right=left_to_right), **blanks_of(model))
    return read(model, layout.rows)[0], layout.rows.blocks[0]


def test_the_states_of_given_tokens_do_not_change_with_what_is_inserted() -> None:
    start = Canvas.from_fragments(CACHED_SPECIALS, [(A,), (B, A)], [(B,), ()])
    before, blocks = states(start, start)
    grown = start.insert([Insertion(2, C), Insertion(6, C)])
    after, after_blocks = states(grown, start)
    assert torch.allclose(before[blocks == GIVEN], after[after_blocks == GIVEN], atol=1e-6)
    assert not torch.allclose(before[blocks == 1], after[after_blocks == 1][[1, 3]], atol=1e-3)


def test_no_block_sees_another() -> None:
    model = cached_model()
    layout = rows_of((A, B), (C, A, B), Factorization.Y_GIVEN_X, missing={4: 2, 5: 1, 6: 2})
    changed = layout.rows.token_ids.copy()
    changed[0, 8] = C  # in the last block
    one = read(model, layout.rows)
    other = read(model, replace(layout.rows, token_ids=changed))
    same = (one - other).abs().amax(2)[0] < 1e-6
    assert same.tolist() == [True] * 7 + [False] * 4


def test_left_to_right_no_token_sees_a_later_token() -> None:
    model = cached_model()
    layout = rows_of((A,), (C, A, B), Factorization.Y_GIVEN_X, missing={3: 0, 4: 0, 5: 0}, left_to_right=True)
    changed = layout.rows.token_ids.copy()
    changed[0, 4] = C  # the second token of y
    one = read(model, layout.rows)
    other = read(model, replace(layout.rows, token_ids=changed))
    same = (one - other).abs().amax(2)[0] < 1e-6
    assert same.tolist() == [True] * 4 + [False, False, True]  # the end of the span comes first


@settings(max_examples=60)
@given(data=st.data())
def test_rows_do_not_depend_on_batch_or_padding(data: st.DataObject) -> None:
    token = st.sampled_from([A, B, C])
    side = st.lists(token, max_size=5)
    pairs = data.draw(st.lists(st.tuples(side, side), min_size=1, max_size=4))
    canvases = []
    for x, y in pairs:
        blanks = data.draw(st.sets(st.integers(1, len(x) + len(y) + 2)))
        canvases.append(Canvas(CACHED_SPECIALS, (tuple(x), tuple(y)), frozenset(blanks)))
    together = lay_out(generations_of(CanvasBatch.from_canvases(canvases)), BLANK, BlankRoom(3))
    for row, canvas in enumerate(canvases):
        alone = lay_out(generations_of(CanvasBatch.from_canvases([canvas])), BLANK, BlankRoom(3))
        length = alone.rows.token_ids.shape[1]
        for name in ("token_ids", "segment_ids", "positions", "blocks", "times"):
            plane = getattr(together.rows, name)[row]
            assert plane[:length].tolist() == getattr(alone.rows, name)[0].tolist(), name
        assert (together.rows.blocks[row, length:] == PADDING).all()
        mine = together.slots.rows == row
        assert together.slots.numbers[mine].tolist() == alone.slots.numbers.tolist() == sorted(canvas.open_slots)


def test_a_batch_without_its_given_tokens_is_rejected() -> None:
    with pytest.raises(CanvasError, match="cached context needs the given tokens"):
        generations_of(CanvasBatch.from_segments(CACHED_SPECIALS, [((A,),)]))
