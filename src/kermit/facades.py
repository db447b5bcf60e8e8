"""Models of any family on strings: `Kermit`, or a facade with its methods for a family that does not insert.

KERMIT models are loaded without importing the other families, which need torch and what training needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from kermit.engines.engine import MODEL_TYPE
from kermit.errors import ModelError

if TYPE_CHECKING:
    from kermit.canvas import Segment
    from kermit.decoding import Trace
    from kermit.families.base import TranslationFamily
    from kermit.rendering import ReadableTrace
    from kermit.results import Generation


class ChosenDecoding(Protocol):
    """How to decode, as chosen by a user."""

    def settings(self) -> Any:
        """Return the settings that the facade takes."""
        ...

    def seeds(self, count: int) -> Sequence[int] | None:
        """Return one seed per text; None if nothing can be drawn."""
        ...

    def record(self) -> dict[str, Any]:
        """Return the choices as plain data, for signatures and manifests."""
        ...


class Facade(Protocol):
    """A model with its tokenizer, on strings: `kermit.Kermit`, or a model of another family with its methods.

    Attributes:
        tokenizer: the tokenizer.
        languages: names of segments X and Y.
        factorizations: what the model was trained to generate; empty if unknown.
        model_type: of its config.
        precision: number format of its weights.
        folder: where it was loaded from; None for one that was made.
    """

    tokenizer: Any
    languages: tuple[str, str]
    factorizations: frozenset[str]
    model_type: str
    precision: str
    folder: Path | None

    def decoding(self, choices: Mapping[str, Any]) -> ChosenDecoding:
        """Check decoding choices by name, and complete them by the model's defaults.

        Raises:
            DecodingError: unknown name, or an invalid value.
        """
        ...

    def segment(self, name: str) -> Segment:
        """Return the side of a language; ``x`` and ``y`` always work."""
        ...

    def translate(
        self,
        texts: Sequence[str],
        to: str,
        *,
        settings: Any = None,
        seeds: Sequence[int] | None = None,
        trace: bool = False,
        on_progress: Callable[[int], object] | None = None,
    ) -> list[Generation]:
        """Translate texts, in their order; the result for a text does not depend on the others."""
        ...

    def readable(self, trace: Trace | None) -> ReadableTrace | None:
        """Return a trace with the text of its tokens."""
        ...


def load_facade(name: str | Path | None = None, *, device: Any = None, dtype: Any = None) -> Facade:
    """Load a model that translates, of any family.

    Args:
        name: any name that `kermit.loading.find_model` knows; the bundled model by default.
        device: where to compute; a GPU if there is one by default.
        dtype: of the weights and the arithmetic; float32 by default. Half precision is faster where the hardware has
            instructions for it, but rounding may then make a text depend on its batch.
    """
    from kermit.loading import find_model, in_precision, on_device, read_config, reading

    folder = find_model(name)
    model_type = str(read_config(folder).get("model_type", "?"))
    if model_type == MODEL_TYPE:
        from kermit.pipeline import Kermit

        return Kermit.from_pretrained(folder, device=device, dtype=dtype)
    try:
        family = _family(model_type)
    except ModelError as error:
        raise ModelError(f"{folder}: {error}") from error
    from kermit.data.joint_tokenizer import load_tokenizer

    with reading(folder):
        model = on_device(in_precision(family.load(folder), dtype), device)
    return family.facade(model, load_tokenizer(folder))


def _family(model_type: str) -> TranslationFamily:
    from kermit.families import family_of_model_type

    return cast("TranslationFamily", family_of_model_type(model_type))
