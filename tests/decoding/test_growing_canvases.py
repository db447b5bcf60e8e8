"""Canvases that grow in one flat list, compared with canvases that grow one by one."""

import numpy as np
from hypothesis import given, settings, strategies as st
from insertion_models import BLANK, CACHED_SPECIALS, A, B, C

from kermit.canvas import Canvas, CanvasBatch, Insertion
from kermit.canvas.blank_room import BlankRoom
from kermit.canvas.context import generations_of, lay_out
from kermit.decoding.growing_canvases import OPEN, Growing
from kermit.decoding.reading import Blocks, WholeCanvases
from kermit.engines import Engine, ModelInfo

TOKENS = st.sampled_from([A, B, C])


class Silent:
    """An engine that is never called; it only describes the model."""

    caches = False

    def __init__(self, *, cached_context: bool) -> None:
        self.info = ModelInfo(CACHED_SPECIALS, 8, cached_context=cached_context, blank_id=BLANK)


@st.composite
def canvases(draw: st.DrawFn) -> Canvas:
    segments = tuple(tuple(draw(st.lists(TOKENS, max_size=5))) for _ in range(draw(st.integers(1, 2))))
    slots = st.integers(1, len(Canvas(CACHED_SPECIALS, segments)) - 1)
    return Canvas(CACHED_SPECIALS, segments, frozenset(draw(st.sets(slots, min_size=1))))


def grow(draw: st.DrawFn, work: list[Canvas], text: Growing, flags: list[list[list[bool]]]) -> Growing:
    """Insert a few tokens into every canvas, in place, and return the same as a flat list."""
    chosen = []
    for row, canvas in enumerate(work):
        slots = sorted(draw(st.sets(st.sampled_from(sorted(canvas.open_slots)))))
        insertions = [Insertion(slot, draw(TOKENS)) for slot in slots]
        chosen += [(int(text.starts[row]) + one.slot, one.token_id) for one in insertions]
        work[row] = canvas.insert(insertions)
        for slot in reversed(slots):
            side = next(number for number in range(len(canvas.segments)) if slot in canvas.slots(number))  # type: ignore[arg-type]
            flags[row][side].insert(slot - canvas.slots(side)[0], True)  # type: ignore[arg-type]
    slots, tokens = np.array(chosen, dtype=np.int64).reshape(-1, 2).T
    return text.grown(slots, tokens)


@settings(max_examples=150, deadline=None)
@given(st.lists(canvases(), min_size=1, max_size=4), st.data())
def test_growing_together_equals_inserting_into_each_canvas(work: list[Canvas], data: st.DataObject) -> None:
    text = Growing(work, blank_id=None)
    flags = [[[False] * len(side) for side in canvas.segments] for canvas in work]
    for _ in range(2):
        text = grow(data.draw, work, text, flags)
    left = sorted(data.draw(st.sets(st.integers(0, len(work) - 1), min_size=1)))
    text.take(np.array(left))
    for number, row in enumerate(left):
        canvas, inserted = text.canvas(number)
        assert canvas == Canvas(CACHED_SPECIALS, work[row].segments, work[row].open_slots)
        assert inserted == tuple(map(tuple, flags[row]))


@settings(max_examples=150, deadline=None)
@given(st.lists(canvases(), min_size=1, max_size=4), st.sampled_from([None, 8, 14]), st.data())
def test_rows_of_growing_canvases_equal_those_of_lay_out(
    work: list[Canvas], limit: int | None, data: st.DataObject
) -> None:
    engine: Engine = Silent(cached_context=True)  # type: ignore[assignment]
    room = BlankRoom(3, limit)
    text = Growing(work, blank_id=BLANK, blank_room=room)
    flags = [[[False] * len(side) for side in canvas.segments] for canvas in work]
    for _ in range(2):
        text = grow(data.draw, work, text, flags)
    slots = np.flatnonzero(text.planes[OPEN])
    rows, left, right = Blocks(engine).rows(text, slots)
    layout = lay_out(generations_of(CanvasBatch.from_canvases(work, inserted=flags)), BLANK, room)
    length = rows.token_ids.shape[1]
    real = rows.token_ids != CACHED_SPECIALS.pad_id
    assert len(left) == len(layout.slots.rows)
    for row in range(len(work)):
        mine, wide = np.flatnonzero(real[row]), layout.rows.token_ids.shape[1]
        theirs = np.flatnonzero(layout.rows.valid[row])
        for name in ("token_ids", "segment_ids", "orders"):
            assert getattr(rows, name)[row, mine].tolist() == getattr(layout.rows, name)[row, theirs].tolist(), name
        np.testing.assert_allclose(rows.positions[row, mine], layout.rows.positions[row, theirs], atol=1e-5)
        seen, expected = rows.mask[row][np.ix_(mine, mine)], layout.rows.mask[row][np.ix_(theirs, theirs)]
        assert np.array_equal(seen, expected)
        assert not rows.mask[row][np.ix_(mine, np.flatnonzero(~real[row]))].any()
        place = {at: number for number, at in enumerate(mine.tolist())}
        of_row = layout.slots.rows == row
        for found, laid in ((left, layout.slots.left), (right, layout.slots.right)):
            at = [place[int(one) % length] for one in found[of_row]]
            assert at == (laid[of_row] % wide).tolist()


@settings(max_examples=60, deadline=None)
@given(st.lists(canvases(), min_size=1, max_size=3), st.integers(1, 3), st.data())
def test_repeated_rows_equal_those_of_repeated_canvases(work: list[Canvas], times: int, data: st.DataObject) -> None:
    left = sorted(data.draw(st.sets(st.integers(0, len(work) - 1), min_size=1)))
    text = Growing(work, blank_id=BLANK, blank_room=BlankRoom(3))
    text.take(np.array(left))
    text.take(np.repeat(np.arange(len(text)), times))
    expected = Growing([work[row] for row in left for _ in range(times)], blank_id=BLANK, blank_room=BlankRoom(3))
    assert np.array_equal(text.planes, expected.planes)
    for name in ("low", "room", "fixed"):
        assert np.array_equal(getattr(text.spans, name), getattr(expected.spans, name)), name
    whole = WholeCanvases(Silent(cached_context=False))  # type: ignore[arg-type]
    slots = np.flatnonzero(text.planes[OPEN])
    one, other = whole.rows(text, slots)[0], whole.rows(expected, slots)[0]
    assert np.array_equal(one.token_ids, other.token_ids)
