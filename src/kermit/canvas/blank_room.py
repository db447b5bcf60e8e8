"""The positions that blanks inside given text reserve for insertions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kermit.canvas.arrays import Array, Integers


@dataclass(frozen=True)
class BlankRoom:
    """The positions that each marker reserves for the insertions before it: `width`, or fewer within `limit`."""

    width: int
    limit: int | None = None

    def step(self, given: Integers, markers: Integers) -> Array:
        """Return how far a marker shifts what follows it: one position for itself, plus its room.

        Both arguments are counts by segment, in the same shape.
        """
        wanted = np.full(given.shape, self.width + 1)
        if self.limit is None:
            return wanted
        left = np.maximum(self.limit - 1 - given, 0) / np.maximum(markers, 1)
        return np.where(left < wanted, np.where(left < 1, left, np.floor(left)), wanted)

    def within(self, positions: Array) -> Array:
        """Clip positions to the last one."""
        return positions if self.limit is None else np.minimum(positions, self.limit - 1)


NO_ROOM = BlankRoom(0)
