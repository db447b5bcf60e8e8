"""A web page with pictures of decodes, in one self-contained file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from kermit.errors import member_of
from kermit.rendering.insertion_times import Layout
from kermit.rendering.picture import DARK, LIGHT, Ink
from kermit.rendering.svg import FAMILY

if TYPE_CHECKING:
    from kermit.rendering.readable import ReadableTrace


def _colours(colours: dict[Ink, str]) -> str:
    return f"body{{background:{colours[Ink.PAPER]};color:{colours[Ink.TEXT]}}}"


STYLE = (
    f"body{{font:16px/1.5 {FAMILY};margin:2rem}}"
    "h1{font-size:1.3rem}figure{margin:1.5rem 0;overflow-x:auto}"
    f"{_colours(LIGHT)}@media (prefers-color-scheme:dark){{{_colours(DARK)}}}"
)

TITLES = {
    Layout.ROUNDS: "Insertion, round by round",
    Layout.TREE: "The insertion tree",
    Layout.ANIMATED: "Insertion, as it happens",
}


def page(traces: Sequence[ReadableTrace], layout: Layout, *, title: str | None = None) -> str:
    """Return a page of pictures; the probability of a token is shown on hover."""
    layout = member_of(Layout, layout, "layout")
    title = TITLES[layout] if title is None else title
    drawn = [trace.svg(layout, prefix=f"p{number}") for number, trace in enumerate(traces)]
    figures = "".join(f"<figure>\n{svg}</figure>\n" for svg in drawn)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        f"{figures}</body>\n</html>\n"
    )
