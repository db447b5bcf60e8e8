"""The canvas: the text so far, its slots, and insertion into them (the paper's sections 3 and 3.3).

A canvas is one or two segments of content tokens laid out as ``[CLS] x [SEP]`` or ``[CLS] x [SEP] y [SEP]``. Slot k is
the place directly left of canvas token k, so the slots of X are those left of each of its tokens and left of its
``[SEP]``. Slot 0, left of ``[CLS]``, does not exist. `Canvas` is a single, validated canvas in plain Python;
`kermit.canvas.batch.CanvasBatch` is a batch of them as arrays. This module knows no model, no tokenizer and no array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum, StrEnum
from functools import cached_property

from kermit.canvas.blanks import BlankedText
from kermit.errors import CanvasError, member_of


class Segment(IntEnum):
    """The first and the second text of a pair, the paper's x and y."""

    X = 0
    Y = 1


class Factorization(Enum):
    """What is generated: both texts, one given the other, or one alone with the other empty."""

    JOINT = "joint"
    Y_GIVEN_X = "y_given_x"
    X_GIVEN_Y = "x_given_y"
    X = "x"
    Y = "y"

    @property
    def generated(self) -> frozenset[Segment]:
        """The segments whose tokens are generated."""
        match self:
            case Factorization.JOINT:
                return frozenset(Segment)
            case Factorization.X | Factorization.X_GIVEN_Y:
                return frozenset({Segment.X})
            case Factorization.Y | Factorization.Y_GIVEN_X:
                return frozenset({Segment.Y})

    @property
    def absent(self) -> frozenset[Segment]:
        """The segments that stay empty."""
        match self:
            case Factorization.X:
                return frozenset({Segment.Y})
            case Factorization.Y:
                return frozenset({Segment.X})
            case _:
                return frozenset()


class Termination(StrEnum):
    """How a text is finished: by an end in every slot, or by one stop action for the whole text."""

    SLOT = "slot"
    SEQUENCE = "sequence"


@dataclass(frozen=True, slots=True)
class Insertion:
    """One token to insert into one slot: the paper's (c, l)."""

    slot: int
    token_id: int


@dataclass(frozen=True)
class SpecialTokens:
    """The ids that frame a canvas and are never content."""

    cls_id: int
    sep_id: int
    pad_id: int
    end_of_slot_id: int
    others: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        ids = (self.cls_id, self.sep_id, self.pad_id, self.end_of_slot_id)
        if len(set(ids)) < len(ids):
            raise CanvasError(
                f"[CLS] {self.cls_id}, [SEP] {self.sep_id}, padding {self.pad_id} and end-of-slot "
                f"{self.end_of_slot_id} must be four different token ids; give each a token of its own"
            )

    @cached_property
    def ids(self) -> frozenset[int]:
        """All ids that must not occur as content."""
        return self.others | {self.cls_id, self.sep_id, self.pad_id, self.end_of_slot_id}


@dataclass(frozen=True)
class Canvas:
    """One canvas: content tokens by segment, and the slots that are open.

    Args:
        specials: the ids that frame it.
        segments: the content tokens of one or two segments, without ``[CLS]`` and ``[SEP]``.
        open_slots: where tokens may be inserted.
        joined_slots: the open slots whose blank touches the word on its left ("un____able"), where an insertion may
            continue that word.
    """

    specials: SpecialTokens
    segments: tuple[tuple[int, ...], ...]
    open_slots: frozenset[int] = field(default_factory=frozenset)
    joined_slots: frozenset[int] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        if len(self.segments) not in (1, 2):
            raise CanvasError(f"a canvas has one or two segments, not {len(self.segments)}")
        for segment, tokens in enumerate(self.segments):
            if not self.specials.ids.isdisjoint(tokens) or min(tokens, default=0) < 0:
                for position, token_id in enumerate(tokens):
                    self._check_content(token_id, f"segment {Segment(segment).name}, position {position}")
        for slot in (min(self.open_slots, default=1), max(self.open_slots, default=1)):
            self._check_slot(slot)
        for slot in self.joined_slots - self.open_slots:
            raise CanvasError(f"slot {slot} is joined but not open; the open slots are {sorted(self.open_slots)}")

    @classmethod
    def from_ids(
        cls,
        specials: SpecialTokens,
        x: Iterable[int] = (),
        y: Iterable[int] | None = None,
        *,
        generate: Factorization | None = None,
    ) -> Canvas:
        """Build a canvas of whole segments, with every slot of the generated segments open.

        Args:
            specials: the ids that frame it.
            x: content tokens of X.
            y: content tokens of Y, or None for a canvas of one segment.
            generate: which segments' slots are open; None opens none.

        Raises:
            CanvasError: content contains a special token, or `generate` needs a segment that is missing.
        """
        segments = (tuple(x),) if y is None else (tuple(x), tuple(y))
        canvas = cls(specials, segments)
        if generate is None:
            return canvas
        generate = member_of(Factorization, generate, "generate", CanvasError)
        for segment in generate.generated | generate.absent:
            if segment >= len(segments):
                raise CanvasError(f"{generate.name} needs segment {segment.name}; give y, which may be empty")
        for segment in generate.absent:
            if segments[segment]:
                raise CanvasError(f"{generate.name} needs segment {segment.name} to be empty, but it holds tokens")
        slots = (slot for segment in generate.generated for slot in canvas.slots(segment))
        return replace(canvas, open_slots=frozenset(slots))

    @classmethod
    def from_fragments(
        cls,
        specials: SpecialTokens,
        x: Sequence[Sequence[int]],
        y: Sequence[Sequence[int]] | None = None,
        *,
        joined: Iterable[tuple[Segment, int]] = (),
    ) -> Canvas:
        """Build a canvas of fragments with a blank between each two; only the blanks are open.

        An empty first or last fragment puts a blank at the start or the end; adjacent blanks are one blank.

        Args:
            specials: the ids that frame it.
            x: X's fragments; a single fragment is a segment without a blank.
            y: Y's fragments, or None for a canvas of one segment.
            joined: (segment, blank number) of the blanks that may continue the word on their left.
        """
        sides = [x] if y is None else [x, y]
        wanted = set(joined)
        open_slots: set[int] = set()
        joined_slots: set[int] = set()
        start = 1
        for segment, fragments in enumerate(sides):
            for blank, fragment in enumerate(fragments[:-1]):
                start += len(fragment)
                open_slots.add(start)
                if (Segment(segment), blank) in wanted:
                    joined_slots.add(start)
            start += len(fragments[-1] if fragments else ()) + 1
        segments = tuple(tuple(token for fragment in side for token in fragment) for side in sides)
        return cls(specials, segments, frozenset(open_slots), frozenset(joined_slots))

    @classmethod
    def from_text(
        cls, specials: SpecialTokens, encode: Callable[[str], Sequence[int]], x: str, y: str | None = None
    ) -> Canvas:
        """Build a canvas from text with blanks of four underscores, as in ``A man ____ a red ____.``

        White space before a blank belongs to the inserted text; white space after it belongs to the text that follows.

        Args:
            specials: the ids that frame it.
            encode: maps a text to content token ids, without special tokens.
            x: X's text.
            y: Y's text, or None for a canvas of one segment.
        """
        sides = [BlankedText.parse(text) for text in (x, y) if text is not None]
        fragments = [[encode(fragment) for fragment in side.fragments] for side in sides]
        joined = [(Segment(s), blank) for s, side in enumerate(sides) for blank, j in enumerate(side.joined) if j]
        return cls.from_fragments(specials, fragments[0], fragments[1] if y is not None else None, joined=joined)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All tokens of the canvas in order, special tokens included."""
        row = [self.specials.cls_id]
        for tokens in self.segments:
            row += [*tokens, self.specials.sep_id]
        return tuple(row)

    @property
    def segment_ids(self) -> tuple[int, ...]:
        """The segment of every token of the canvas; ``[CLS]`` belongs to X."""
        segments = enumerate(self.segments)
        return (0, *(segment for segment, tokens in segments for _ in range(len(tokens) + 1)))

    def __len__(self) -> int:
        return 1 + sum(len(tokens) + 1 for tokens in self.segments)

    def slots(self, segment: Segment) -> range:
        """Return all slots of a segment, open or not: one more than it has tokens."""
        if segment >= len(self.segments):
            raise CanvasError(f"the canvas has no segment {Segment(segment).name}")
        start = 1 + sum(len(tokens) + 1 for tokens in self.segments[:segment])
        return range(start, start + len(self.segments[segment]) + 1)

    def is_open(self, segment: Segment) -> bool:
        """Return whether a slot of a segment is open."""
        return not self.open_slots.isdisjoint(self.slots(segment))

    @property
    def given_whole(self) -> list[Segment]:
        """The segments with content and no open slot."""
        sides = (Segment(number) for number in range(len(self.segments)))
        return [side for side in sides if self.segments[side] and not self.is_open(side)]

    def insert(self, insertions: Iterable[Insertion]) -> Canvas:
        """Return the canvas after a set of simultaneous insertions; both sides of a new token are open.

        Raises:
            CanvasError: a slot does not exist, is closed or occurs twice, or a token is special.
        """
        tokens: dict[int, int] = {}
        for insertion in insertions:
            self._check_slot(insertion.slot)
            if insertion.slot not in self.open_slots:
                raise CanvasError(f"slot {insertion.slot} is closed; the open slots are {sorted(self.open_slots)}")
            if insertion.slot in tokens:
                raise CanvasError(f"slot {insertion.slot} has two insertions; a round inserts one token per slot")
            self._check_content(insertion.token_id, f"insertion into slot {insertion.slot}")
            tokens[insertion.slot] = insertion.token_id
        segments: list[tuple[int, ...]] = []
        open_slots: set[int] = set()
        joined_slots: set[int] = set()
        shift = 0
        for segment in map(Segment, range(len(self.segments))):
            content: list[int] = []
            for slot, token_id in zip(self.slots(segment), (*self.segments[segment], None), strict=True):
                if slot in self.joined_slots:
                    joined_slots.add(slot + shift)
                if slot in tokens:
                    content.append(tokens[slot])
                    open_slots.add(slot + shift)
                    shift += 1
                if slot in self.open_slots:
                    open_slots.add(slot + shift)
                if token_id is not None:
                    content.append(token_id)
            segments.append(tuple(content))
        return Canvas(self.specials, tuple(segments), frozenset(open_slots), frozenset(joined_slots))

    def _check_slot(self, slot: int) -> None:
        if not 1 <= slot < len(self):
            raise CanvasError(f"slot {slot} does not exist; this canvas has slots 1 to {len(self) - 1}")

    def _check_content(self, token_id: int, place: str) -> None:
        if token_id in self.specials.ids:
            raise CanvasError(f"{place}: token {token_id} is a special token and cannot be content")
        if token_id < 0:
            raise CanvasError(f"{place}: {token_id} is not a token id")
