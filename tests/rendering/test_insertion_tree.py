"""The insertion tree, compared with a decode replayed token by token."""

from hypothesis import given
from rendering_records import SPECIALS, readable, traces

from kermit.canvas import Canvas
from kermit.decoding.trace import Trace, TracedInsertion
from kermit.rendering import Layout, parents


def played_through(trace: Trace) -> list[int | None]:
    """Each token's parent by the definition: the newer of its two neighbours when it is inserted."""
    row: list[dict] = [{"round": 0, "parent": None} for _ in trace.start.token_ids]
    for number, insertions in enumerate(trace.rounds, start=1):
        before = list(row)
        for insertion in insertions:
            left, right = before[insertion.slot - 1], before[insertion.slot]
            newer = left if left["round"] > right["round"] else right
            new = {"round": number, "parent": newer if newer["round"] > 0 else None}
            place = next(index for index, token in enumerate(row) if token is right)
            row.insert(place, new)
    places = {id(token): index for index, token in enumerate(row)}
    return [None if token["parent"] is None else places[id(token["parent"])] for token in row]


@given(traces())
def test_parents_are_the_newer_neighbours_at_the_time_of_insertion(trace):
    assert parents(trace.tokens()) == played_through(trace)


@given(traces())
def test_a_parent_is_older_and_on_the_same_side(trace):
    tokens = trace.tokens()
    for token, parent in zip(tokens, parents(tokens), strict=True):
        if parent is not None:
            assert 0 < tokens[parent].round < token.round
            assert tokens[parent].segment == token.segment


# given "A ____ .": 11 comes first, then 12 and 13 to its left and right, then 14 between 11 and 13
BLANK = Trace(
    Canvas.from_fragments(SPECIALS, [[10], [15]], []),
    (
        (TracedInsertion(2, 11, -0.5),),
        (TracedInsertion(2, 12, -0.25), TracedInsertion(3, 13, -1.0)),
        (TracedInsertion(4, 14, -2.0),),
        (),
    ),
)


def test_tokens_inserted_between_given_words_are_roots():
    # [CLS] 10 12 11 14 13 15 [SEP] [SEP]
    assert [token.token_id for token in BLANK.tokens()] == [1, 10, 12, 11, 14, 13, 15, 2, 2]
    assert parents(BLANK.tokens()) == [None, None, 3, None, 5, 3, None, None, None]


def test_the_tree_in_the_terminal_has_children_in_the_order_of_the_text():
    lines = readable(BLANK).terminal_lines(colour=False, layout=Layout.TREE)
    assert [line.plain for line in lines] == ["en", "  1  w11", "  2  ├─ w12", "  2  └─ w13", "  3     └─ w14"]


def test_the_tree_as_json_refers_to_parents_by_index():
    tree = readable(BLANK).to_json(Layout.TREE)["tree"]
    assert [(node["token_id"], node["round"], node["parent"]) for node in tree] == [
        (10, 0, None),
        (12, 2, 2),
        (11, 1, None),
        (14, 3, 4),
        (13, 2, 2),
        (15, 0, None),
    ]
