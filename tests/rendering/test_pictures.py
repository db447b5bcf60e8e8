"""Pictures and pages of decodes: well-formed, whole, harmless, readable on light and dark, and nothing overlaps."""

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest
from hypothesis import given, strategies as st
from matplotlib.ft2font import FT2Font, LoadFlags
from rendering_records import SPECIALS, readable, traces

from kermit.canvas import Canvas, Factorization
from kermit.decoding.trace import Trace, TracedInsertion
from kermit.errors import DataError
from kermit.rendering import Layout, ReadableTrace, page
from kermit.rendering.measure import visible, width
from kermit.rendering.svg import DARK, LIGHT

SVG = "{http://www.w3.org/2000/svg}"
layouts = st.sampled_from(Layout)


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in drawn(svg).iter(f"{SVG}text")]


def simple(*words: str) -> ReadableTrace:
    """Words that come one by one, the first first."""
    start = Canvas.from_ids(SPECIALS, (), (), generate=Factorization.JOINT)
    rounds = tuple((TracedInsertion(number + 1, 10 + number, -0.5),) for number in range(len(words)))
    return ReadableTrace(Trace(start, rounds), lambda token: words[token - 10], ("en", "de"))


@given(traces(), layouts)
def test_every_token_of_the_final_text_is_in_the_picture(trace, layout):
    shown = texts(readable(trace).svg(layout))
    tokens = [token for token in trace.tokens() if token.token_id >= 10]
    for token in tokens:
        assert f"w{token.token_id}" in shown
    changed = [token for token in tokens if token.round]
    if layout is Layout.ROUNDS:
        lines = {s: max(1, len({t.round for t in changed if t.segment == s})) for s in (0, 1)}
        assert sum(text.startswith("w") for text in shown) == sum(lines[token.segment] for token in tokens)


@given(traces())
def test_a_token_looks_in_each_round_as_it_is_in_that_round(trace):
    root = drawn(readable(trace).svg())
    rows: dict[tuple[str, str], set[str]] = {}
    for element in root.iter(f"{SVG}text"):
        rows.setdefault((element.get("x"), element.text), set()).add(element.get("class"))
    for token in trace.tokens():
        if token.token_id >= 10 and token.round:
            assert any("now" in classes for (_, text), classes in rows.items() if text == f"w{token.token_id}")


def test_what_is_new_there_and_to_come_have_their_own_classes():
    root = drawn(simple("A", " man").svg())
    found = [(element.text, element.get("class")) for element in root.iter(f"{SVG}text")]
    assert found == [
        ("en", "side before"),
        ("1", "note"),
        ("A", "now"),
        ("man", "later"),
        ("2", "note"),
        ("A", "before"),
        ("man", "now"),
    ]


@given(st.lists(st.text(max_size=6), min_size=1, max_size=4), layouts)
def test_any_text_makes_well_formed_xml_and_comes_back(words, layout):
    shown = texts(simple(*words).svg(layout))
    for word in words:
        assert visible(word) in shown


def test_markup_in_a_text_stays_text():
    trace = simple("<script>alert(1)</script>", ' "&amp;"', " --></svg>")

    tags = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            tags.append(tag)

    for layout in Layout:
        document = page([trace], layout, title="</title><script>")
        Reader().feed(document)
        assert "<script" not in document
        assert "script" not in tags
        assert "<script>alert(1)</script>" in texts(trace.svg(layout))


def test_pictures_and_pages_load_nothing():
    trace = simple("A", " man")
    for document in (trace.svg(), trace.svg(Layout.TREE), page([trace, trace], Layout.ROUNDS)):
        outside = document.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|src=|href=|url\(|@import", outside)


def test_a_token_says_its_round_and_probability_on_hover():
    titles = [element.text for element in drawn(simple("A").svg()).iter(f"{SVG}title")]
    assert titles == ["round 1, probability 0.607"]  # exp(-0.5)


def test_the_tree_draws_an_edge_from_each_parent_to_its_child():
    root = drawn(simple("A", " b", " c").svg(Layout.TREE))
    paths = [element.get("d") for element in root.iter(f"{SVG}path")]
    assert len([path for path in paths if "L" in path]) == 2
    assert len([path for path in paths if "H" in path]) == 1


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=5), min_size=2, max_size=5))
def test_tokens_stand_beside_each_other_in_the_order_of_the_text(words):
    root = drawn(simple(*words).svg())
    boxes = [(float(e.get("x")), float(e.get("width"))) for e in root.iter(f"{SVG}rect") if e.get("x")]
    row = boxes[: len(words)]
    for (x, room), (following, _) in pairwise(row):
        assert x + room < following + 0.11  # rounded to a tenth
    assert max(x + room for x, room in boxes) < float(root.get("width"))


FONT = FT2Font(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf")


@pytest.mark.parametrize("block", [range(0x20, 0x7F), range(0xA1, 0x180), range(0x370, 0x530), range(0x2010, 0x2031)])
def test_no_text_is_wider_than_its_room_in_a_wide_font(block):
    FONT.set_size(64, 72)
    known = FONT.get_charmap()
    for symbol in (chr(code) for code in block if code in known and chr(code).isprintable()):
        real = FONT.load_char(ord(symbol), flags=LoadFlags.NO_HINTING).linearHoriAdvance / 65536 / 64
        assert width(symbol) >= real - 0.005 or width(symbol) == 0, symbol


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_can_be_read_on_their_background(colours):
    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(name: str) -> float:
        light, dark = sorted((luminance(colours[name]), luminance(colours["paper"])), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    assert all(contrast(name) >= 4.5 for name in ("before", "now", "given"))  # WCAG's AA for text
    assert 3 <= contrast("later") < 4.9  # faint, but there


def test_what_cannot_be_seen_has_a_sign():
    shown = [visible(text) for text in (" man", " ", "\n", "a\tb", "\x00", "\ud800", "", "\u200d", "a b")]
    assert shown == ["man", "␣", "⏎", "a⇥b", "␀", "\ufffd", "▯", "\u200d", "a b"]


@given(traces())
def test_a_trace_that_was_written_and_read_again_is_the_same(trace):
    before = readable(trace)
    after = ReadableTrace.from_json(json.loads(json.dumps(before.to_json())))
    assert after.to_json() == before.to_json()
    assert after.trace.rounds == trace.rounds
    assert after.trace.start.open_slots == trace.start.open_slots
    for layout in Layout:
        assert after.svg(layout) == before.svg(layout)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": None}, "not a trace"),
        ({"names": ["en"]}, "not a trace"),
        ({"start_text": [[], ["a"]]}, "not a trace"),
        ({"rounds": [[{"slot": 9, "token_id": 10, "text": "a", "log_prob": -1}]]}, "slot 9 does not exist"),
        ({"rounds": [[{"slot": 1, "token_id": 10, "log_prob": -1}]]}, "no 'text'"),
    ],
)
def test_a_record_that_is_no_trace_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        ReadableTrace.from_json(simple("A").to_json() | change)


def test_a_notebook_shows_the_picture():
    assert simple("A")._repr_svg_() == simple("A").svg()
    assert simple("A").svg() in simple("A").html()
