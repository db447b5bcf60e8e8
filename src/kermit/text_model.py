"""A model with its tokenizer: texts to canvases, through the decoder, and back to texts.

`kermit.pipeline.Kermit` adds the verbs. A model that does not insert (`kermit.searcher.Searcher`) only translates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kermit.arguments import (
    FillingOptions,
    GenerationOptions,
    GivenTexts,
    SettingsLike,
    TextOrTexts,
    TranslationOptions,
    check_options,
    settings_from,
)
from kermit.canvas import Canvas, Factorization, Segment
from kermit.decoding import (
    MAX_REPEATS,
    MAX_TOKENS,
    Decoded,
    DecodingSettings,
    Finish,
    Trace,
    check_lengths,
    decode,
)
from kermit.decoding.flat_settings import DecodingChoices, for_translating
from kermit.decoding.strategies import check_strategy
from kermit.engines.engine import Engine
from kermit.errors import DataError, DecodingError, ModelError
from kermit.loading import display_name
from kermit.rendering import ReadableTrace
from kermit.results import Generation
from kermit.searcher import ChosenDecoding, Searcher
from kermit.sentence_plans import Plan
from kermit.text.casing import sentence_case
from kermit.text.detokenizing import Detokenizer
from kermit.text.tokenizer import AnyTokenizer, encode_texts

if TYPE_CHECKING:
    from kermit.modeling import KermitForInsertion


class TextModel:
    """A model with its tokenizer.

    Args:
        model: an engine, a searcher, or a torch model, which is put in evaluation mode.
        tokenizer: its tokenizer, from the `tokenizers` library or transformers.
        batch_size: number of texts per batch; it does not change the results.
        progress: whether to show a progress bar.
        folder: where the model was loaded from; a torch model already knows it.
    """

    def __init__(
        self,
        model: Engine | Searcher | KermitForInsertion,
        tokenizer: AnyTokenizer,
        *,
        batch_size: int = 64,
        progress: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.searcher: Searcher | None = cast("Searcher", model) if hasattr(model, "search") else None
        self._engine = None if self.searcher is not None else _as_engine(cast("Engine", model))
        self.info = (self.searcher or self.engine).info
        self.tokenizer, self.batch_size, self.progress = tokenizer, batch_size, progress
        self.folder: Path | None = folder or _folder_of(model)
        self.specials, self.languages = self.info.specials, self.info.languages
        self.model_type, self.precision = self.info.model_type, self.info.precision
        self.factorizations: frozenset[str] = self.info.factorizations
        self._detokenizer = Detokenizer(tokenizer, self.info.vocab_size)

    def __repr__(self) -> str:
        size = "" if self.info.parameters is None else f", {self.info.parameters:,} parameters"
        return f"Kermit({self.name!r}: {self.model_type}, {' and '.join(self.languages)}{size}, {self.precision})"

    @property
    def name(self) -> str:
        """The name of the model's folder, or of its training's output folder."""
        return "model" if self.folder is None else display_name(self.folder)

    @property
    def engine(self) -> Engine:
        """The network.

        Raises:
            ModelError: the model does not insert.
        """
        if self._engine is None:
            raise ModelError(f"a model of type {self.model_type} can only translate; use a KERMIT model for this")
        return self._engine

    def decoding(self, choices: Mapping[str, Any]) -> ChosenDecoding:
        """Validate decoding choices by name, and add this model's defaults for translation.

        Raises:
            DecodingError: unknown name, an invalid value, or a strategy that the model was not trained for.
        """
        if self.searcher is not None:
            return self.searcher.decoding(choices)
        chosen = for_translating(self.info, DecodingChoices.of(choices))
        check_strategy(self.info, chosen.settings())
        return chosen

    def segment(self, name: str) -> Segment:
        """Return the side of a language; ``x`` and ``y`` always work.

        Raises:
            ModelError: the model does not know that language.
        """
        x, y = self.languages
        known = {"x": Segment.X, "y": Segment.Y, x: Segment.X, y: Segment.Y}
        if name not in known:
            raise ModelError(f"unknown language {name!r}; the model's languages are {x} and {y}")
        return known[name]

    def text(self, token_ids: Sequence[int]) -> str:
        """Return the text of content tokens."""
        return self._detokenizer.text(token_ids)

    def plan(
        self, texts: Sequence[str], target: Segment, seeds: Sequence[int], *, split: bool = True, recase: bool = True
    ) -> Plan:
        """Plan to translate texts into a side; capitals are read in sentence case if that has fewer tokens."""

        def shorter(text: str) -> bool:
            capitals, cased = self._encode([text, sentence_case(text)])
            return len(cased) < len(capitals)

        return Plan.of(texts, seeds, self.languages[1 - target] if split else None, shorter if recase else None)

    def readable(self, trace: Trace | None) -> ReadableTrace | None:
        """Return a trace with the text of its tokens, for display or JSON."""
        return None if trace is None else ReadableTrace(trace, self._detokenizer.piece, self.languages)

    def _check_trained(self, way: Factorization) -> None:
        """Raise if the model is known not to be trained for this; a model of the joint is trained for everything."""
        trained = self.factorizations
        if trained and not {way.value, Factorization.JOINT.value} & trained:
            x, y = self.languages
            jobs = {
                Factorization.JOINT: f"sample pairs of {x} and {y}",
                Factorization.X: f"sample {x}",
                Factorization.Y: f"sample {y}",
                Factorization.Y_GIVEN_X: f"translate {x} to {y}",
                Factorization.X_GIVEN_Y: f"translate {y} to {x}",
            }
            raise ModelError(
                f"the model was not trained to {jobs[way]}, only for {', '.join(sorted(trained))}; use another model,"
                f" or train one with {way.value}"
            )

    def _given(self, x: TextOrTexts | None, y: TextOrTexts | None, side: str | None) -> GivenTexts:
        return GivenTexts.of(x, y, side, on_y=side is not None and self.segment(side) is Segment.Y)

    def _pairs(self, given: GivenTexts) -> list[tuple[str, str | None]]:
        """Return texts as pairs; for a model of pairs, a single text is paired with an empty one."""
        return given.pairs("" if self.factorizations else None)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode whole texts without their outer white space."""
        return encode_texts(self.tokenizer, [text.strip() for text in texts])

    def _encoded_pairs(self, given: GivenTexts) -> list[list[list[int]]]:
        sides = [[text for text in pair if text is not None] for pair in self._pairs(given)]
        encoded = iter(self._encode([text for side in sides for text in side]))
        pairs = [[next(encoded) for _ in side] for side in sides]
        check_lengths(self.info, [Canvas.from_ids(self.specials, *pair) for pair in pairs])
        return pairs

    def _settings(self, chosen: SettingsLike | None, *, draws: bool = False) -> DecodingSettings:
        """Return the decoder's settings; with `draws`, tokens are sampled unless the settings say otherwise."""
        if isinstance(chosen, DecodingSettings):
            return chosen
        return settings_from({} if chosen is None else chosen, draws=draws)

    def _for_translating(self, chosen: SettingsLike | None) -> Any:
        """Return settings with the defaults for translation; a searcher has its own."""
        if self.searcher is not None:
            return self.searcher.decoding(chosen or {}).settings() if isinstance(chosen, Mapping | None) else chosen
        settings = for_translating(self.info, self._settings(chosen))
        constraints = replace(settings.constraints, digit_of=self._detokenizer.digit_of)
        return replace(settings, max_repeats=settings.max_repeats or MAX_REPEATS, constraints=constraints)

    def _plan(self, texts: Sequence[str], target: Segment, options: TranslationOptions) -> Plan:
        seeds = options.get("seeds")
        numbers = list(range(len(texts)) if seeds is None else seeds)
        if len(numbers) != len(texts):
            raise DecodingError(f"{len(numbers)} seeds for {len(texts)} texts; give one per text")
        followed = options.get("begun") is not None or options.get("on_round") is not None
        split = options.get("split_sentences", True) and not followed
        return self.plan(texts, target, numbers, split=split, recase=options.get("recase", True))

    def _insert(
        self, plan: Plan, target: Segment, settings: DecodingSettings, options: GenerationOptions
    ) -> list[Generation]:
        """Translate the rows of a plan by insertion."""
        ids = self._encode([row.text for row in plan.rows])
        way = translating(target)
        canvases = [
            Canvas.from_ids(self.specials, *sides, generate=way if any(sides) else None)
            for sides in ((tokens, ()) if target is Segment.Y else ((), tokens) for tokens in ids)
        ]
        limits = None if settings.max_tokens else [min(MAX_TOKENS, 2 * len(tokens) + 10) for tokens in ids]
        options["seeds"] = [row.seed for row in plan.rows]
        return [self._generation(result) for result in self._decode(canvases, settings, options, limits)]

    def _search(self, plan: Plan, target: Segment, settings: Any, options: GenerationOptions) -> list[Generation]:
        """Translate the rows of a plan by search, which samples nothing."""
        assert self.searcher is not None
        if options.get("trace") or options.get("begun") is not None or options.get("on_round") is not None:
            raise ModelError(f"a model of type {self.model_type} does not insert, so it has no rounds to trace")
        sources, limit = self._encode([row.text for row in plan.rows]), self.info.max_segment_length
        for number, source in enumerate(sources):
            if limit is not None and len(source) > limit:
                raise DataError(
                    f"{len(source)} tokens, but the model reads at most {limit}; split it", text=number, limit=limit
                )
        found = iter(self.searcher.search([ids for ids in sources if ids], settings, options.get("on_progress")))
        hypotheses = [next(found) if source else None for source in sources]
        texts = ["" if one is None else self.text(one.token_ids) for one in hypotheses]
        return [
            Generation(text, text, 0, 0, Finish.FINISHED, 0.0) if one is None else one.generation(text)
            for one, text in zip(hypotheses, texts, strict=True)
        ]

    def _fill(
        self, pairs: Sequence[tuple[str, str | None]], settings: DecodingSettings, options: FillingOptions
    ) -> list[Generation]:
        """Fill the blanks of texts; given text keeps its spelling, even where the tokenizer would normalise it."""
        check_options(options, FillingOptions)
        if options.get("keep_words", True):
            constraints = replace(settings.constraints, continues_word=self._detokenizer.continues)
            settings = replace(settings, constraints=constraints)
        canvases = [Canvas.from_text(self.specials, self._detokenizer.encode, *pair) for pair in pairs]
        results = []
        for decoded, pair in zip(self._decode(canvases, settings, options), pairs, strict=True):
            sides = zip(pair, decoded.canvas.segments, decoded.inserted, strict=False)
            texts = [self._detokenizer.fill(text or "", tokens, inserted) for text, tokens, inserted in sides]
            results.append(self._generation(decoded, texts))
        return results

    def _decode(
        self,
        canvases: Sequence[Canvas],
        settings: DecodingSettings,
        options: GenerationOptions,
        limits: Sequence[int] | None = None,
    ) -> list[Decoded]:
        seeds, begun, on_progress = options.get("seeds"), options.get("begun"), options.get("on_progress")
        with self._bar(len(canvases)) as bar:

            def advance(count: int) -> None:
                if bar is not None:
                    bar.update(count)
                if on_progress is not None:
                    on_progress(count)

            return decode(
                self.engine,
                canvases,
                settings,
                seeds=None if seeds is None else list(seeds),
                limits=limits,
                begun=None if begun is None else list(begun),
                trace=options.get("trace", False),
                batch_size=self.batch_size,
                on_progress=advance,
                on_round=options.get("on_round"),
            )

    def _bar(self, count: int) -> Any:
        """Return a progress bar for a terminal, or a null context if none is requested."""
        if not self.progress:
            return nullcontext()
        from tqdm import tqdm

        return tqdm(total=count, disable=None, unit="text", leave=False)

    def _generation(self, result: Decoded, texts: Sequence[str] | None = None) -> Generation:
        """Return a result with its texts, by default those of its tokens."""
        texts = texts or [self.text(tokens).strip() for tokens in result.canvas.segments]
        return Generation(
            x=texts[0],
            y=texts[1] if len(texts) > 1 else None,
            rounds=result.rounds,
            tokens=result.tokens,
            finish=result.finish,
            log_prob=result.log_prob,
            trace=result.trace,
        )


def _as_engine(model: Engine | KermitForInsertion) -> Engine:
    if hasattr(model, "ask"):
        return model
    from kermit.engines.torch_engine import TorchEngine

    return TorchEngine(cast("KermitForInsertion", model))


def _folder_of(model: object) -> Path | None:
    """Return the folder that a torch model was loaded from, if any."""
    name = str(getattr(model, "name_or_path", ""))
    return Path(name) if name else None


def translating(target: Segment) -> Factorization:
    """Return the factorization of translating into a side."""
    return Factorization.Y_GIVEN_X if target is Segment.Y else Factorization.X_GIVEN_Y
