"""Pictures as SVG: one file without scripts, links or fonts of its own, readable on light and dark screens.

It brings its own background and follows the reader's colour scheme. Colour never stands alone: what was given is bold,
and what is new is underlined. Styles are plain CSS classes, which converters to PDF understand; `textLength` keeps the
measured width of every text in whatever font. An animated one moves by CSS, and stands still, complete, for readers who
want no motion.
"""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from kermit.rendering.animation import MOVE_SECONDS, ROUND_SECONDS, Animation, Moving
from kermit.rendering.picture import (
    DARK,
    FONTS,
    LIGHT,
    SIZE,
    Box,
    Ink,
    Label,
    Picture,
    Stroke,
    baseline,
    row_box,
    underline,
)


def _rules(colours: dict[Ink, str]) -> str:
    rules = "".join(f".{ink}{{fill:{colour}}}" for ink, colour in colours.items())
    return rules + "".join(f".line.{ink}{{stroke:{colours[ink]};fill:none}}" for ink in (Ink.NOW, Ink.NOTE, Ink.LATER))


_FAMILY = ",".join(f"'{font}'" if " " in font else font for font in FONTS)
STYLE = (
    f"text{{font:{SIZE}px {_FAMILY};white-space:pre}}.bold{{font-weight:bold}}"
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
            return f'<path class="line {item.ink}" d="{_path(item)}" stroke-width="{item.thickness:g}"/>'


def _path(line: Stroke) -> str:
    (x, y), (end, below) = line.start, line.end
    if not line.curved:
        return f"M{x:.1f} {y:.1f}L{end:.1f} {below:.1f}"
    middle = (y + below) / 2
    return f"M{x:.1f} {y:.1f}C{x:.1f} {middle:.1f} {end:.1f} {middle:.1f} {end:.1f} {below:.1f}"


def animated_svg(animation: Animation, prefix: str = "") -> str:
    """Draw a decode that moves.

    Args:
        animation: the decode.
        prefix: of the names of its keyframes, where several pictures share a page.
    """
    style, parts = [STYLE, ".m{animation-iteration-count:infinite;animation-timing-function:ease-in-out}"], []
    for number, moving in enumerate(animation.words):
        style.append(_moves(animation, moving, f"{prefix}w{number}"))
        parts.append(_moving(moving, f"{prefix}w{number}"))
    x, y = animation.count_place
    for number, text in enumerate(animation.counts):
        style.append(_shown_in(animation, number, f"{prefix}c{number}", 0.0))
        last = "" if number == animation.rounds else ' opacity="0"'
        label = element(Label(x, baseline(y), text, Ink.NOTE))
        parts.append(f'<g class="m {prefix}c{number}"{last}>{label}</g>')
    style.append("@media (prefers-reduced-motion:reduce){.m{animation:none !important}}")
    still = "".join(map(element, animation.still.items))
    return document(animation.still, still + "".join(parts), "".join(style))


def _moving(moving: Moving, name: str) -> str:
    """Return a word where it stands at the end; CSS moves it away from there."""
    word, (x, y) = moving.word, moving.places[-1]
    shade = element(row_box(x, y, word.room, Ink.DOUBT, word.doubt)) if word.doubt > 0.005 else ""
    ink = Ink.GIVEN if word.given else Ink.TEXT
    label = element(Label(x, baseline(y), word.text, ink, word.given, word.hover))
    line = underline(x, y, word.room)
    new = "" if word.given else f'<g class="m {name}n" opacity="0">{element(line)}</g>'
    return f'<g class="m {name}">{shade}{label}{new}</g>'


def _moves(animation: Animation, moving: Moving, name: str) -> str:
    """Return the keyframes of a word: hidden before its round, then moving from place to place."""
    (x, y), frames = moving.places[-1], []
    for number in range(animation.rounds + 1):
        there = moving.at(number)
        move = f"transform:translate({there[0] - x:.1f}px,{there[1] - y:.1f}px);opacity:{int(number >= moving.first)}"
        begin = number * ROUND_SECONDS + (MOVE_SECONDS if number else 0)
        end = (number + 1) * ROUND_SECONDS if number < animation.rounds else animation.seconds
        if number == moving.first > 0:  # once the others have made room
            frames.append(f"{_percent(animation, begin - 0.1)}{{{move[:-1]}0}}")
        frames.append(f"{_percent(animation, begin)},{_percent(animation, end)}{{{move}}}")
    rule = f".{name}{{animation-name:{name};animation-duration:{animation.seconds:g}s}}"
    rule += f"@keyframes {name}{{{''.join(frames)}}}"
    return rule if moving.word.given else rule + _shown_in(animation, moving.first, f"{name}n", MOVE_SECONDS / 2)


def _shown_in(animation: Animation, number: int, name: str, delay: float) -> str:
    """Return keyframes that show something in one round only, from some seconds after its start."""
    begin = number * ROUND_SECONDS + (delay if number else 0)
    end = (number + 1) * ROUND_SECONDS if number < animation.rounds else animation.seconds
    inside = f"{_percent(animation, begin)},{_percent(animation, end - 0.02)}{{opacity:1}}"
    before = f"0%,{_percent(animation, begin - 0.02)}{{opacity:0}}" if begin > 0 else ""
    after = f"{_percent(animation, end)},100%{{opacity:0}}" if end < animation.seconds else ""
    return (
        f".{name}{{animation-name:{name};animation-duration:{animation.seconds:g}s}}"
        f"@keyframes {name}{{{before}{inside}{after}}}"
    )


def _percent(animation: Animation, time: float) -> str:
    return f"{100 * time / animation.seconds:.2f}%"
