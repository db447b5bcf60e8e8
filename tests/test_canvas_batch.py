import numpy as np
import pytest
from hypothesis import given, strategies as st
from insertion_models import canvas_at

from kermit.canvas import Canvas, CanvasBatch, SpecialTokens
from kermit.errors import CanvasError

SPECIALS = SpecialTokens(cls_id=1, sep_id=2, pad_id=0, end_of_slot_id=3)
TOKENS = st.integers(4, 9)


@st.composite
def canvases(draw: st.DrawFn) -> Canvas:
    segments = tuple(tuple(draw(st.lists(TOKENS, max_size=4))) for _ in range(draw(st.integers(1, 2))))
    canvas = Canvas(SPECIALS, segments)
    open_slots = draw(st.sets(st.integers(1, len(canvas) - 1)))
    return Canvas(SPECIALS, segments, frozenset(open_slots))


@given(st.lists(canvases(), min_size=1, max_size=5))
def test_a_batch_returns_its_canvases_unchanged(given_canvases: list[Canvas]) -> None:
    batch = CanvasBatch.from_canvases(given_canvases)
    assert [canvas_at(batch, row) for row in range(len(batch))] == given_canvases
    assert bool((batch.token_ids[~batch.valid] == SPECIALS.pad_id).all())
    assert not bool(batch.open_slots[~batch.valid].any())


@given(st.lists(canvases(), min_size=1, max_size=5))
def test_the_fast_path_for_complete_texts_equals_the_checked_one(given_canvases: list[Canvas]) -> None:
    closed = [Canvas(SPECIALS, canvas.segments) for canvas in given_canvases]
    slow, fast = CanvasBatch.from_canvases(closed), CanvasBatch.from_segments(SPECIALS, [c.segments for c in closed])
    for name in ("token_ids", "segment_ids", "valid", "open_slots"):
        assert np.array_equal(getattr(slow, name), getattr(fast, name)), name


def test_a_batch_needs_a_canvas() -> None:
    with pytest.raises(CanvasError, match="at least one canvas"):
        CanvasBatch.from_canvases([])


def test_the_canvases_of_a_batch_share_their_special_tokens() -> None:
    other = SpecialTokens(cls_id=10, sep_id=2, pad_id=0, end_of_slot_id=3)
    with pytest.raises(CanvasError, match="share their special tokens"):
        CanvasBatch.from_canvases([Canvas(SPECIALS, ((),)), Canvas(other, ((),))])
