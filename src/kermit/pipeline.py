"""`Kermit`: load a model once, then translate, infill, sample, complete, score and embed text.

Each ability is the same decode with another canvas and other slots open; see the table in ``docs/canvas.md``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from kermit.canvas import Canvas, Factorization, Segment
from kermit.canvas.arrays import Floats
from kermit.decoding import (
    DRAWING_TEMPERATURE,
    LENGTH_REWARD,
    MAX_REPEATS,
    MAX_TOKENS,
    Constraints,
    Decoded,
    DecodingSettings,
    OnRound,
    Ranking,
    Sampling,
    Strategy,
    Trace,
    TracedRounds,
    check_lengths,
    decode,
)
from kermit.decoding.choices import DecodingChoices
from kermit.decoding.likelihood import bounds, exact_log_likelihood, left_to_right_log_likelihood
from kermit.decoding.settings import is_whole
from kermit.embedding import embed
from kermit.engines.engine import MODEL_TYPE, Engine
from kermit.engines.exported_files import FilePrecision
from kermit.engines.selection import EngineName, load_engine
from kermit.errors import DataError, DecodingError, ModelError, member_of
from kermit.loading import display_name, find_model, read_config
from kermit.objectives.orders import OrderPrior
from kermit.rendering import ReadableTrace
from kermit.results import Generation, Pooling, Score, ScoreMethod
from kermit.text.spelling import Speller
from kermit.text.tokenizer import AnyTokenizer, encode_texts, read_tokenizer

if TYPE_CHECKING:
    import torch

    from kermit.modeling import KermitForInsertion


class Kermit:
    """A KERMIT model with its tokenizer, on strings.

    Args:
        model: an engine, or a model of torch, which is put in evaluation mode.
        tokenizer: its tokenizer, of the `tokenizers` library or of transformers.
        batch_size: number of texts to work on together. It does not change the results.
        progress: whether to show a progress bar.
        folder: where the model was loaded from; known for a model of torch.
    """

    def __init__(
        self,
        model: Engine | KermitForInsertion,
        tokenizer: AnyTokenizer,
        *,
        batch_size: int = 64,
        progress: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.engine: Engine = _as_engine(model)
        self.info = self.engine.info
        self.tokenizer, self.batch_size, self.progress = tokenizer, batch_size, progress
        self.folder: Path | None = folder or _folder_of(model)
        self.specials, self.languages = self.info.specials, self.info.languages
        self.model_type, self.precision = self.info.model_type, self.info.precision
        self.factorizations: frozenset[str] = self.info.factorizations
        self.knows_pairs: bool = bool(self.factorizations)
        self._speller = Speller(tokenizer, self.specials, self.info.vocab_size)

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
        """Load a model and its tokenizer from a folder, a training's output too, or from the Hub by name.

        Args:
            path: the folder or name; the model that comes with the package by default.
            engine: ``onnx`` or ``torch``; ``auto`` is ONNX Runtime if the folder has an exported file, and torch
                otherwise, or if a device or dtype is named.
            precision: of the exported file; int8 if there is one by default.
            threads: number of CPU threads; by default 1 for ONNX Runtime, and torch's own choice for torch.
            device: where torch computes; a GPU if there is one by default.
            dtype: what torch computes in; float32 by default. ``torch.bfloat16`` is faster on a GPU, and nearly as
                exact.
            batch_size: number of texts to work on together.
            progress: whether to show a progress bar.

        Raises:
            ModelError: there is no KERMIT model there, or no exported file.
        """
        folder = find_model(path)
        if (kind := read_config(folder).get("model_type")) != MODEL_TYPE:
            raise ModelError(f"{folder} holds a model of the type {kind}, not {MODEL_TYPE}")
        model = load_engine(folder, engine, precision=precision, threads=threads, device=device, dtype=dtype)
        return cls(model, read_tokenizer(folder), batch_size=batch_size, progress=progress, folder=folder)

    @property
    def name(self) -> str:
        """The name of the model's folder, or of the training whose best model it is."""
        return "model" if self.folder is None else display_name(self.folder)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model and its tokenizer into a folder, from which `from_pretrained` loads both."""
        target = Path(folder)
        model = getattr(self.engine, "model", None)
        if model is not None:
            model.save_pretrained(target)
        elif self.folder is not None and self.folder != target:
            shutil.copytree(self.folder, target, dirs_exist_ok=True)
        save = getattr(self.tokenizer, "save_pretrained", None)
        if save is not None:
            save(target)
        elif self.folder is not None:
            for file in self.folder.glob("*token*.json"):
                shutil.copyfile(file, target / file.name)
        else:
            self.tokenizer.save(str(target / "tokenizer.json"))  # type: ignore[union-attr]

    def push_to_hub(self, name: str, **settings: Any) -> None:
        """Put the model and its tokenizer on the Hub, from where `from_pretrained` loads both.

        Args:
            name: of the repository, as ``user/model``.
            settings: for transformers' `push_to_hub`, such as ``private=True``.
        """
        model, tokenizer = getattr(self.engine, "model", None), self.tokenizer
        if model is None:
            raise ModelError("only a model of torch can be pushed; load it with engine='torch'")
        if not hasattr(tokenizer, "push_to_hub"):
            from kermit.data.joint_tokenizer import load_tokenizer

            assert self.folder is not None
            tokenizer = load_tokenizer(self.folder)
        for part in (model, tokenizer):
            part.push_to_hub(name, **settings)

    def translate(
        self,
        texts: Sequence[str],
        to: str,
        *,
        settings: DecodingSettings | None = None,
        seeds: Sequence[int] | None = None,
        begun: Sequence[TracedRounds] | None = None,
        trace: bool = False,
        on_progress: Callable[[int], object] | None = None,
        on_round: OnRound | None = None,
    ) -> list[Generation]:
        """The other side of each text: p(y given x) or p(x given y).

        Args:
            texts: what to translate; of a blank one nothing is made.
            to: the language to translate into, by the model's name for it; ``x`` and ``y`` always work.
            settings: how to decode; parallel and greedy, with the model's own termination penalty, by default. Unless
                it sets other limits, a text of n tokens gets at most 2 n + 10, and no token stands more than three
                times in a row that does not in the text; `finish` says whether a limit ended it.
            seeds: one a text, for sampling.
            begun: for each text the rounds that are already decided, as in a trace; decoding continues after them.
            trace: whether to record the rounds.
            on_progress: called with the number of texts that were just finished.
            on_round: called after every round; see `kermit.decoding.decode`.

        Raises:
            ModelError: the model does not know that language, or was not trained to translate into it.
        """
        settings = settings or DecodingSettings()
        if settings.termination_penalty is None and settings.strategy is not Strategy.LEFT_TO_RIGHT:
            settings = replace(settings, termination_penalty=self.info.termination_penalty)
        if settings.candidates > 1 and settings.length_reward is None:
            settings = replace(settings, length_reward=LENGTH_REWARD)
        if settings.max_repeats is None:
            settings = replace(settings, max_repeats=MAX_REPEATS)
        target = self.segment(to)
        way = Factorization.Y_GIVEN_X if target is Segment.Y else Factorization.X_GIVEN_Y
        self._check_trained(way)
        if settings.ranking is Ranking.BOTH_WAYS:
            self._check_trained(Factorization.X_GIVEN_Y if target is Segment.Y else Factorization.Y_GIVEN_X)
        ids = self._encode(texts)
        sides = [(tokens, ()) if target is Segment.Y else ((), tokens) for tokens in ids]
        canvases = [
            Canvas.from_ids(self.specials, *side, generate=None if text.isspace() or not text else way)
            for side, text in zip(sides, texts, strict=True)
        ]
        limits = None if settings.max_tokens else [min(MAX_TOKENS, 2 * len(tokens) + 10) for tokens in ids]
        decoded = self._decode(canvases, settings, seeds, begun, trace, on_progress, on_round, limits)
        results = [self._generation(result) for result in decoded]
        given = "x" if target is Segment.Y else "y"
        return [
            replace(result, x=text) if given == "x" else replace(result, y=text)
            for result, text in zip(results, texts, strict=True)
        ]

    def infill(
        self,
        x: Sequence[str],
        y: Sequence[str] | None = None,
        *,
        settings: DecodingSettings | None = None,
        keep_words: bool = True,
        seeds: Sequence[int] | None = None,
        begun: Sequence[TracedRounds] | None = None,
        trace: bool = False,
        on_progress: Callable[[int], object] | None = None,
        on_round: OnRound | None = None,
    ) -> list[Generation]:
        """Fill the blanks of texts, leaving all that was given as it was written.

        Args:
            x: texts with blanks of four underscores; the first side of the pair where there is a second. To fill the
                blanks of the second side alone, give empty texts here.
            y: the second sides, with blanks or without.
            settings: how to decode; its constraints say how many tokens a blank gets, at least one by default.
            keep_words: whether given words stay whole, so that nothing is glued to one that the blank does not touch.
            seeds: one a text, for sampling.
            begun: for each text the rounds that are already decided, as in a trace; decoding continues after them.
            trace: whether to record the rounds.
            on_progress: called with the number of texts that were just finished.
            on_round: called after every round; see `kermit.decoding.decode`.
        """
        sides = self._pairs(x, y)
        canvases = [Canvas.from_text(self.specials, self._speller.encode, *side) for side in sides]
        settings = self._keeping_words(_filling(settings or DecodingSettings()), keep_words)
        decoded = self._decode(canvases, settings, seeds, begun, trace, on_progress, on_round)
        spell = self._speller.fill
        return [self._as_written(spell, result, *side) for result, side in zip(decoded, sides, strict=True)]

    def complete(
        self,
        x: Sequence[str],
        y: Sequence[str],
        *,
        settings: DecodingSettings | None = None,
        keep_words: bool = True,
        seeds: Sequence[int] | None = None,
        begun: Sequence[TracedRounds] | None = None,
        trace: bool = False,
        on_progress: Callable[[int], object] | None = None,
        on_round: OnRound | None = None,
    ) -> list[Generation]:
        """Complete pairs from fragments on both sides, inserting anywhere (the paper's Figure 4).

        Args:
            x: fragments of the first sides; may be empty. Blanks may be left out, for every slot is open.
            y: fragments of the second sides; may be empty.
            settings: how to decode; drawn at temperature 0.7 by default, where small models still make sense.
            keep_words: whether given words stay whole.
            seeds: one a pair, for sampling.
            begun: for each text the rounds that are already decided, as in a trace; decoding continues after them.
            trace: whether to record the rounds.
            on_progress: called with the number of pairs that were just finished.
            on_round: called after every round; see `kermit.decoding.decode`.
        """
        sides = self._pairs(x, y)
        encoded = [[self._speller.encode_fragment(text or "") for text in side] for side in sides]
        canvases = [Canvas.from_ids(self.specials, *side, generate=Factorization.JOINT) for side in encoded]
        if keep_words:
            canvases = [self._speller.with_whole_words(canvas) for canvas in canvases]
        settings = self._keeping_words(settings or DecodingSettings(sampling=Sampling(DRAWING_TEMPERATURE)), keep_words)
        decoded = self._decode(canvases, settings, seeds, begun, trace, on_progress, on_round)
        spell = self._speller.complete
        return [self._as_written(spell, result, *side) for result, side in zip(decoded, sides, strict=True)]

    def sample(
        self,
        count: int = 1,
        *,
        segment: str = "both",
        seed: int = 0,
        seeds: Sequence[int] | None = None,
        settings: DecodingSettings | None = None,
        begun: Sequence[TracedRounds] | None = None,
        trace: bool = False,
        on_progress: Callable[[int], object] | None = None,
        on_round: OnRound | None = None,
    ) -> list[Generation]:
        """Draw texts from nothing: pairs from p(x, y), or one side from p(x) or p(y).

        Args:
            count: how many.
            segment: ``both``, or a language (``x`` and ``y`` always work).
            seed: the first text's seed; the others follow.
            seeds: one a text, instead of those that follow from `seed`.
            settings: how to draw; at temperature 0.7 by default, where small models still make sense. Temperature 1 is
                the model's own distribution.
            begun: for each text the rounds that are already decided, as in a trace; decoding continues after them.
            trace: whether to record the rounds.
            on_progress: called with the number of texts that were just finished.
            on_round: called after every round; see `kermit.decoding.decode`.

        Raises:
            ModelError: the model does not know that language, or was not trained to draw such texts.
        """
        if not is_whole(count) or count < 0:
            raise DecodingError(f"count must be a whole number of texts, 0 or more, not {count!r}")
        seeds = range(seed, seed + count) if seeds is None else seeds
        way = Factorization.JOINT
        if segment != "both":
            way = Factorization.X if self.segment(segment) is Segment.X else Factorization.Y
        self._check_trained(way)
        canvas = Canvas.from_ids(self.specials, (), (), generate=way)
        settings = settings or DecodingSettings(sampling=Sampling(DRAWING_TEMPERATURE))
        decoded = self._decode([canvas] * count, settings, seeds, begun, trace, on_progress, on_round)
        return [self._generation(result) for result in decoded]

    def score(
        self,
        x: Sequence[str],
        y: Sequence[str] | None = None,
        *,
        factorization: Factorization | None = None,
        method: ScoreMethod = "importance",
        prior: OrderPrior | None = None,
        orders: int = 16,
        seed: int = 0,
        on_batch: Callable[[], object] | None = None,
    ) -> list[Score]:
        """The log-likelihood of texts, in nats.

        Args:
            x: texts, or the first sides of pairs.
            y: the second sides.
            factorization: what is scored given what; all that is given by default.
            method: ``exact`` for short texts, ``importance``, ``bound`` or ``paper_bound``; or ``left_to_right``, exact
                under that order.
            prior: where orders are drawn from; uniform by default.
            orders: how many orders to draw.
            seed: of the drawing, which begins with it anew for every text.
            on_batch: called after every batch of canvases; what it raises ends the work.

        Raises:
            DataError: the factorization asks for second sides, and none are given.
            DecodingError: there is no such method or factorization.
        """
        _check_known("method", method, get_args(ScoreMethod))
        way = Factorization.X if y is None else Factorization.JOINT
        if factorization is not None:
            way = member_of(Factorization, factorization, "factorization", DecodingError)
        if y is None and way not in (Factorization.X, Factorization.JOINT):
            raise DataError(
                f"the factorization {way.value} needs the second side of every text, and none is given; give y too, or"
                " score with x"
            )
        texts = self._encoded_pairs(x, y)
        if method == "exact":
            return [Score(value, method) for value in exact_log_likelihood(self.engine, texts, way, on_batch=on_batch)]
        if method == "left_to_right":
            exact = left_to_right_log_likelihood(self.engine, texts, way, batch_size=self.batch_size, on_batch=on_batch)
            return [Score(value, method) for value in exact]
        found = bounds(self.engine, texts, way, prior=prior, orders=orders, seed=seed, on_batch=on_batch)
        match method:
            case "importance":
                return [Score(value.importance_weighted, method, value.standard_error) for value in found]
            case "bound":
                return [Score(value.with_entropy, method) for value in found]
            case "paper_bound":
                return [Score(value.paper, method) for value in found]

    def embed(
        self,
        x: Sequence[str],
        y: Sequence[str] | None = None,
        *,
        pooling: Pooling = "mean",
        on_progress: Callable[[int], object] | None = None,
    ) -> Floats:
        """Texts, or pairs of texts, as vectors: the trunk's hidden states.

        Args:
            x: the texts, or the first sides.
            y: the second sides.
            pooling: the mean over content tokens, or the state of [CLS].
            on_progress: called with the number of texts that were just finished.

        Returns:
            (texts, width).

        Raises:
            DecodingError: there is no such pooling.
        """
        _check_known("pooling", pooling, get_args(Pooling))
        texts = self._encoded_pairs(x, y)
        return embed(self.engine, texts, pooling, batch_size=self.batch_size, on_progress=on_progress)

    def decoding(self, choices: Mapping[str, Any]) -> DecodingChoices:
        """Check decoding choices by name, and complete them by the defaults of translating with this model.

        Raises:
            DecodingError: unknown name, or an invalid value.
        """
        return DecodingChoices.of(choices).for_translating(self.info.termination_penalty)

    def segment(self, name: str) -> Segment:
        """The side of a language; ``x`` and ``y`` always work.

        Raises:
            ModelError: the model does not know that language.
        """
        known = {"x": Segment.X, "y": Segment.Y, self.languages[0]: Segment.X, self.languages[1]: Segment.Y}
        if name not in known:
            raise ModelError(f"the model's languages are {' and '.join(self.languages)}; it does not know {name!r}")
        return known[name]

    def _check_trained(self, way: Factorization) -> None:
        """Whether the model was trained to generate so, where that is known; who knows the joint knows them all."""
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
                f"the model was not trained to {jobs[way]}, only for {', '.join(sorted(trained))}; ask for what it"
                f" knows, or train one with {way.value}"
            )

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of content tokens."""
        return self._speller.text(token_ids)

    def readable(self, trace: Trace | None) -> ReadableTrace | None:
        """A trace with the text of its tokens, to be shown or written as JSON."""
        return None if trace is None else ReadableTrace(trace, self._speller.piece, self.languages)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The content tokens of whole texts, whose outer white space means nothing."""
        _check_texts(texts)
        return encode_texts(self.tokenizer, [text.strip() for text in texts])

    def _pairs(self, x: Sequence[str], y: Sequence[str] | None) -> list[tuple[str, str | None]]:
        """Texts side by side. A model that was trained on pairs sees a single text beside an empty one."""
        _check_texts(x)
        _check_texts(y or [])
        if y is None:
            return [(text, "" if self.knows_pairs else None) for text in x]
        if len(x) != len(y):
            raise DataError(f"{len(x)} texts on the first side and {len(y)} on the second; give as many on both")
        return list(zip(x, y, strict=True))

    def _encoded_pairs(self, x: Sequence[str], y: Sequence[str] | None) -> list[list[list[int]]]:
        sides = [[text for text in pair if text is not None] for pair in self._pairs(x, y)]
        encoded = iter(self._encode([text for side in sides for text in side]))
        pairs = [[next(encoded) for _ in side] for side in sides]
        check_lengths(self.info, [Canvas.from_ids(self.specials, *pair) for pair in pairs])
        return pairs

    def _keeping_words(self, settings: DecodingSettings | None, keep_words: bool) -> DecodingSettings:
        settings = settings or DecodingSettings()
        if not keep_words:
            return settings
        constraints: Constraints = replace(settings.constraints, continues_word=self._speller.continues)
        return replace(settings, constraints=constraints)

    def _decode(
        self,
        canvases: Sequence[Canvas],
        settings: DecodingSettings | None,
        seeds: Sequence[int] | None,
        begun: Sequence[TracedRounds] | None,
        trace: bool,
        on_progress: Callable[[int], object] | None,
        on_round: OnRound | None,
        limits: Sequence[int] | None = None,
    ) -> list[Decoded]:
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
                seeds=seeds,
                limits=limits,
                begun=begun,
                trace=trace,
                batch_size=self.batch_size,
                on_progress=advance,
                on_round=on_round,
            )

    def _bar(self, count: int) -> Any:
        """A progress bar on a terminal, if one is wanted."""
        if not self.progress:
            return nullcontext()
        from tqdm import tqdm

        return tqdm(total=count, disable=None, unit="text", leave=False)

    def _generation(self, result: Decoded) -> Generation:
        texts = [self.text(tokens).strip() for tokens in result.canvas.segments]
        return Generation(
            x=texts[0],
            y=texts[1] if len(texts) > 1 else None,
            rounds=result.rounds,
            tokens=result.tokens,
            finish=result.finish,
            log_prob=result.log_prob,
            trace=result.trace,
        )

    def _as_written(
        self, spell: Callable[[str, Sequence[int], Sequence[bool]], str], result: Decoded, x: str, y: str | None
    ) -> Generation:
        """The result with what was given spelled as it was written, whatever the tokenizer makes of it."""
        texts = [
            spell(text, result.canvas.segments[segment], result.inserted[segment])
            for segment, text in enumerate((x, y))
            if text is not None
        ]
        return replace(self._generation(result), x=texts[0], y=texts[1] if y is not None else None)


def _as_engine(model: Engine | KermitForInsertion) -> Engine:
    if hasattr(model, "ask"):
        return model
    from kermit.engines.torch_engine import TorchEngine

    return TorchEngine(cast("KermitForInsertion", model))


def _folder_of(model: object) -> Path | None:
    """Return the folder that a model of torch was loaded from, if it was."""
    name = str(getattr(model, "name_or_path", ""))
    return Path(name) if name else None


def _check_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise DataError("give a list of texts, not a single text")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"the type is {type(text).__name__}; give strings", text=number)


def _filling(settings: DecodingSettings) -> DecodingSettings:
    """The settings with a token at least for every blank, unless they say how many."""
    if settings.constraints.min_tokens_per_blank is not None:
        return settings
    return replace(settings, constraints=replace(settings.constraints, min_tokens_per_blank=1))


def _check_known(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise DecodingError(f"{name} must be {', '.join(known[:-1])} or {known[-1]}, not {value!r}")
