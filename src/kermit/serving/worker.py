"""The thread that owns the model: it takes similar jobs from the queue and answers them in one batch."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from kermit.errors import KermitError
from kermit.serving.answers import GeneratedTexts, Reply
from kermit.serving.http_errors import DeadlineError, InternalError
from kermit.serving.jobs import Job, JobQueue
from kermit.serving.metrics import Metrics
from kermit.serving.served_model import ServedModel

logger = logging.getLogger(__name__)


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
