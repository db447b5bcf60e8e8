"""Like requests in, answers out: the one place where the service calls the pipeline.

Everything here runs in the worker's thread, for a model and its tokenizer have one owner.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from kermit.canvas import Factorization, Segment
from kermit.decoding import Constraints, DecodingSettings, OnRound, Trace, strategies_of
from kermit.decoding.choices import DecodingChoices
from kermit.objectives.priors import make_prior
from kermit.pipeline import Kermit
from kermit.results import Generation, Score
from kermit.serving.jobs import Job, Tell
from kermit.serving.refusals import TooLongError
from kermit.serving.schemas import (
    CanvasRecord,
    CompleteRequest,
    EmbedRequest,
    Generated,
    GeneratedTexts,
    Generating,
    InfillRequest,
    ModelCard,
    Reply,
    Request,
    RoundEvent,
    SampleRequest,
    Scored,
    ScoreRequest,
    StartEvent,
    TextScores,
    TraceRecord,
    TranslateRequest,
    Vectors,
)
from kermit.serving.settings import ServiceSettings
from kermit.text.tokenizer import encode_texts


class ServedModel:
    """Answers requests through the pipeline.

    Args:
        kermit: the pipeline; its batch size and progress bar are set here.
        settings: the service's limits.
    """

    def __init__(self, kermit: Kermit, settings: ServiceSettings) -> None:
        self.kermit, self.settings = kermit, settings
        kermit.batch_size, kermit.progress = settings.max_batch, False
        room = kermit.info.max_segment_length
        self.max_tokens = settings.max_tokens if room is None else min(settings.max_tokens, room)
        self.strategies = strategies_of(kermit.info)

    def card(self) -> ModelCard:
        """What callers are told of the model."""
        info = self.kermit.info
        x, y = self.kermit.languages
        return ModelCard(
            name=self.kermit.name,
            languages={"x": x, "y": y},
            factorizations=[Factorization(name) for name in sorted(info.factorizations)] or None,
            strategies=self.strategies,
            orders=None if info.orders is None else sorted(info.orders),
            cached_context=info.cached_context,
            parameters=info.parameters,
            vocabulary=info.vocab_size,
            max_tokens=self.max_tokens,
            max_texts=self.settings.max_texts,
        )

    def check_size(self, request: Request) -> None:
        """Whether a request holds no more than a batch; needs no model.

        Raises:
            TooLongError: it holds more texts, or asks for more tokens.
        """
        most = self.settings.max_texts
        if request.size > most:
            raise TooLongError(f"{request.size} texts, but a request takes at most {most}; split it", limit=most)
        asked = getattr(request, "max_tokens", None)
        if asked is not None and asked > self.settings.max_tokens:
            most = self.settings.max_tokens
            raise TooLongError(f"max_tokens: {asked}, but this service inserts at most {most}", limit=most)

    def check_lengths(self, request: Request) -> None:
        """Whether every given text is short enough.

        Raises:
            TooLongError: one has too many tokens.
        """
        for place, parts in request.fragments:
            length = sum(map(len, encode_texts(self.kermit.tokenizer, parts)))
            if length > self.max_tokens:
                raise TooLongError(
                    f"{place}: the text takes {length} tokens, but at most {self.max_tokens} are taken; "
                    "shorten or split it",
                    limit=self.max_tokens,
                )

    def answer(self, jobs: Sequence[Job]) -> Iterator[Reply]:
        """Answer like jobs together, each as soon as its answer is known.

        Every text's answer is the one that it would get alone: draws come from its own seed, and the pipeline promises
        not to mix the texts of a batch. A score is made of many canvases, so texts are scored one by one. An answer
        that is no longer wanted is not finished.
        """
        requests = [job.request for job in jobs]
        match requests[0]:
            case Generating():
                yield from self._generate(requests, _Audience(self.kermit, jobs).on_round)
            case ScoreRequest():
                yield from map(self._score, jobs)
            case EmbedRequest() as like:
                x, y = _joined(requests, "x"), None if like.y is None else _joined(requests, "y")
                vectors = iter(self.kermit.embed(x, y, pooling=like.pooling).tolist())
                yield from (Vectors(vectors=list(islice(vectors, request.size))) for request in requests)
            case other:
                raise TypeError(f"no way to answer a {type(other).__name__}")

    def _generate(self, requests: Sequence[Request], on_round: OnRound) -> list[Reply]:
        asked = [request for request in requests if isinstance(request, Generating)]
        like, kermit = asked[0], self.kermit
        settings = self._decoding(like)
        seeds = [request.seed + number for request in asked for number in range(request.size)]
        trace = any(request.trace for request in asked)
        one_side: Segment | None = None
        match like:
            case TranslateRequest():
                texts = _joined(asked, "texts")
                found = kermit.translate(texts, like.to, settings=settings, seeds=seeds, trace=trace, on_round=on_round)
            case InfillRequest():
                found = kermit.infill(
                    _joined(asked, "x"),
                    None if like.y is None else _joined(asked, "y"),
                    settings=settings,
                    keep_words=like.keep_words,
                    seeds=seeds,
                    trace=trace,
                    on_round=on_round,
                )
            case CompleteRequest():
                found = kermit.complete(
                    _joined(asked, "x"),
                    _joined(asked, "y"),
                    settings=settings,
                    keep_words=like.keep_words,
                    seeds=seeds,
                    trace=trace,
                    on_round=on_round,
                )
            case SampleRequest():
                one_side = None if like.segment == "both" else kermit.segment(like.segment)
                found = kermit.sample(
                    len(seeds), segment=like.segment, seeds=seeds, settings=settings, trace=trace, on_round=on_round
                )
            case _:
                raise TypeError(f"no way to answer a {type(like).__name__}")
        results = iter(found)
        return [
            GeneratedTexts(
                results=[self._generated(result, request.trace, one_side) for result in islice(results, request.size)]
            )
            for request in asked
        ]

    def _decoding(self, request: Generating) -> DecodingSettings:
        settings = DecodingChoices(
            strategy=request.strategy or self.strategies[0],
            termination_penalty=request.termination_penalty,
            temperature=request.temperature,
            top_k=request.top_k,
            top_p=request.top_p,
            max_rounds=request.max_rounds,
            max_tokens=request.max_tokens or (None if isinstance(request, TranslateRequest) else self.max_tokens),
        ).settings()
        if not isinstance(request, InfillRequest):
            return settings
        return replace(
            settings,
            constraints=Constraints(
                min_tokens_per_blank=request.min_tokens_per_blank, max_tokens_per_blank=request.max_tokens_per_blank
            ),
        )

    def _generated(self, result: Generation, trace: bool, one_side: Segment | None) -> Generated:
        readable = self.kermit.readable(result.trace) if trace else None
        return Generated(
            x=None if one_side is Segment.Y else result.x,
            y=None if one_side is Segment.X else result.y,
            rounds=result.rounds,
            tokens=result.tokens,
            finish=result.finish,
            log_prob=result.log_prob,
            trace=TraceRecord.model_validate(readable.to_json()) if readable is not None else None,
        )

    def _score(self, job: Job) -> TextScores:
        request = job.request
        assert isinstance(request, ScoreRequest)

        def go_on() -> None:
            if not job.wanted:
                raise _UnwantedError

        scores: list[Score] = []
        with suppress(_UnwantedError):
            scores = self.kermit.score(
                request.x,
                request.y,
                factorization=request.factorization,
                method=request.method,
                prior=make_prior(request.prior, temperature=request.temperature),
                orders=request.orders,
                seed=request.seed,
                on_batch=go_on,
            )
        return TextScores(results=[_scored(score, request) for score in scores])


class _UnwantedError(Exception):
    """Nobody waits for the answer any more."""


class _Audience:
    """Who is to be told of which row's rounds, and whose rows to abandon."""

    def __init__(self, kermit: Kermit, jobs: Sequence[Job]) -> None:
        self.kermit = kermit
        self.owners = [(job, number) for job in jobs for number in range(job.size)]

    def on_round(self, traces: Mapping[int, Trace]) -> list[int]:
        for row, trace in traces.items():
            job, index = self.owners[row]
            if job.tell is not None and job.wanted:
                self._tell(job.tell, index, trace)
        return [row for row in traces if not self.owners[row][0].wanted]

    def _tell(self, tell: Tell, index: int, trace: Trace) -> None:
        readable = self.kermit.readable(Trace(trace.start, ()))
        assert readable is not None
        if len(trace.rounds) == 1:
            record = readable.to_json()
            canvas = {name: record[name] for name in CanvasRecord.model_fields}
            tell(StartEvent.model_validate({"index": index} | canvas))
        insertions = [insertion.to_json(readable.text) for insertion in trace.rounds[-1]]
        tell(RoundEvent.model_validate({"index": index, "round": len(trace.rounds), "insertions": insertions}))


def _joined(requests: Sequence[Request], name: str) -> list[str]:
    """The texts of all requests, one after the other."""
    return [text for request in requests for text in getattr(request, name)]


def _scored(score: Score, request: ScoreRequest) -> Scored:
    error = score.standard_error
    return Scored(
        log_prob=score.log_prob if math.isfinite(score.log_prob) else None,
        method=request.method,
        standard_error=error if error is not None and math.isfinite(error) else None,
    )
