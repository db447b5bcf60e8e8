"""Draw the pictures of these pages: `python docs/make_pictures.py [--model DIR] [--output DIR]`.

Three of them need no model: the slots of a canvas, and a balanced-tree order, as a tree and by its rounds. The others
are decodes of the given model, or of the bundled one.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kermit.canvas import Canvas, Factorization, Insertion, SpecialTokens
from kermit.decoding import Strategy, Trace, TracedInsertion, strategies_of
from kermit.loading import bundled_model
from kermit.rendering import Layout, ReadableTrace
from kermit.rendering.picture import SIZE, Box, Ink, Label, Picture, Stroke
from kermit.rendering.svg import svg
from kermit.rendering.text_width import width

SPECIALS = SpecialTokens(cls_id=1, sep_id=2, pad_id=0, end_of_slot_id=3)
FRAME = {SPECIALS.cls_id: "[CLS]", SPECIALS.sep_id: "[SEP]"}
SENTENCE = "Two dogs run through the deep snow while a small child looks on and laughs"
SOURCE = "A little girl in a pink dress is sitting on a bench."
BLANKED = ("A man ____ a red ____.", "Ein Mann ____ Fahrrad.")


def ids_of(text: str, first: int = 10) -> dict[int, str]:
    """Return the words of a text, with arbitrary token ids."""
    return dict(enumerate(text.split(), start=first))


def slots() -> str:
    """Draw the canvas of the page on canvases: its tokens in a row, with numbered slots between them."""
    x, y = ids_of("courses proved popular"), ids_of("Die sehr beliebt", 20)
    canvas = Canvas.from_ids(SPECIALS, x, y, generate=Factorization.JOINT)
    gap, row, below = 2.6 * SIZE, 30.0, 68.0
    items: list[Label | Box | Stroke] = []
    left = 0.5 * SIZE
    for slot, token_id in enumerate(canvas.token_ids):
        if slot:
            middle = left + gap / 2
            items.append(Stroke((middle, row - 14), (middle, below - 14), Ink.NOTE))
            items.append(_centred(middle, below, str(slot), Ink.NOW))
            left += gap
        word = FRAME.get(token_id) or (x | y)[token_id]
        room = SIZE * width(word)
        items.append(_centred(left + room / 2, row, word, Ink.NOTE if token_id in FRAME else Ink.TEXT))
        left += room
    return svg(Picture(round(left + 0.5 * SIZE), below + 16, tuple(items), "Slots 1 to 8 of a canvas"))


def _centred(x: float, y: float, text: str, ink: Ink) -> Label:
    return Label(x - SIZE * width(text) / 2, y, text, ink)


def balanced_tree() -> ReadableTrace:
    """Return a trace in balanced-tree order: in every round, the middle of each missing span is inserted."""
    words = ids_of(SENTENCE)
    start = canvas = Canvas.from_ids(SPECIALS, (), (), generate=Factorization.X)
    rounds = []
    while True:
        row = canvas.token_ids
        insertions = []
        for slot in sorted(canvas.open_slots):
            before = row[slot - 1] + 1 if row[slot - 1] in words else min(words)
            after = row[slot] if row[slot] in words else max(words) + 1
            if before < after:
                insertions.append(TracedInsertion(slot, (before + after - 1) // 2, 0.0))
        if not insertions:
            return ReadableTrace(Trace(start, tuple(rounds)), lambda token_id: " " + words[token_id], ("x", "y"))
        rounds.append(tuple(insertions))
        canvas = canvas.insert(Insertion(insertion.slot, insertion.token_id) for insertion in insertions)


def decodes(model: Path | None) -> dict[str, str]:
    """Draw a translation by its rounds and as a tree, and a pair whose blanks are filled on both sides at once."""
    from kermit.pipeline import Kermit

    kermit = Kermit.from_pretrained(model)
    parallel: dict[str, Any] = {"strategy": "parallel"}
    in_order = Strategy.LEFT_TO_RIGHT in strategies_of(kermit.info)
    ranked = {"strategy": "left_to_right", "candidates": 8, "ranking": "whole_text"}
    [translated] = kermit.translate([SOURCE], to="y", settings=parallel, trace=True)
    [filled] = kermit.infill([BLANKED[0]], [BLANKED[1]], settings=ranked if in_order else parallel, trace=True)
    translation, infilling = kermit.readable(translated.trace), kermit.readable(filled.trace)
    assert translation is not None
    assert infilling is not None
    return {
        "animated": translation.svg(Layout.ANIMATED),
        "rounds": translation.svg(Layout.ROUNDS),
        "tree": translation.svg(Layout.TREE),
        "infilling": infilling.svg(Layout.ROUNDS),
    }


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model's folder; the bundled one by default")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "pictures")
    options = parser.parse_args()
    order = balanced_tree()
    pictures = {
        "slots": slots(),
        "balanced_tree": order.svg(Layout.TREE),
        "balanced_rounds": order.svg(Layout.ROUNDS),
    }
    if options.model is not None or bundled_model() is not None:
        pictures |= decodes(options.model)
    options.output.mkdir(parents=True, exist_ok=True)
    for name, drawn in pictures.items():
        (options.output / f"{name}.svg").write_text(drawn, encoding="utf-8")
        print(options.output / f"{name}.svg")


if __name__ == "__main__":
    main()
