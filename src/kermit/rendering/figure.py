"""Pictures as PNG and PDF, drawn by matplotlib."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any, Literal

from kermit.rendering.picture import FONTS, LIGHT, SIZE, Box, Ink, Label, Picture, Stroke

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200
"""Dots per inch of a PNG; a picture's pixel is 1/72 inch."""


def draw_file(picture: Picture, kind: Literal["png", "pdf"]) -> bytes:
    """Draw a picture as a file; the text of a PDF can be selected."""
    import matplotlib

    settings = {"pdf.fonttype": 42, "font.family": FONTS[0], "font.size": SIZE}
    metadata: dict[str, Any] = {"CreationDate": None} if kind == "pdf" else {"Software": None}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        out = io.BytesIO()
        _figure(picture).savefig(out, format=kind, dpi=DPI, metadata=metadata)
    return out.getvalue()


def _figure(picture: Picture) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(picture.width / 72, picture.height / 72), facecolor=LIGHT[Ink.PAPER])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, picture.width)
    axes.set_ylim(picture.height, 0)
    for order, item in enumerate(picture.items):
        _add(axes, item, order)
    return figure


def _add(axes: Any, item: Label | Box | Stroke, order: int) -> None:
    from matplotlib.patches import FancyBboxPatch, PathPatch
    from matplotlib.path import Path

    colour = LIGHT[item.ink]
    match item:
        case Label():
            weight = "bold" if item.bold else "normal"
            axes.text(item.x, item.y, item.text, color=colour, weight=weight, zorder=order, parse_math=False)
        case Box():
            corner, size = (item.x + 3, item.y + 3), (max(item.width - 6, 0.1), item.height - 6)
            looks: dict[str, Any] = {"facecolor": colour, "alpha": item.opacity, "linewidth": 0, "zorder": order}
            axes.add_patch(FancyBboxPatch(corner, *size, boxstyle="round,pad=3,rounding_size=3", **looks))
        case Stroke():
            codes = None if len(item.points) == 2 else [Path.MOVETO, *[Path.CURVE4] * 3]
            path = Path(item.points, codes)
            axes.add_patch(PathPatch(path, facecolor="none", edgecolor=colour, linewidth=item.thickness, zorder=order))
