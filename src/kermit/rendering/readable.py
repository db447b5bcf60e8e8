"""A trace with the text of its tokens: the one record that every picture of a decode is drawn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from rich.text import Text

from kermit.canvas import Canvas, Segment, SpecialTokens
from kermit.decoding.trace import Trace, TracedInsertion
from kermit.errors import DataError, UsageError, member_of
from kermit.rendering import figure, svg
from kermit.rendering.animation import animate
from kermit.rendering.html import page
from kermit.rendering.layouts import rounds_picture, tree_picture
from kermit.rendering.picture import Picture
from kermit.rendering.rounds import Layout, is_framing
from kermit.rendering.terminal import terminal_lines, terminal_tree
from kermit.rendering.tree import parents

_NO_SPECIALS = SpecialTokens(-1, -2, -3, -4)  # no content token has such an id


@dataclass(frozen=True)
class ReadableTrace:
    """A trace with the text of its tokens.

    Args:
        trace: the decode.
        text: the text of a token.
        names: what the sides are called.
    """

    trace: Trace
    text: Callable[[int], str]
    names: tuple[str, str]

    def to_json(self, layout: Layout = Layout.ROUNDS) -> dict[str, object]:
        """The record as plain JSON values, each token with its text, from which `from_json` makes the record again.

        Args:
            layout: with `Layout.TREE`, the tokens of the final text follow as ``tree``, each with its parent.
        """
        record = self.trace.to_json(self.text)
        record |= {"names": list(self.names), "open_slots": sorted(self.trace.start.open_slots)}
        return record | {"tree": self._tree()} if _is_tree(layout) else record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> ReadableTrace:
        """A trace that was written by `to_json`.

        Raises:
            DataError: a key is missing or its value is not what `to_json` writes.
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
            trace.canvases()  # refuses slots that do not exist
        except (KeyError, TypeError, ValueError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise DataError(f"not a trace as --json --trace writes it: {what}") from error
        return cls(trace, texts.__getitem__, (x, y))

    def sides(self) -> list[str]:
        """The final texts."""
        tokens = [token for token in self.trace.tokens() if not is_framing(self.trace, token)]
        segments = range(len(self.trace.start.segments))
        return ["".join(self.text(t.token_id) for t in tokens if t.segment == s).strip() for s in segments]

    def terminal_lines(self, *, colour: bool, layout: Layout = Layout.ROUNDS) -> list[Text]:
        """The sides into which something was inserted: their name, then a line a round or a line a token."""
        draw = terminal_tree if _is_tree(layout) else terminal_lines
        lines: list[Text] = []
        for segment in sorted({token.segment for token in self.trace.tokens() if token.round > 0}):
            lines.append(Text(self.names[segment], style="bold" if colour else ""))
            lines += draw(self.trace, Segment(segment), self.text, colour=colour)
        return lines

    def svg(self, layout: Layout = Layout.ROUNDS, *, title: str | None = None) -> str:
        """Draw the decode as SVG, for a file of its own or a page.

        Args:
            layout: how to lay it out.
            title: the title; one that says how many tokens came in how many rounds by default.
        """
        if member_of(Layout, layout, "layout") is Layout.ANIMATED:
            return svg.animated_svg(animate(self, title))
        return svg.svg(self._picture(layout, title))

    def png(self, layout: Layout = Layout.ROUNDS, *, title: str | None = None) -> bytes:
        """Draw the decode as PNG, which cannot be animated; see `svg`."""
        return figure.png(self._picture(layout, title))

    def pdf(self, layout: Layout = Layout.ROUNDS, *, title: str | None = None) -> bytes:
        """Draw the decode as PDF, which cannot be animated; see `svg`."""
        return figure.pdf(self._picture(layout, title))

    def gif(self, *, title: str | None = None) -> bytes:
        """Draw the decode as an animated GIF; see `svg`."""
        return figure.gif(animate(self, title))

    def html(self, layout: Layout = Layout.ROUNDS) -> str:
        """Return a page with the picture; `kermit.rendering.page` makes one of several."""
        return page([self], layout)

    def _picture(self, layout: Layout, title: str | None) -> Picture:
        match member_of(Layout, layout, "layout"):
            case Layout.ROUNDS:
                return rounds_picture(self, title)
            case Layout.TREE:
                return tree_picture(self, title)
            case Layout.ANIMATED:
                raise UsageError("only SVG, HTML and GIF can be animated; choose the layout rounds or tree")

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return self.svg()

    def _tree(self) -> list[dict[str, object]]:
        """The tokens of the final text, each with the place of its parent in this list."""
        tokens = self.trace.tokens()
        shown = [index for index, token in enumerate(tokens) if not is_framing(self.trace, token)]
        place = {index: number for number, index in enumerate(shown)}
        above = parents(tokens)
        return [
            {
                "segment": tokens[index].segment,
                "token_id": tokens[index].token_id,
                "text": self.text(tokens[index].token_id),
                "round": tokens[index].round,
                "parent": None if (parent := above[index]) is None else place[parent],
            }
            for index in shown
        ]


def _is_tree(layout: Layout) -> bool:
    return member_of(Layout, layout, "layout") is Layout.TREE
