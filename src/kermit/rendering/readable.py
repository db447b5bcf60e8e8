"""A trace with the text of its tokens: the record from which every picture of a decode is drawn, and pages of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from itertools import chain
from typing import Any

from rich.text import Text

from kermit.canvas import Canvas, Segment, SpecialTokens
from kermit.decoding.trace import Trace, TracedInsertion
from kermit.errors import DataError, UsageError, member_of
from kermit.rendering import figure
from kermit.rendering.animation import animate, animated_svg
from kermit.rendering.insertion_times import content, parents
from kermit.rendering.layouts import rounds_picture, tree_picture
from kermit.rendering.picture import DARK, LIGHT, Ink, Picture
from kermit.rendering.svg import FAMILY, svg
from kermit.rendering.terminal import terminal_lines, terminal_tree

_NO_SPECIALS = SpecialTokens(-1, -2, -3, -4)  # no content token has such an id


class Layout(StrEnum):
    """The layout of a decode: its rounds from top to bottom, its insertion tree, or moving words."""

    ROUNDS = "rounds"
    TREE = "tree"
    ANIMATED = "animated"


@dataclass(frozen=True)
class ReadableTrace:
    """A trace with the text of its tokens and the names of the sides."""

    trace: Trace
    text: Callable[[int], str]
    names: tuple[str, str]

    def to_json(self, layout: Layout = Layout.ROUNDS) -> dict[str, object]:
        """Return the trace as JSON values that `from_json` reads; `Layout.TREE` adds the parents of tokens."""
        record = self.trace.to_json(self.text)
        record |= {"names": list(self.names), "open_slots": sorted(self.trace.start.open_slots)}
        return record | {"tree": self._tree()} if _is_tree(layout) else record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> ReadableTrace:
        """Read a trace written by `to_json`.

        Raises:
            DataError: a key is missing or has an invalid value.
        """
        try:
            start = tuple(tuple(map(int, segment)) for segment in record["start"])
            texts = dict(zip(chain(*start), map(str, chain(*record["start_text"])), strict=True))
            rounds = []
            for insertions in record["rounds"]:
                found = [TracedInsertion(int(i["slot"]), int(i["token_id"]), float(i["log_prob"])) for i in insertions]
                rounds.append(tuple(found))
                texts |= {int(insertion["token_id"]): str(insertion["text"]) for insertion in insertions}
            canvas = Canvas(_NO_SPECIALS, start, frozenset(map(int, record["open_slots"])))
            x, y = map(str, record["names"])
            trace = Trace(canvas, tuple(rounds))
            trace.canvases()  # raises for slots that do not exist
        except (KeyError, TypeError, ValueError) as error:
            what = f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
            raise DataError(f"not a trace written by --json --trace: {what}") from error
        return cls(trace, texts.__getitem__, (x, y))

    def terminal_lines(self, *, colour: bool, layout: Layout = Layout.ROUNDS) -> list[Text]:
        """Return the lines of the sides that changed: the name, then one line per round, or per token of the tree."""
        draw = terminal_tree if _is_tree(layout) else terminal_lines
        lines: list[Text] = []
        for segment in sorted({token.segment for token in self.trace.tokens() if token.round > 0}):
            lines.append(Text(self.names[segment], style="bold" if colour else ""))
            lines += draw(self.trace, Segment(segment), self.text, colour=colour)
        return lines

    def svg(self, layout: Layout = Layout.ROUNDS, *, title: str | None = None, prefix: str = "") -> str:
        """Draw the decode as SVG; `prefix` keeps the keyframes of several pictures on a page apart."""
        if member_of(Layout, layout, "layout") is Layout.ANIMATED:
            return animated_svg(animate(self, title), prefix)
        return svg(self._picture(layout, title))

    def png(self, layout: Layout = Layout.ROUNDS, *, title: str | None = None) -> bytes:
        """Draw the decode as PNG, which cannot be animated; see `svg`."""
        return figure.draw_file(self._picture(layout, title), "png")

    def pdf(self, layout: Layout = Layout.ROUNDS, *, title: str | None = None) -> bytes:
        """Draw the decode as PDF, which cannot be animated; see `svg`."""
        return figure.draw_file(self._picture(layout, title), "pdf")

    def html(self, layout: Layout = Layout.ROUNDS) -> str:
        """Return a page with the picture; `page` makes one of several."""
        return page([self], layout)

    def _picture(self, layout: Layout, title: str | None) -> Picture:
        match member_of(Layout, layout, "layout"):
            case Layout.ROUNDS:
                return rounds_picture(self, title)
            case Layout.TREE:
                return tree_picture(self, title)
            case Layout.ANIMATED:
                raise UsageError("only SVG and HTML can be animated; choose the layout rounds or tree")

    def _repr_svg_(self) -> str:
        """Show the picture in a notebook."""
        return self.svg()

    def _tree(self) -> list[dict[str, object]]:
        """Return the tokens of the final text, each with the index of its parent in this list."""
        tokens = content(self.trace)
        above = parents(self.trace.tokens())
        places: dict[int | None, int] = {index: place for place, (index, _) in enumerate(tokens)}
        return [
            {
                "segment": token.segment,
                "token_id": token.token_id,
                "text": self.text(token.token_id),
                "round": token.round,
                "parent": places.get(above[index]),
            }
            for index, token in tokens
        ]


def _is_tree(layout: Layout) -> bool:
    return member_of(Layout, layout, "layout") is Layout.TREE


TITLES = {
    Layout.ROUNDS: "Insertion, round by round",
    Layout.TREE: "The insertion tree",
    Layout.ANIMATED: "Insertion, as it happens",
}


def page(traces: Sequence[ReadableTrace], layout: Layout, *, title: str | None = None) -> str:
    """Return a self-contained page of pictures; the probability of a token is shown on hover."""
    layout = member_of(Layout, layout, "layout")
    heading = escape(TITLES[layout] if title is None else title)
    light, dark = (f"body{{background:{inks[Ink.PAPER]};color:{inks[Ink.TEXT]}}}" for inks in (LIGHT, DARK))
    drawn = (trace.svg(layout, prefix=f"p{number}") for number, trace in enumerate(traces))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{heading}</title>\n<style>body{{font:16px/1.5 {FAMILY};margin:2rem}}h1{{font-size:1.3rem}}"
        f"figure{{margin:1.5rem 0;overflow-x:auto}}{light}@media (prefers-color-scheme:dark){{{dark}}}</style>\n"
        f"</head>\n<body>\n<h1>{heading}</h1>\n"
        + "".join(f"<figure>\n{picture}</figure>\n" for picture in drawn)
        + "</body>\n</html>\n"
    )
