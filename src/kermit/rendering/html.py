"""Decodes as a page: their pictures with a title and a legend, one file that loads nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from kermit.errors import member_of
from kermit.rendering.rounds import Layout, When
from kermit.rendering.svg import DARK, LIGHT

if TYPE_CHECKING:
    from kermit.rendering.readable import ReadableTrace

LEGENDS = {
    Layout.ROUNDS: {
        When.NOW: "inserted in this round",
        When.BEFORE: "inserted before",
        When.GIVEN: "given",
        When.LATER: "still to come",
    },
    Layout.TREE: {When.BEFORE: "inserted, at the height of its round, below its newer neighbour", When.GIVEN: "given"},
}
"""What the colours mean."""


def _colours(colours: dict[str, str]) -> str:
    spans = "".join(f".legend .{when}{{color:{colours[when]}}}" for when in When)
    return f"body{{background:{colours['paper']};color:{colours['before']}}}{spans}"


STYLE = (
    "body{font:16px/1.5 'Helvetica Neue',Helvetica,Arial,'DejaVu Sans',sans-serif;margin:2rem}"
    "h1{font-size:1.3rem}figure{margin:1.5rem 0;overflow-x:auto}.legend span{margin-right:1.5em}"
    f"{_colours(LIGHT)}@media (prefers-color-scheme:dark){{{_colours(DARK)}}}"
)


TITLES = {Layout.ROUNDS: "Insertion, round by round", Layout.TREE: "The insertion tree"}


def page(traces: Sequence[ReadableTrace], layout: Layout, *, title: str | None = None) -> str:
    """A page of pictures; the probability of a token shows where the reader points at it.

    Args:
        traces: the decodes.
        layout: how to lay each out.
        title: the page's title; one that names the layout by default.
    """
    layout = member_of(Layout, layout, "layout")
    title = TITLES[layout] if title is None else title
    legend = "".join(f'<span class="{when}">{text}</span>' for when, text in LEGENDS[layout].items())
    figures = "".join(f"<figure>\n{trace.svg(layout)}</figure>\n" for trace in traces)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        f'<p class="legend">{legend}</p>\n{figures}</body>\n</html>\n'
    )
