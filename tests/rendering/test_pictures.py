"""Pictures and pages of decodes: well-formed, complete, safe, readable in light and dark, without overlaps."""

import io
import json
import re
import sys
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image
from rendering_records import SPECIALS, readable, traces

from kermit.canvas import Canvas, Factorization
from kermit.decoding.trace import Trace, TracedInsertion
from kermit.errors import DataError, UsageError
from kermit.rendering import Layout, ReadableTrace, page, text_width as measuring
from kermit.rendering.animation import animate
from kermit.rendering.layouts import flow, title_of, words_of_side
from kermit.rendering.picture import DARK, LIGHT, SIZE, Ink
from kermit.rendering.text_width import visible, width

SVG = "{http://www.w3.org/2000/svg}"
layouts = st.sampled_from(Layout)


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()).removeprefix(hover(element)) for element in drawn(svg).iter(f"{SVG}text")]


def hover(element: ElementTree.Element) -> str:
    title = element.find(f"{SVG}title")
    return "" if title is None else title.text or ""


def simple(*words: str) -> ReadableTrace:
    """Words that are inserted one by one, from the first."""
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


def test_new_present_and_future_tokens_have_different_styles():
    svg = simple("A", " man").svg()
    kinds = [element.get("class") for element in drawn(svg).iter(f"{SVG}text")]
    found = list(zip(texts(svg), kinds, strict=True))
    assert found[:7] == [
        ("2 tokens in 2 rounds", "text bold"),
        ("English", "note bold"),
        ("1", "note"),
        ("A", "now"),
        ("man", "later"),
        ("2", "note"),
        ("A", "text"),
    ]
    legend = dict(found[8:])
    assert legend["given"] == "given bold"
    assert {"inserted", "new in this round", "still to come", "sure", "unsure"} <= legend.keys()


def test_the_title_describes_the_decode():
    start = Canvas.from_ids(SPECIALS, (10, 11), (), generate=Factorization.Y_GIVEN_X)
    trace = ReadableTrace(Trace(start, ((TracedInsertion(4, 12, -0.1),), ())), lambda token: f" w{token}", ("en", "de"))
    assert title_of(trace) == "English to German: 1 token in 1 round"
    assert title_of(simple("A", " b")) == "2 tokens in 2 rounds"
    for layout in Layout:
        assert texts(simple("A").svg(layout, title="Mine"))[0] == "Mine"


def test_shading_shows_uncertainty():
    root = drawn(simple("A").svg())
    shades = [float(e.get("fill-opacity") or 1) for e in root.iter(f"{SVG}rect") if e.get("class") == "doubt"]
    assert shades[0] == pytest.approx(1 - 0.607, abs=0.01)  # exp(-0.5)


@given(st.lists(st.text(max_size=6), min_size=1, max_size=4), layouts)
def test_any_text_gives_well_formed_xml_and_is_preserved(words, layout):
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
    assert page([trace, trace], Layout.ANIMATED).count("@keyframes p1w0{") == 1


def test_a_token_shows_its_round_and_probability_on_hover():
    for layout in Layout:
        titles = [element.text for element in drawn(simple("A").svg(layout)).iter(f"{SVG}title")]
        assert titles == ["round 1, probability 0.607"]  # exp(-0.5)


def test_the_tree_draws_an_edge_from_each_parent_to_its_child():
    root = drawn(simple("A", " b", " c").svg(Layout.TREE))
    assert [element.get("class") for element in root.iter(f"{SVG}path")] == ["line note"] * 2


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=5), min_size=2, max_size=12), st.integers(60, 300))
def test_words_are_side_by_side_in_the_order_of_the_text(pieces, most):
    row = words_of_side(simple(*pieces), 0)
    places = flow(row, 10, most)
    for (word, place), (_, following) in pairwise(zip(row, places, strict=True)):
        assert (following.line, following.x) > (place.line, place.x)
        assert following.line > place.line or place.x + word.room < following.x
    for word, place, before in zip(row[1:], places[1:], places, strict=False):
        assert place.line == before.line or word.begins or place.x > 10  # a word is not broken inside


def test_gaps_between_words_are_even_and_pieces_of_a_word_are_close():
    row = words_of_side(simple("A", " man", " rid", "es", "."), 0)
    ends = [place.x + word.room for word, place in zip(row, flow(row, 0, 9999), strict=True)]
    gaps = [place.x - end for place, end in zip(flow(row, 0, 9999)[1:], ends, strict=False)]
    assert gaps == pytest.approx([6.4, 6.4, 1.92, 1.92])


def test_text_widths_equal_those_of_the_font():
    assert width("i") < width("a") < width("W")
    assert width("ab") == pytest.approx(width("a") + width("b"))
    assert width("a", bold=True) > width("a")
    assert width("e\u0301") == pytest.approx(width("e"), abs=0.01)
    assert width("語") == 1.0


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    measuring._font.cache_clear()
    measuring._advance.cache_clear()
    with pytest.raises(UsageError, match=r"pip install 'kermit-insertion\[pictures\]'"):
        simple("A").svg()


# ------------------------------------------------------------------------------------------------ PNG, PDF, animation


def test_png_and_pdf_files_contain_the_picture():
    for layout in (Layout.ROUNDS, Layout.TREE):
        image = Image.open(io.BytesIO(simple("A", " man").png(layout)))
        svg = drawn(simple("A", " man").svg(layout))
        assert image.size == pytest.approx([int(svg.get(side)) * 200 / 72 for side in ("width", "height")], abs=1.5)
        colours = {colour for _, colour in image.convert("RGB").getcolors(2**20)}
        assert tuple(bytes.fromhex(LIGHT[Ink.TEXT][1:])) in colours
        assert simple("A").pdf(layout).startswith(b"%PDF-")
        assert simple("A").pdf(layout) == simple("A").pdf(layout)
    for kind in ("png", "pdf"):
        with pytest.raises(UsageError, match="only SVG and HTML can be animated"):
            getattr(simple("A"), kind)(Layout.ANIMATED)


def test_unusual_texts_can_be_drawn():
    assert simple("語", " $x^2$", " ▯", " \u0301").png().startswith(b"\x89PNG")


@settings(deadline=None)
@given(traces())
def test_an_animation_shows_the_words_of_each_round_in_order(trace):
    animation = animate(readable(trace))
    assert animation.rounds == max([n for n, found in enumerate(trace.rounds, start=1) if found], default=0)
    for number, canvas in enumerate(trace.canvases()[: animation.rounds + 1]):
        shown = [moving for moving in animation.words if moving.first <= number]
        ordered = sorted(shown, key=lambda moving: moving.at(number)[::-1])
        content = [token for segment in canvas.segments for token in segment]
        assert [moving.word.token.token_id for moving in ordered] == content
        new = [moving for moving in shown if moving.first == number > 0]
        assert len(new) == (len(trace.rounds[number - 1]) if number else 0)


def test_words_make_room_for_what_is_inserted_between_them():
    start = Canvas.from_ids(SPECIALS, (10, 11), (), generate=Factorization.X)
    trace = ReadableTrace(Trace(start, ((TracedInsertion(2, 12, -0.1),),)), lambda token: f" w{token}", ("en", "de"))
    first, new, second = animate(trace).words
    assert first.at(0) == first.at(1)
    assert second.at(1)[0] - second.at(0)[0] == pytest.approx(new.word.room + 0.4 * SIZE)
    assert new.places == (second.at(0),) or new.places[0][0] == pytest.approx(second.at(0)[0])


def test_an_animated_svg_is_static_and_complete_with_reduced_motion():
    svg = simple("A", " man").svg(Layout.ANIMATED)
    assert "@media (prefers-reduced-motion:reduce)" in svg
    shown = [text for text in texts(svg) if text in ("A", "man")]
    assert shown == ["A", "man"]


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_have_enough_contrast_with_their_background(colours):
    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(name: Ink) -> float:
        light, dark = sorted((luminance(colours[name]), luminance(colours[Ink.PAPER])), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    assert all(contrast(name) >= 4.5 for name in (Ink.TEXT, Ink.NOW, Ink.GIVEN, Ink.NOTE))  # WCAG's AA for text
    assert 3 <= contrast(Ink.LATER) < 4.9  # faint, but visible


def test_invisible_characters_are_shown_as_symbols():
    shown = [visible(text) for text in (" man", " ", "\n", "a\tb", "\x00", "\ud800", "", "\u200d", "a b")]
    assert shown == ["man", "␣", "⏎", "a⇥b", "␀", "\ufffd", "▯", "\u200d", "a b"]


@given(traces())
def test_a_trace_is_the_same_after_writing_and_reading(trace):
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
        ({"rounds": [[{"slot": 1, "token_id": 10, "log_prob": -1}]]}, "'text' is missing"),
    ],
)
def test_a_record_that_is_not_a_trace_is_rejected(change, message):
    with pytest.raises(DataError, match=message):
        ReadableTrace.from_json(simple("A").to_json() | change)


def test_a_notebook_shows_the_picture():
    assert simple("A")._repr_svg_() == simple("A").svg()
    assert simple("A").svg() in simple("A").html()
