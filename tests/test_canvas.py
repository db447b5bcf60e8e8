import pytest
from hypothesis import given, strategies as st

from kermit.canvas import Canvas, Factorization, Insertion, Segment, SpecialTokens
from kermit.errors import CanvasError, KermitError

SPECIALS = SpecialTokens(cls_id=1, sep_id=2, pad_id=0, end_of_slot_id=3, others=frozenset({9}))


def canvas_of(*segments: tuple[int, ...], open_slots: set[int] = frozenset()) -> Canvas:  # type: ignore[assignment]
    return Canvas(SPECIALS, segments, frozenset(open_slots))


def test_one_segment_is_framed_by_cls_and_sep() -> None:
    canvas = canvas_of((4, 5))
    assert canvas.token_ids == (1, 4, 5, 2)
    assert canvas.segment_ids == (0, 0, 0, 0)
    assert len(canvas) == 4


def test_two_segments_share_cls_and_have_a_sep_each() -> None:
    canvas = canvas_of((4, 5), (6,))
    assert canvas.token_ids == (1, 4, 5, 2, 6, 2)
    assert canvas.segment_ids == (0, 0, 0, 0, 1, 1)
    assert len(canvas) == 6


def test_a_segment_has_a_slot_left_of_each_token_and_of_its_sep() -> None:
    canvas = canvas_of((4, 5), (6,))
    assert list(canvas.slots(Segment.X)) == [1, 2, 3]
    assert list(canvas.slots(Segment.Y)) == [4, 5]


def test_an_empty_segment_has_one_slot() -> None:
    canvas = canvas_of((), ())
    assert canvas.token_ids == (1, 2, 2)
    assert list(canvas.slots(Segment.X)) == [1]
    assert list(canvas.slots(Segment.Y)) == [2]


@pytest.mark.parametrize(
    ("way", "x", "y", "expected"),
    [
        (Factorization.JOINT, (4,), (5,), {1, 2, 3, 4}),
        (Factorization.Y_GIVEN_X, (4,), (5,), {3, 4}),
        (Factorization.X_GIVEN_Y, (4,), (5,), {1, 2}),
        (Factorization.X, (4,), (), {1, 2}),
        (Factorization.Y, (), (5,), {2, 3}),
    ],
)
def test_the_factorization_opens_the_slots_of_what_is_generated(
    way: Factorization, x: tuple[int, ...], y: tuple[int, ...], expected: set[int]
) -> None:
    assert Canvas.from_ids(SPECIALS, x, y, generate=way).open_slots == expected


def test_ids_without_a_factorization_open_no_slot() -> None:
    assert Canvas.from_ids(SPECIALS, (4,), (5,)).open_slots == frozenset()


@pytest.mark.parametrize("way", [Factorization.JOINT, Factorization.Y_GIVEN_X, Factorization.X, Factorization.Y])
def test_a_factorization_that_needs_y_is_an_error_without_y(way: Factorization) -> None:
    with pytest.raises(CanvasError, match=f"{way.name} needs segment Y; give y"):
        Canvas.from_ids(SPECIALS, (4,), generate=way)


def test_a_marginal_needs_the_other_segment_empty() -> None:
    with pytest.raises(CanvasError, match="X needs segment Y to be empty"):
        Canvas.from_ids(SPECIALS, (4,), (5,), generate=Factorization.X)


def test_fragments_open_only_the_blanks_between_them() -> None:
    canvas = Canvas.from_fragments(SPECIALS, [[4, 5], [6]], [[7], [], [8, 8]])
    assert canvas.token_ids == (1, 4, 5, 6, 2, 7, 8, 8, 2)
    assert canvas.open_slots == {3, 6}  # left of 6, and left of the first 8: the blanks that meet are one


def test_empty_fragments_at_the_ends_are_blanks_there() -> None:
    canvas = Canvas.from_fragments(SPECIALS, [[], [4], []], [[5]])
    assert canvas.open_slots == {1, 2}


def test_fragments_of_nothing_are_an_empty_segment_with_no_blank() -> None:
    canvas = Canvas.from_fragments(SPECIALS, [], [[]])
    assert canvas.token_ids == (1, 2, 2)
    assert canvas.open_slots == frozenset()


def test_text_opens_its_blanks_and_marks_those_that_touch_a_word() -> None:
    def encode(text: str) -> list[int]:
        return [10 + ord(letter) for letter in text if letter != " "]

    canvas = Canvas.from_text(SPECIALS, encode, "a ____ bc____", "____d")
    letters = "abcd"
    a, b, c, d = (10 + ord(letter) for letter in letters)
    assert canvas.token_ids == (1, a, b, c, 2, d, 2)
    assert canvas.open_slots == {2, 4, 5}
    assert canvas.joined_slots == {4}


def test_all_insertions_are_applied_at_once() -> None:
    canvas = canvas_of((4, 5), (6,), open_slots={1, 2, 3, 4, 5})
    after = canvas.insert([Insertion(5, 8), Insertion(1, 7), Insertion(3, 7)])
    assert after.segments == ((7, 4, 5, 7), (6, 8))


def test_both_sides_of_a_new_token_are_open_and_the_rest_is_unchanged() -> None:
    canvas = canvas_of((4, 5), (6,), open_slots={2, 5})
    after = canvas.insert([Insertion(2, 7)])
    # [CLS] 4 7 5 [SEP] 6 [SEP]: slots left of 7 (2) and of 5 (3) are open, and the last one, which moved from 5 to 6
    assert after.token_ids == (1, 4, 7, 5, 2, 6, 2)
    assert after.open_slots == {2, 3, 6}


def test_joined_slots_stay_next_to_their_word() -> None:
    canvas = Canvas(SPECIALS, ((4, 5),), frozenset({2}), frozenset({2}))
    after = canvas.insert([Insertion(2, 7)])
    assert after.open_slots == {2, 3}
    assert after.joined_slots == {2}


def test_no_insertions_leave_the_canvas_unchanged() -> None:
    canvas = canvas_of((4,), (), open_slots={3})
    assert canvas.insert([]) == canvas


@pytest.mark.parametrize("slot", [-1, 0, 5, 99])
def test_a_slot_that_does_not_exist_is_an_error_that_lists_the_slots(slot: int) -> None:
    canvas = canvas_of((4, 5), (), open_slots={1})
    with pytest.raises(CanvasError, match=rf"slot {slot} does not exist; this canvas has slots 1 to 4"):
        canvas.insert([Insertion(slot, 7)])
    with pytest.raises(CanvasError, match=rf"slot {slot} does not exist"):
        canvas_of((4, 5), (), open_slots={slot})


def test_a_closed_slot_is_an_error_that_lists_the_open_slots() -> None:
    with pytest.raises(CanvasError, match=r"slot 2 is closed; the open slots are \[1, 3\]"):
        canvas_of((4, 5), open_slots={3, 1}).insert([Insertion(2, 7)])


def test_two_insertions_into_a_slot_are_an_error() -> None:
    with pytest.raises(CanvasError, match="slot 1 has two insertions"):
        canvas_of((), open_slots={1}).insert([Insertion(1, 7), Insertion(1, 8)])


@pytest.mark.parametrize("special", [0, 1, 2, 3, 9])
def test_a_special_token_as_content_is_an_error_that_says_where(special: int) -> None:
    with pytest.raises(CanvasError, match=rf"segment Y, position 1: token {special} is a special token"):
        canvas_of((4,), (5, special))
    with pytest.raises(CanvasError, match=rf"insertion into slot 1: token {special} is a special token"):
        canvas_of((), open_slots={1}).insert([Insertion(1, special)])


def test_a_negative_token_id_is_an_error() -> None:
    with pytest.raises(CanvasError, match="-4 is not a token id"):
        canvas_of((-4,))


def test_a_joined_slot_must_be_open() -> None:
    with pytest.raises(CanvasError, match="slot 1 is joined but not open"):
        Canvas(SPECIALS, ((4,),), frozenset({2}), frozenset({1}))


@pytest.mark.parametrize("segments", [(), ((4,), (5,), (6,))])
def test_a_canvas_has_one_or_two_segments(segments: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(CanvasError, match=f"one or two segments, not {len(segments)}"):
        Canvas(SPECIALS, segments)


def test_a_missing_segment_has_no_slots() -> None:
    with pytest.raises(CanvasError, match="no segment Y"):
        canvas_of((4,)).slots(Segment.Y)


def test_special_tokens_must_differ() -> None:
    with pytest.raises(CanvasError, match="four different token ids"):
        SpecialTokens(cls_id=1, sep_id=2, pad_id=0, end_of_slot_id=0)


def test_every_canvas_error_is_a_kermit_error() -> None:
    with pytest.raises(KermitError):
        canvas_of()


def test_a_factorization_defines_what_is_generated_and_what_is_absent() -> None:
    assert Factorization.JOINT.generated == {Segment.X, Segment.Y}
    assert Factorization.Y_GIVEN_X.generated == {Segment.Y}
    assert Factorization.Y_GIVEN_X.absent == frozenset()
    assert Factorization.X.generated == {Segment.X}
    assert Factorization.X.absent == {Segment.Y}
    assert Factorization.Y.absent == {Segment.X}


@given(st.lists(st.integers(4, 8), max_size=6), st.data())
def test_inserting_the_missing_tokens_one_by_one_in_any_order_gives_the_text(
    tokens: list[int], data: st.DataObject
) -> None:
    """Rebuild the text from an empty canvas: insert token i into the slot after the earlier tokens that are present."""
    order = data.draw(st.permutations(range(len(tokens))))
    canvas = Canvas.from_ids(SPECIALS, (), (), generate=Factorization.Y)
    there: list[int] = []
    for place in order:
        slot = 2 + sum(other < place for other in there)
        canvas = canvas.insert([Insertion(slot, tokens[place])])
        there.append(place)
    assert canvas.segments == ((), tuple(tokens))
    assert canvas.open_slots == set(canvas.slots(Segment.Y))


def test_a_joined_slot_stays_joined_when_tokens_are_inserted_before_it() -> None:
    canvas = Canvas(SPECIALS, ((10, 11, 12),), frozenset({1, 2, 3}), joined_slots=frozenset({2, 3}))
    grown = canvas.insert([Insertion(1, 20), Insertion(2, 21)])
    assert grown.segments == ((20, 10, 21, 11, 12),)
    # the slot right of 10 is 3 now, and that right of 11 is 5; the one between 21 and 11 touches nothing given
    assert grown.joined_slots == {3, 5}
    assert grown.open_slots == {1, 2, 3, 4, 5}
