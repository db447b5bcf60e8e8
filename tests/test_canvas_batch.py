import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kermit.canvas import Canvas, Insertion, SpecialTokens
from kermit.canvas.batch import NOTHING, CanvasBatch
from kermit.errors import CanvasError

SPECIALS = SpecialTokens(cls_id=1, sep_id=2, pad_id=0, end_of_slot_id=3)
TOKENS = st.integers(4, 9)


@st.composite
def canvases(draw: st.DrawFn) -> Canvas:
    segments = tuple(tuple(draw(st.lists(TOKENS, max_size=4))) for _ in range(draw(st.integers(1, 2))))
    canvas = Canvas(SPECIALS, segments)
    open_slots = draw(st.sets(st.integers(1, len(canvas) - 1)))
    return Canvas(SPECIALS, segments, frozenset(open_slots))


@st.composite
def canvases_with_insertions(draw: st.DrawFn) -> tuple[Canvas, dict[int, int]]:
    canvas = draw(canvases())
    slots = draw(st.sets(st.sampled_from(sorted(canvas.open_slots)))) if canvas.open_slots else set()
    return canvas, {slot: draw(TOKENS) for slot in slots}


@given(st.lists(canvases(), min_size=1, max_size=5))
def test_canvases_come_back_from_a_batch_as_they_were(given_canvases: list[Canvas]) -> None:
    batch = CanvasBatch.from_canvases(given_canvases)
    assert [batch.canvas(row) for row in range(len(batch))] == given_canvases
    assert bool((batch.token_ids[~batch.valid] == SPECIALS.pad_id).all())
    assert not bool(batch.open_slots[~batch.valid].any())


@given(st.lists(canvases(), min_size=1, max_size=5))
def test_the_fast_way_to_complete_texts_equals_the_checked_one(given_canvases: list[Canvas]) -> None:
    closed = [Canvas(SPECIALS, canvas.segments) for canvas in given_canvases]
    slow, fast = CanvasBatch.from_canvases(closed), CanvasBatch.from_segments(SPECIALS, [c.segments for c in closed])
    for name in ("token_ids", "segment_ids", "valid", "open_slots"):
        assert torch.equal(getattr(slow, name), getattr(fast, name)), name


@settings(max_examples=300)
@given(st.lists(canvases_with_insertions(), min_size=1, max_size=5))
def test_inserting_into_a_batch_equals_inserting_into_each_canvas(work: list[tuple[Canvas, dict[int, int]]]) -> None:
    batch = CanvasBatch.from_canvases([canvas for canvas, _ in work])
    tokens = torch.full_like(batch.token_ids, NOTHING)
    for row, (_, insertions) in enumerate(work):
        for slot, token_id in insertions.items():
            tokens[row, slot] = token_id
    places = torch.arange(batch.token_ids.shape[1]).expand_as(batch.token_ids).contiguous() + 100
    new, (marked, placed) = batch.insert(tokens, [(batch.valid, False), (places, NOTHING)])
    for row, (canvas, insertions) in enumerate(work):
        expected = canvas.insert([Insertion(slot, token_id) for slot, token_id in insertions.items()])
        assert new.canvas(row) == expected
        assert new.segment_ids[row, : len(expected)].tolist() == list(expected.segment_ids)
        # the planes, place by place: a new token's is False in one and that of the token on its right in the other
        marks, origins = [], []
        for place in range(len(canvas)):
            if place in insertions:
                marks.append(False)
                origins.append(place + 100)
            marks.append(True)
            origins.append(place + 100)
        assert marked[row].tolist() == marks + [False] * (new.token_ids.shape[1] - len(marks))
        assert placed[row, : len(origins)].tolist() == origins
    assert bool((new.token_ids[~new.valid] == SPECIALS.pad_id).all())
    assert int(new.valid.sum(1).max()) == new.token_ids.shape[1]


@given(st.lists(canvases(), min_size=2, max_size=5), st.data())
def test_selected_rows_are_cut_to_the_longest_of_them(given_canvases: list[Canvas], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(given_canvases) - 1), max_size=4))
    chosen = CanvasBatch.from_canvases(given_canvases).select(torch.tensor(rows, dtype=torch.long))
    assert [chosen.canvas(row) for row in range(len(chosen))] == [given_canvases[row] for row in rows]
    assert chosen.token_ids.shape[1] == max((len(given_canvases[row]) for row in rows), default=0)


def test_a_batch_needs_a_canvas() -> None:
    with pytest.raises(CanvasError, match="at least one canvas"):
        CanvasBatch.from_canvases([])


def test_the_canvases_of_a_batch_share_their_special_tokens() -> None:
    other = SpecialTokens(cls_id=10, sep_id=2, pad_id=0, end_of_slot_id=3)
    with pytest.raises(CanvasError, match="share their special tokens"):
        CanvasBatch.from_canvases([Canvas(SPECIALS, ((),)), Canvas(other, ((),))])
