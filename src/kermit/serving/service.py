"""The service behind the routes: queue a request, then wait for its answer or stream its rounds.

A thread that owns the model takes similar requests from the queue and answers them in one batch.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress

from kermit.errors import KermitError
from kermit.pipeline import Kermit
from kermit.serving.answers import GeneratedTexts, Reply, RoundEvent, StartEvent
from kermit.serving.http_errors import CallerGoneError, DeadlineError, InternalError
from kermit.serving.jobs import Job, JobQueue
from kermit.serving.metrics import Metrics
from kermit.serving.schemas import Request
from kermit.serving.served_model import ServedModel
from kermit.serving.settings import ServiceSettings

logger = logging.getLogger(__name__)

Event = StartEvent | RoundEvent | Reply
Disconnected = Callable[[], Awaitable[object]]
"""Returns when the caller has gone."""


class Service:
    """A model that serves many callers; it owns the pipeline from now on."""

    def __init__(self, kermit: Kermit, settings: ServiceSettings | None = None) -> None:
        self.settings = settings or ServiceSettings()
        self.model = ServedModel(kermit, self.settings)
        self.queue = JobQueue(self.settings.queue)
        self.metrics = Metrics(lambda: self.queue.depth)
        self.worker = Worker(self.model, self.queue, self.metrics)
        self.card = self.model.card()

    def start(self) -> None:
        """Start the worker."""
        self.worker.start()

    def stop_accepting(self) -> None:
        """Refuse new requests; safe in a signal handler."""
        self.queue.close()

    @property
    def stopping(self) -> bool:
        """Whether new requests are refused."""
        return self.queue.closed

    @property
    def broken(self) -> bool:
        """Whether the worker has died."""
        return not self.worker.is_alive() and not self.stopping

    @property
    def busy(self) -> bool:
        """Whether accepted requests are still unanswered."""
        return self.worker.is_alive() and (self.worker.computing > 0 or self.queue.depth > 0)

    def close(self) -> None:
        """Answer accepted requests, then stop the worker."""
        self.stop_accepting()
        self.queue.wake()
        self.worker.join()

    async def answer(self, request: Request, disconnected: Disconnected) -> Reply:
        """Answer a request."""
        async with aclosing(self.stream(request, disconnected, rounds=False)) as events:
            answer = await anext(events)
            assert not isinstance(answer, StartEvent | RoundEvent)
            return answer

    async def stream(
        self, request: Request, disconnected: Disconnected, *, rounds: bool = True
    ) -> AsyncGenerator[Event]:
        """Queue a request, yield every round as it happens, if `rounds`, and then the answer."""
        self.model.check_size(request)
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[StartEvent | RoundEvent | None] = asyncio.Queue()

        def tell(event: StartEvent | RoundEvent | None) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(events.put_nowait, event)

        job = Job(request, time.monotonic() + self.settings.deadline, tell if rounds else None)
        job.answer.add_done_callback(lambda answer: tell(None))
        self.queue.put(job)
        gone, news = asyncio.ensure_future(disconnected()), asyncio.ensure_future(events.get())
        try:
            while not gone.done():
                left = job.deadline - time.monotonic()
                await asyncio.wait({gone, news}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if news.done() and (event := news.result()) is not None:
                    yield event
                    news = asyncio.ensure_future(events.get())
                elif news.done() and not job.answer.cancelled():
                    yield job.answer.result()
                    return
                elif time.monotonic() >= job.deadline:
                    raise DeadlineError(self.settings.deadline)
            raise CallerGoneError("the caller has disconnected")
        finally:
            gone.cancel()
            news.cancel()
            if not job.answer.done() or job.answer.cancelled():
                self.metrics.abandoned.inc()
            self.queue.discard(job)


class Worker(threading.Thread):
    """Answers the jobs of a queue until it is closed and empty."""

    def __init__(self, model: ServedModel, queue: JobQueue, metrics: Metrics) -> None:
        super().__init__(name="kermit-worker", daemon=True)
        self.model, self.queue, self.metrics = model, queue, metrics
        self.computing = 0

    def run(self) -> None:
        """Take and answer batches."""
        settings = self.model.settings
        while jobs := self.queue.gather(settings.max_batch, settings.max_wait_ms / 1000):
            begun = [job for job in jobs if job.answer.set_running_or_notify_cancel()]
            self.computing = len(begun)
            self._compute(begun)
            self.computing = 0

    def _compute(self, jobs: Sequence[Job]) -> None:
        """Answer jobs; never raise, so that the thread survives."""
        try:
            self._answer(jobs)
        except Exception:
            logger.exception("a batch of %d failed", len(jobs))
            for job in jobs:
                if not job.answer.done():
                    job.answer.set_exception(InternalError("internal error; see the service's log"))

    def _answer(self, jobs: Sequence[Job]) -> None:
        fitting = []
        for job in jobs:
            try:
                self.model.check_lengths(job.request)
                fitting.append(job)
            except KermitError as error:
                job.answer.set_exception(error)
        if not fitting:
            return
        self.metrics.batch_size.observe(sum(job.size for job in fitting))
        try:
            for job, answer in zip(fitting, self.model.answer(fitting), strict=True):
                self._deliver(job, answer)
        except KermitError as error:
            if len(fitting) == 1:
                fitting[0].answer.set_exception(error)
                return
            for job in fitting:  # one by one, so that an error of one does not fail the others
                if not job.answer.done():
                    self._compute([job])

    def _deliver(self, job: Job, answer: Reply) -> None:
        if not job.wanted:  # its rows may have been abandoned
            job.answer.set_exception(DeadlineError(self.model.settings.deadline))
            return
        if isinstance(answer, GeneratedTexts):
            for result in answer.results:
                self.metrics.rounds.observe(result.rounds)
        job.answer.set_result(answer)
