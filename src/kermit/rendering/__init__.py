"""A decode for the eye: in the terminal, as a picture, as a page. All of them take a `ReadableTrace`.

Three layouts show the same record. *Rounds* go from top to bottom, as in the paper's Figure 3: each line is the final
text after one more round, with tokens inserted now, tokens already there, and in grey those still to come. The *tree*
puts each token at the height of its round and under its parent, the newer of the two tokens that it was inserted
between. *Animated*, words appear where they are inserted and others make room. Nothing here knows a model.

A layout becomes a `picture` of texts, boxes and lines (`layouts`, `animation`), which `svg` and `figure` draw.
"""

from kermit.rendering.html import page
from kermit.rendering.readable import ReadableTrace
from kermit.rendering.rounds import Layout, Piece, When, rounds
from kermit.rendering.terminal import HIDDEN, STYLES, terminal_lines
from kermit.rendering.tree import parents

__all__ = [
    "HIDDEN",
    "STYLES",
    "Layout",
    "Piece",
    "ReadableTrace",
    "When",
    "page",
    "parents",
    "rounds",
    "terminal_lines",
]
