"""`Searcher`: a model that translates with its own search, such as a Transformer with beams.

It inserts nothing, so it has no canvas, no rounds and no trace; `kermit.pipeline.Kermit` gives it strings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kermit.decoding import Finish
from kermit.engines.engine import ModelInfo
from kermit.results import Generation


class ChosenDecoding(Protocol):
    """Decoding settings chosen by a user."""

    def settings(self) -> Any:
        """Return the settings that `Kermit.translate` takes."""

    def seeds(self, count: int) -> Sequence[int] | None:
        """Return one seed per text; None if nothing is sampled."""

    def record(self) -> dict[str, Any]:
        """Return the choices as plain data, for signatures and manifests."""


@dataclass(frozen=True)
class Hypothesis:
    """The result of a search for one source: its tokens, without the end token, and whether it ended by itself."""

    token_ids: list[int]
    finished: bool
    log_prob: float

    def generation(self, text: str) -> Generation:
        """Return the result with its text on both sides; the caller replaces the given side."""
        finish = Finish.FINISHED if self.finished else Finish.MAX_TOKENS
        return Generation(text, text, len(self.token_ids) + 1, len(self.token_ids), finish, self.log_prob)


class Searcher(Protocol):
    """A model that translates sequences of tokens."""

    @property
    def info(self) -> ModelInfo:
        """The model's properties."""

    def decoding(self, choices: Mapping[str, Any]) -> ChosenDecoding:
        """Validate decoding choices by name, and add defaults."""

    def search(
        self, sources: Sequence[Sequence[int]], settings: Any, on_progress: Callable[[int], object] | None = None
    ) -> list[Hypothesis]:
        """Translate sources, none of them empty; each result is independent of the other sources."""
