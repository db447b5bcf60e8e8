"""Pictures as PNG, PDF and GIF, drawn by matplotlib."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any, Literal

from kermit.rendering.animation import Animation, frame, times
from kermit.rendering.measure import width
from kermit.rendering.picture import FONTS, LIGHT, SIZE, Box, Ink, Label, Picture, Stroke

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI, GIF_DPI = 200, 110
"""Dots per inch of a PNG, and of a GIF; a picture's pixel is 1/72 inch."""


def png(picture: Picture) -> bytes:
    """Draw a picture as PNG, for slides."""
    return _drawn(picture, "png", DPI)


def pdf(picture: Picture) -> bytes:
    """Draw a picture as PDF, with text that can be selected."""
    return _drawn(picture, "pdf", DPI)


def gif(animation: Animation) -> bytes:
    """Draw a decode that moves as GIF, which begins again at its end."""
    width(" ")  # refuses where matplotlib is missing
    from PIL import Image

    frames, lasting = [], []
    for time, seconds in times(animation):
        drawn = Image.open(io.BytesIO(_drawn(frame(animation, time), "png", GIF_DPI))).convert("RGB")
        frames.append(drawn.quantize(64, dither=Image.Dither.NONE))
        lasting.append(round(1000 * seconds))
    out = io.BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=lasting, loop=0, optimize=True)
    return out.getvalue()


def _drawn(picture: Picture, kind: Literal["png", "pdf"], dpi: int) -> bytes:
    width(" ")  # refuses where matplotlib is missing
    import matplotlib

    settings = {"pdf.fonttype": 42, "font.family": FONTS[0], "font.size": SIZE}
    metadata: dict[str, Any] = {"CreationDate": None} if kind == "pdf" else {"Software": None}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        out = io.BytesIO()
        _figure(picture).savefig(out, format=kind, dpi=dpi, metadata=metadata)
    return out.getvalue()


def _figure(picture: Picture) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(picture.width / 72, picture.height / 72), facecolor=LIGHT[Ink.PAPER])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, picture.width)
    axes.set_ylim(picture.height, 0)
    for order, item in enumerate(picture.items):
        _draw(axes, item, order)
    return figure


def _draw(axes: Any, item: Label | Box | Stroke, order: int) -> None:
    from matplotlib.patches import FancyBboxPatch, PathPatch
    from matplotlib.path import Path

    colour = LIGHT[item.ink]
    match item:
        case Label():
            weight = "bold" if item.bold else "normal"
            axes.text(item.x, item.y, item.text, color=colour, weight=weight, zorder=order, parse_math=False)
        case Box():
            corner = (item.x + 3, item.y + 3)
            axes.add_patch(
                FancyBboxPatch(
                    corner,
                    max(item.width - 6, 0.1),
                    item.height - 6,
                    boxstyle="round,pad=3,rounding_size=3",
                    facecolor=colour,
                    alpha=item.opacity,
                    linewidth=0,
                    zorder=order,
                )
            )
        case Stroke():
            (x, y), (end, below) = item.start, item.end
            middle = (y + below) / 2
            path = Path([(x, y), (end, below)])
            if item.curved:
                path = Path([(x, y), (x, middle), (end, middle), (end, below)], [Path.MOVETO, *[Path.CURVE4] * 3])
            axes.add_patch(PathPatch(path, facecolor="none", edgecolor=colour, linewidth=item.thickness, zorder=order))
