"""Random traces, and one that can be worked out by hand."""

from hypothesis import strategies as st

from kermit.canvas import Canvas, Factorization, SpecialTokens
from kermit.decoding.trace import Trace, TracedInsertion
from kermit.rendering import ReadableTrace

SPECIALS = SpecialTokens(1, 2, 0, 3)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Decodes of any shape: given text on both sides, and rounds that insert into any set of slots."""
    sides = [draw(st.lists(st.integers(10, 20), max_size=4)) for _ in range(2)]
    start = Canvas.from_ids(SPECIALS, *sides, generate=Factorization.JOINT)
    rounds, canvas = [], start
    for _ in range(draw(st.integers(0, 5))):
        slots = sorted(draw(st.sets(st.sampled_from(sorted(canvas.open_slots)))))
        found = tuple(
            TracedInsertion(slot, draw(st.integers(10, 20)), draw(st.floats(-9, 0).map(lambda p: round(p, 4))))
            for slot in slots
        )
        rounds.append(found)
        canvas = Trace(canvas, (found,)).canvases()[-1]
    return Trace(start, tuple(rounds))


def readable(trace: Trace, text=None) -> ReadableTrace:  # type: ignore[no-untyped-def]
    return ReadableTrace(trace, text or (lambda token: f" w{token}"), ("en", "de"))
