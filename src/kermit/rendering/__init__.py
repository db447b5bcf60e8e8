"""Pictures of a decode: in the terminal, as SVG, PNG or PDF, or as a web page. All of them show a `ReadableTrace`.

There are three layouts. *Rounds* go from top to bottom, as in the paper's Figure 3: each line shows the final text at
one round, with the new tokens, the earlier ones and, in grey, those still to come. The *tree* puts each token at the
height of its round and under its parent, the newer of the two tokens between which it was inserted. In the *animated*
layout, words appear where they are inserted and others make room. Nothing here knows a model.

`layouts` turns a trace into a `picture` of texts, boxes and lines, which `svg` and `figure` draw.
"""

from kermit.rendering.insertion_times import parents
from kermit.rendering.readable import Layout, ReadableTrace, page
from kermit.rendering.terminal import terminal_lines

__all__ = ["Layout", "ReadableTrace", "page", "parents", "terminal_lines"]
