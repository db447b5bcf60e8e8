"""`Kermit`: load a model of any family once, then translate, infill, complete, sample, score and embed text.

Each verb calls the same decoder with a different canvas and different open slots; see the table in ``docs/canvas.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

from kermit.arguments import (
    FillingOptions,
    GenerationOptions,
    GivenTexts,
    ScoreOptions,
    TextOrTexts,
    TranslationOptions,
    check_options,
)
from kermit.canvas import BlankedText, Canvas, Factorization, Segment
from kermit.canvas.arrays import Floats
from kermit.canvas.blanks import as_blanks
from kermit.decoding import Ranking
from kermit.decoding.settings import is_whole
from kermit.embedding import embed
from kermit.engines.exported_files import FilePrecision
from kermit.engines.selection import EngineName
from kermit.errors import DataError, DecodingError, KermitError
from kermit.loading import open_model
from kermit.results import Generation, Pooling, Score
from kermit.saving import push, save
from kermit.text_model import TextModel, translating
from kermit.text_scores import scored_way, scores

if TYPE_CHECKING:
    import torch


class Kermit(TextModel):
    """A model with its tokenizer: strings in, results out.

    Every verb takes a string and returns one result, or takes an iterable of strings and returns a list. Verbs that
    generate also take the options of `kermit.arguments.GenerationOptions`.
    """

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path | None = None,
        *,
        engine: EngineName = "auto",
        precision: FilePrecision | str | None = None,
        threads: int | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        batch_size: int = 64,
        progress: bool = False,
    ) -> Kermit:
        """Load a model of any family and its tokenizer.

        Args:
            path: a folder, a training's output folder, or a name on the Hub; the bundled model by default.
            engine: ``onnx`` or ``torch``; ``auto`` is ONNX Runtime if the folder has an exported file and neither
                device nor dtype is given, and torch otherwise.
            precision: of the exported file, which must exist; by default int8 if the folder has it.
            threads: number of CPU threads; by default 1 for ONNX Runtime, and torch's own choice for torch.
            device: the device for torch; by default a GPU if one is available.
            dtype: the dtype for torch; float32 by default. In half precision, rounding may make a result depend on the
                batch.
            batch_size: number of texts per batch.
            progress: whether to show a progress bar.

        Raises:
            ModelError: the folder holds no model that can generate, or no exported file for ``onnx``.
        """
        model, tokenizer, folder = open_model(
            path, device=device, dtype=dtype, engine=engine, precision=precision, threads=threads
        )
        return cls(model, tokenizer, batch_size=batch_size, progress=progress, folder=folder)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model, its tokenizer and a model card to a folder that `from_pretrained` can load."""
        save(self, Path(folder))

    def push_to_hub(self, name: str, **settings: Any) -> None:
        """Upload the model and its tokenizer to the Hub as ``user/model``; settings are those of transformers."""
        push(self, name, **settings)

    @overload
    def translate(self, texts: str, to: str, **options: Unpack[TranslationOptions]) -> Generation: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, texts: Iterable[str], to: str, **options: Unpack[TranslationOptions]) -> list[Generation]: ...
    def translate(self, texts: TextOrTexts, to: str, **options: Unpack[TranslationOptions]) -> Any:
        """Translate texts: generate the other side of each, p(y given x) or p(x given y).

        By default, decoding is greedy, with the model's own strategy and termination penalty. The translation of a text
        of n tokens has at most 2 n + 10 tokens, and no token is repeated more than three times in a row unless the text
        repeats it. From left to right, a number that begins like one of the text is finished like it. A sentence in
        capitals is read in sentence case, and its translation is written in capitals.

        Args:
            texts: the texts to translate; an empty text stays empty.
            to: the language to translate into, by the model's name for it; ``x`` and ``y`` always work.
            options: see `kermit.arguments.TranslationOptions`.

        Raises:
            ModelError: the model does not know that language, or was not trained to translate into it.
        """
        check_options(options, TranslationOptions)
        given, target = GivenTexts.of(texts), self.segment(to)
        self._check_trained(translating(target))
        settings = self._for_translating(options.get("settings"))
        if getattr(settings, "ranking", None) is Ranking.BOTH_WAYS:
            self._check_trained(translating(Segment(1 - target)))
        plan = self._plan(given.texts, target, options)
        options["on_progress"] = plan.by_texts(options.get("on_progress"))
        try:
            found = (self._insert if self.searcher is None else self._search)(plan, target, settings, options)
        except KermitError as error:
            error.text = None if error.text is None else plan.rows[error.text].index
            raise
        return given.result(plan.fold(found, target))

    @overload
    def infill(self, x: str | None, y: str | None = None, **options: Unpack[FillingOptions]) -> Generation: ...  # type: ignore[overload-overlap]
    @overload
    def infill(
        self, x: Iterable[str] | None, y: Iterable[str] | None = None, **options: Unpack[FillingOptions]
    ) -> list[Generation]: ...
    def infill(self, x: TextOrTexts | None, y: TextOrTexts | None = None, **options: Unpack[FillingOptions]) -> Any:
        """Fill the blanks of texts, four underscores each; given text stays as it was written.

        Args:
            x: texts, or the first sides of pairs; None if only second sides are given.
            y: the second sides. One side of every pair needs a blank; an empty text stays empty.
            options: see `kermit.arguments.FillingOptions`. The constraints in the settings limit the number of tokens
                per blank, at least one by default.

        Raises:
            DataError: a text has no blank.
        """
        given = self._given(x, y, options.get("side"))
        pairs = self._pairs(given)
        for number, pair in enumerate(pairs):
            if any(map(str.strip, filter(None, pair))) and not _open(pair):
                raise DataError("no blank to fill; write a blank as four underscores, ____", text=number)
        settings = self._settings(options.get("settings"))
        if settings.constraints.min_tokens_per_blank is None:
            settings = replace(settings, constraints=replace(settings.constraints, min_tokens_per_blank=1))
        return given.result(self._fill(pairs, settings, options))

    @overload
    def complete(self, x: str | None, y: str | None = None, **options: Unpack[FillingOptions]) -> Generation: ...  # type: ignore[overload-overlap]
    @overload
    def complete(
        self, x: Iterable[str] | None, y: Iterable[str] | None = None, **options: Unpack[FillingOptions]
    ) -> list[Generation]: ...
    def complete(self, x: TextOrTexts | None, y: TextOrTexts | None = None, **options: Unpack[FillingOptions]) -> Any:
        """Complete pairs from fragments on both sides (the paper's Figure 4), with `DEFAULT_SAMPLING` by default.

        Text is inserted only at ``...`` or at a blank; an empty side is generated whole.
        ``complete("A man ...", "... Fahrrad.")`` opens the end of the first side and the start of the second.

        Args:
            x: fragments of the first sides; None to generate them whole.
            y: fragments of the second sides; None to generate them whole.
            options: see `kermit.arguments.FillingOptions`.

        Raises:
            DataError: a pair has no open place.
        """
        given = self._given(x, y, options.get("side"))
        pairs = [
            (as_blanks(first), None if second is None else as_blanks(second)) for first, second in self._pairs(given)
        ]
        for number, pair in enumerate(pairs):
            if not _open(pair):
                raise DataError("no open place; write ... where text may be inserted", text=number)
        return given.result(self._fill(pairs, self._settings(options.get("settings"), draws=True), options))

    def sample(
        self, count: int = 1, *, segment: str = "both", seed: int = 0, **options: Unpack[GenerationOptions]
    ) -> list[Generation]:
        """Sample texts: pairs from p(x, y), or one side from p(x) or p(y); with `DEFAULT_SAMPLING` by default.

        Args:
            count: number of texts.
            segment: ``both``, or a language (``x`` and ``y`` always work).
            seed: the first text's seed; the others count up from it, unless the options give `seeds`.
            options: see `kermit.arguments.GenerationOptions`. Temperature 1 is the model's own distribution.

        Raises:
            ModelError: the model does not know that language, or was not trained to sample such texts.
        """
        check_options(options)
        if not is_whole(count) or count < 0:
            raise DecodingError(f"count must be an integer, 0 or more, not {count!r}")
        way = Factorization.JOINT
        if segment != "both":
            way = Factorization.X if self.segment(segment) is Segment.X else Factorization.Y
        self._check_trained(way)
        canvas = Canvas.from_ids(self.specials, (), (), generate=way)
        if options.get("seeds") is None:
            options["seeds"] = range(seed, seed + count)
        decoded = self._decode([canvas] * count, self._settings(options.get("settings"), draws=True), options)
        return [self._generation(result) for result in decoded]

    @overload
    def score(self, x: str | None, y: str | None = None, **options: Unpack[ScoreOptions]) -> Score: ...  # type: ignore[overload-overlap]
    @overload
    def score(
        self, x: Iterable[str] | None, y: Iterable[str] | None = None, **options: Unpack[ScoreOptions]
    ) -> list[Score]: ...
    def score(self, x: TextOrTexts | None, y: TextOrTexts | None = None, **options: Unpack[ScoreOptions]) -> Any:
        """Return the log-likelihood of texts in nats.

        Args:
            x: texts, or the first sides of pairs; None if only second sides are given.
            y: the second sides.
            options: see `kermit.arguments.ScoreOptions`.

        Raises:
            DataError: the factorization needs a side that was not given.
            DecodingError: unknown method or factorization.
        """
        given = self._given(x, y, options.pop("side", None))
        way = scored_way(given.alone, options.pop("factorization", None))
        texts = self._encoded_pairs(given)
        further = cast("dict[str, Any]", options)
        return given.result(scores(self.engine, texts, way, batch_size=self.batch_size, **further))

    def embed(
        self,
        x: TextOrTexts | None,
        y: TextOrTexts | None = None,
        *,
        side: str | None = None,
        pooling: Pooling = "mean",
        on_progress: Callable[[int], object] | None = None,
    ) -> Floats:
        """Embed texts or pairs as the trunk's pooled hidden states: (texts, width), or (width,) for one text.

        Args:
            x: texts, or the first sides of pairs; None if only second sides are given.
            y: the second sides.
            side: the language of texts given without their other side; ``x`` by default.
            pooling: ``mean`` over content tokens, or ``first`` for the state of [CLS].
            on_progress: called with the number of texts just finished.

        Raises:
            DecodingError: unknown pooling.
        """
        given = self._given(x, y, side)
        texts = self._encoded_pairs(given)
        found = embed(self.engine, texts, pooling, batch_size=self.batch_size, on_progress=on_progress)
        return cast("Floats", given.result(found))


def _open(pair: tuple[str, str | None]) -> bool:
    """Return whether a text or pair has a blank."""
    return any(BlankedText.parse(text).spaces for text in pair if text is not None)
