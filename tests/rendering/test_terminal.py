from kermit.canvas import Canvas, Segment, SpecialTokens
from kermit.decoding.trace import Trace, TracedInsertion
from kermit.rendering import ReadableTrace, terminal_lines

SPECIALS = SpecialTokens(1, 2, 0, 3)
WORDS = {10: "A", 11: " man", 12: " rides", 13: "."}
# [CLS] A [SEP] with " rides" and "." inserted at the end, then " man" between
TRACE = Trace(
    Canvas.from_fragments(SPECIALS, [[10], []], []),
    (
        (TracedInsertion(2, 13, -0.1),),
        (TracedInsertion(2, 12, -0.2),),
        (TracedInsertion(2, 11, -0.3),),
        (),
    ),
)


def test_without_colour_rounds_are_shown_by_brackets_and_dots():
    lines = terminal_lines(TRACE, Segment.X, WORDS.__getitem__, colour=False)
    assert [line.plain for line in lines] == ["  1  A ··· ·····[.]", "  2  A ··· [rides].", "  3  A [man] rides."]


def test_with_colour_the_text_itself_is_not_changed():
    lines = terminal_lines(TRACE, Segment.X, WORDS.__getitem__)
    assert {line.plain[5:] for line in lines} == {"A man rides."}
    assert len({tuple(map(str, line.spans)) for line in lines}) == 3


def test_each_token_has_exactly_the_style_of_its_round():
    first = terminal_lines(TRACE, Segment.X, WORDS.__getitem__)[1]
    styles = {first.plain[span.start : span.end]: span.style for span in first.spans}
    assert first.style == ""
    assert styles == {"  2  ": "dim", "A": "bold", " man": "grey58", " rides": "blue underline"}  # and "." has none


def test_only_sides_that_changed_are_shown():
    readable = ReadableTrace(TRACE, WORDS.__getitem__, ("en", "de"))
    assert readable.terminal_lines(colour=False)[0].plain == "en"
    assert len(readable.terminal_lines(colour=False)) == 4
    assert readable.to_json()["rounds"][0] == [{"slot": 2, "token_id": 13, "text": ".", "log_prob": -0.1}]
