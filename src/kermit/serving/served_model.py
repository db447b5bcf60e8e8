"""Answer batches of similar requests: the only place where the service calls the pipeline.

Everything here runs in the worker's thread, which owns the model and its tokenizer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from itertools import islice
from typing import Any

from kermit.arguments import GenerationOptions, settings_from
from kermit.canvas import Factorization, Segment
from kermit.decoding import Constraints, DecodingSettings, Trace, strategies_of
from kermit.decoding.flat_settings import DecodingChoices
from kermit.errors import DataError
from kermit.objectives.priors import make_prior
from kermit.pipeline import Kermit
from kermit.results import Generation, Score
from kermit.sentence_plans import Plan, PlannedRow
from kermit.serving.alternatives import alternatives, check_ids
from kermit.serving.answers import (
    CanvasRecord,
    Generated,
    GeneratedTexts,
    ModelCard,
    Reply,
    RoundEvent,
    Scored,
    StartEvent,
    TextScores,
    TraceRecord,
    Vectors,
)
from kermit.serving.card import read_card
from kermit.serving.jobs import Job
from kermit.serving.schemas import (
    MAX_CANDIDATES,
    CompleteRequest,
    EmbedRequest,
    Generating,
    InfillRequest,
    Request,
    SampleRequest,
    ScoreRequest,
    TranslateRequest,
    rounds_of,
)
from kermit.serving.settings import ServiceSettings
from kermit.text.tokenizer import encode_texts

_CHOICES = [field.name for field in fields(DecodingChoices) if field.name in {*Generating.model_fields} - {"seed"}]
"""The fields of a request that are decoding settings."""


class ServedModel:
    """Answers requests through the pipeline, whose batch size and progress bar are set here."""

    def __init__(self, kermit: Kermit, settings: ServiceSettings) -> None:
        self.kermit, self.settings = kermit, settings
        kermit.batch_size, kermit.progress = settings.max_batch, False
        room = kermit.info.max_segment_length
        self.max_tokens = settings.max_tokens if room is None else min(settings.max_tokens, room)
        self.strategies = strategies_of(kermit.info) if kermit.searcher is None else []

    def card(self) -> ModelCard:
        """Describe the model."""
        info = self.kermit.info
        x, y = self.kermit.languages
        title, about = (None, None) if self.kermit.folder is None else read_card(self.kermit.folder)
        return ModelCard(
            name=self.kermit.name,
            title=title,
            about=about,
            languages={"x": x, "y": y},
            factorizations=[Factorization(name) for name in sorted(info.factorizations)] or None,
            strategies=self.strategies,
            orders=None if info.orders is None else sorted(info.orders),
            cached_context=info.cached_context,
            parameters=info.parameters,
            vocabulary=info.vocab_size,
            candidates=MAX_CANDIDATES,
            max_tokens=self.max_tokens,
            max_texts=self.settings.max_texts,
        )

    def check_size(self, request: Request) -> None:
        """Raise a DataError for too many texts or too large a `max_tokens`; needs no model."""
        most = self.settings.max_texts
        if request.size > most:
            raise DataError(f"{request.size} texts, but a request may have at most {most}; split it", limit=most)
        asked = getattr(request, "max_tokens", None)
        if asked is not None and asked > self.settings.max_tokens:
            most = self.settings.max_tokens
            raise DataError(f"max_tokens: must be at most {most} for this service, not {asked}", limit=most)

    def check_lengths(self, request: Request) -> None:
        """Raise a DataError if a given text, or a sentence of it, has too many tokens."""
        parts = request.fragments
        if isinstance(request, TranslateRequest):
            plan = self._plan(request)
            parts = [(_place(plan, row), [row.text]) for row in plan.rows]
        for place, fragments in parts:
            length = sum(map(len, encode_texts(self.kermit.tokenizer, fragments)))
            if length > self.max_tokens:
                raise DataError(
                    f"{place}: the text has {length} tokens, but may have at most {self.max_tokens}; shorten or"
                    " split it",
                    limit=self.max_tokens,
                )
        if isinstance(request, Generating) and request.begun is not None:
            check_ids(self.kermit, [one.token_id for rounds in request.begun for decided in rounds for one in decided])

    def answer(self, jobs: Sequence[Job]) -> Iterator[Reply]:
        """Answer similar jobs in one batch, each as soon as its answer is known.

        Every text gets the answer that it would get alone: it is sampled with its own seed, and the pipeline guarantees
        that results do not depend on the batch. A score needs many canvases, so texts are scored one by one. Jobs that
        nobody waits for any more are not finished.
        """
        requests = [job.request for job in jobs]
        match requests[0]:
            case Generating():
                yield from self._generate(jobs)
            case ScoreRequest():
                yield from map(self._score, jobs)
            case EmbedRequest() as like:
                vectors = iter(self.kermit.embed(*_sides(requests), side=like.side, pooling=like.pooling).tolist())
                yield from (Vectors(vectors=list(islice(vectors, request.size))) for request in requests)
            case _:
                yield from (alternatives(self.kermit, request) for request in requests)

    def _generate(self, jobs: Sequence[Job]) -> list[Reply]:
        asked = [job.request for job in jobs if isinstance(job.request, Generating)]
        plans = [self._plan(request) for request in asked]
        rows = [row for plan in plans for row in plan.rows]
        found = iter(self._decode(jobs, asked, plans, rows))
        replies: list[Reply] = []
        for request, plan in zip(asked, plans, strict=True):
            target = self.kermit.segment(request.to) if isinstance(request, TranslateRequest) else Segment.Y
            results = plan.fold(list(islice(found, len(plan.rows))), target)
            replies.append(GeneratedTexts(results=[self._generated(result, request) for result in results]))
        return replies

    def _plan(self, request: Generating) -> Plan:
        seeds = range(request.seed, request.seed + request.size)
        if not isinstance(request, TranslateRequest):
            return Plan.of_size(seeds)
        target = self.kermit.segment(request.to)
        return self.kermit.plan(request.texts, target, seeds, split=request.splits, recase=request.recase)

    def _decode(
        self, jobs: Sequence[Job], asked: Sequence[Generating], plans: Sequence[Plan], rows: Sequence[PlannedRow]
    ) -> list[Generation]:
        like, kermit = asked[0], self.kermit
        audience = _Audience(kermit, [(job, row) for job, plan in zip(jobs, plans, strict=True) for row in plan.rows])
        how = GenerationOptions(
            settings=self._decoding(like),
            seeds=[row.seed for row in rows],
            begun=None if like.begun is None else [rounds_of(decided) for decided in like.begun],
            trace=any(request.trace for request in asked),
            on_round=audience.on_round if max(like.candidates, like.beams) == 1 and kermit.searcher is None else None,
        )
        match like:
            case TranslateRequest():
                texts = [row.text for row in rows]
                return kermit.translate(texts, like.to, split_sentences=False, recase=False, **how)
            case InfillRequest():
                return kermit.infill(*_sides(asked), side=like.side, keep_words=like.keep_words, **how)
            case CompleteRequest():
                return kermit.complete(*_sides(asked), side=like.side, keep_words=like.keep_words, **how)
            case _:
                assert isinstance(like, SampleRequest)
                return kermit.sample(len(rows), segment=like.segment, **how)

    def _decoding(self, request: Generating) -> DecodingSettings | Mapping[str, Any]:
        choices = {name: getattr(request, name) for name in _CHOICES if name in request.model_fields_set}
        if isinstance(request, TranslateRequest):
            return choices
        settings = settings_from(choices | {"max_tokens": request.max_tokens or self.max_tokens})
        if not isinstance(request, InfillRequest):
            return settings
        return replace(
            settings,
            constraints=Constraints(
                min_tokens_per_blank=request.min_tokens_per_blank, max_tokens_per_blank=request.max_tokens_per_blank
            ),
        )

    def _generated(self, result: Generation, request: Generating) -> Generated:
        one_side = None
        if isinstance(request, SampleRequest) and request.segment != "both":
            one_side = self.kermit.segment(request.segment)
        readable = self.kermit.readable(result.trace) if request.trace else None
        return Generated(
            x=None if one_side is Segment.Y else result.x,
            y=None if one_side is Segment.X else result.y,
            rounds=result.rounds,
            tokens=result.tokens,
            finish=result.finish,
            log_prob=result.log_prob,
            trace=TraceRecord.model_validate(readable.to_json()) if readable is not None else None,
            sentences=[self._generated(sentence, request) for sentence in result.sentences] or None,
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
                side=request.side,
                factorization=request.factorization,
                method=request.method,
                prior=make_prior(request.prior, temperature=request.temperature),
                orders=request.orders,
                seed=request.seed,
                on_batch=go_on,
            )
        return TextScores(results=[_scored(score, request) for score in scores])


class _UnwantedError(Exception):
    """Raised when no client waits for the answer any more."""


class _Audience:
    """Sends the rounds of each row to its caller, and names the rows to abandon."""

    def __init__(self, kermit: Kermit, owners: Sequence[tuple[Job, PlannedRow]]) -> None:
        self.kermit, self.owners = kermit, owners
        self.sent: dict[int, int] = {}  # number of rounds sent, by row

    def on_round(self, traces: Mapping[int, Trace]) -> list[int]:
        """Send new rounds to callers; return the rows that nobody waits for."""
        for number, trace in traces.items():
            job, row = self.owners[number]
            if job.tell is None or not job.wanted:
                continue
            place = {"index": row.index, "sentence": row.sentence}
            start = self.kermit.readable(Trace(trace.start, ()))
            assert start is not None
            if number not in self.sent:
                record = start.to_json()
                canvas = {name: record[name] for name in CanvasRecord.model_fields}
                job.tell(StartEvent.model_validate(place | canvas))
            for last in range(self.sent.get(number, 0), len(trace.rounds)):
                insertions = [insertion.to_json(start.text) for insertion in trace.rounds[last]]
                job.tell(RoundEvent.model_validate(place | {"round": last + 1, "insertions": insertions}))
            self.sent[number] = len(trace.rounds)
        return [number for number in traces if not self.owners[number][0].wanted]


def _sides(requests: Sequence[Any]) -> tuple[list[str] | None, list[str] | None]:
    """Concatenate the texts of similar requests; None for a side that is not given."""

    def joined(name: str) -> list[str] | None:
        given = getattr(requests[0], name) is not None
        return [text for request in requests for text in getattr(request, name)] if given else None

    return joined("x"), joined("y")


def _place(plan: Plan, row: PlannedRow) -> str:
    """Return the place of a row in its request, for error messages."""
    several = len(plan.splits[row.index].sentences) > 1
    return f"texts.{row.index}, sentence {row.sentence + 1}" if several else f"texts.{row.index}"


def _scored(score: Score, request: ScoreRequest) -> Scored:
    error = score.standard_error
    return Scored(
        log_prob=score.log_prob if math.isfinite(score.log_prob) else None,
        method=request.method,
        standard_error=error if error is not None and math.isfinite(error) else None,
    )
