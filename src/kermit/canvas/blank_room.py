"""The positions that blanks inside given text leave for what is inserted there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kermit.canvas.arrays import Array, Integers


@dataclass(frozen=True)
class BlankRoom:
    """How many positions the markers of a canvas leave for what is inserted before them.

    Args:
        width: number of positions per blank.
        limit: number of positions that there are; where a segment has too many blanks for it, each gets less.
    """

    width: int
    limit: int | None = None

    def step(self, given: Integers, markers: Integers) -> Array:
        """Return how far a marker moves what follows it: itself and its room.

        Args:
            given: number of given tokens of each segment.
            markers: number of its markers, of the same shape.
        """
        wanted = np.full(given.shape, self.width + 1)
        if self.limit is None:
            return wanted
        left = np.maximum(self.limit - 1 - given, 0) / np.maximum(markers, 1)
        return np.where(left < wanted, np.where(left < 1, left, np.floor(left)), wanted)

    def within(self, positions: Array) -> Array:
        """Return positions that are not beyond the last."""
        return positions if self.limit is None else np.minimum(positions, self.limit - 1)


NO_ROOM = BlankRoom(0)
