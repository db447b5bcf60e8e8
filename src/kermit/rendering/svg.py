"""Pictures as SVG: one file without scripts, links or embedded fonts, readable on light and dark screens.

It has its own background and follows the reader's colour scheme. Colour is never the only cue: given tokens are bold,
new ones underlined. Styles are plain CSS classes, which PDF converters understand; `textLength` fixes the width of
every text in any font.
"""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from kermit.rendering.picture import DARK, FONTS, LIGHT, SIZE, Box, Ink, Label, Picture, Stroke


def _rules(colours: dict[Ink, str]) -> str:
    rules = "".join(f".{ink}{{fill:{colour}}}" for ink, colour in colours.items())
    return rules + "".join(f".line.{ink}{{stroke:{colours[ink]};fill:none}}" for ink in (Ink.NOW, Ink.NOTE, Ink.LATER))


FAMILY = ",".join(f"'{font}'" if " " in font else font for font in FONTS)
STYLE = (
    f"text{{font:{SIZE}px {FAMILY};white-space:pre}}.bold{{font-weight:bold}}"
    f"{_rules(LIGHT)}@media (prefers-color-scheme:dark){{{_rules(DARK)}}}"
)


def svg(picture: Picture) -> str:
    """Draw a picture."""
    return document(picture, "".join(map(element, picture.items)))


def document(picture: Picture, content: str, style: str = STYLE) -> str:
    """Return a whole file: its style, its background and its content."""
    wide, high = f"{picture.width:g}", f"{picture.height:g}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" '
        f'role="img" aria-label={quoteattr(picture.title)}><style>{style}</style>'
        f'<rect class="paper" width="{wide}" height="{high}"/>{content}</svg>\n'
    )


def element(item: Label | Box | Stroke) -> str:
    """Return an item as an element."""
    match item:
        case Label():
            title = f"<title>{escape(item.hover)}</title>" if item.hover else ""
            kind = f"{item.ink} bold" if item.bold else f"{item.ink}"
            return (
                f'<text class="{kind}" x="{item.x:.1f}" y="{item.y:.1f}" textLength="{item.width:.1f}" '
                f'lengthAdjust="spacingAndGlyphs">{title}{escape(item.text)}</text>'
            )
        case Box():
            faint = "" if item.opacity == 1 else f' fill-opacity="{item.opacity:.2f}"'
            return (
                f'<rect class="{item.ink}" x="{item.x:.1f}" y="{item.y:.1f}" width="{item.width:.1f}" '
                f'height="{item.height:.1f}" rx="3"{faint}/>'
            )
        case Stroke():
            start, *rest = (f"{x:.1f} {y:.1f}" for x, y in item.points)
            path = f"M{start}{'L' if len(rest) == 1 else 'C'}{' '.join(rest)}"
            return f'<path class="line {item.ink}" d="{path}" stroke-width="{item.thickness:g}"/>'
