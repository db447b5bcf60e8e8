"""A bounded queue of requests, from which similar ones are taken together. Independent of the model and of HTTP."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field

from kermit.serving.answers import Reply, RoundEvent, StartEvent
from kermit.serving.http_errors import QueueFullError, StoppingError
from kermit.serving.schemas import Request

Tell = Callable[[StartEvent | RoundEvent], None]


@dataclass(eq=False)
class Job:
    """A queued request.

    Args:
        deadline: when the caller stops waiting, on the monotonic clock.
        tell: called from the worker's thread with every event of a streaming request.
    """

    request: Request
    deadline: float
    tell: Tell | None = None
    answer: Future[Reply] = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)
    abandoned: bool = False
    likeness: Hashable = field(init=False)

    def __post_init__(self) -> None:
        self.likeness = self.request.likeness

    @property
    def size(self) -> int:
        """Number of texts."""
        return self.request.size

    @property
    def wanted(self) -> bool:
        """Whether someone still waits for the answer."""
        return not self.abandoned and time.monotonic() < self.deadline


class JobQueue:
    """A bounded queue of jobs, with at most `places` waiting texts."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False

    @property
    def depth(self) -> int:
        """Number of waiting texts."""
        with self._changed:
            return self._depth()

    @property
    def closed(self) -> bool:
        """Whether new jobs are refused."""
        return self._closed

    def put(self, job: Job) -> None:
        """Add a job; raise a QueueFullError if there is no room, a StoppingError if the queue is closed."""
        with self._changed:
            if self._closed:
                raise StoppingError("the service is stopping and accepts no new requests; try again later")
            self._drop_unwanted()
            if self._depth() + job.size > self.places:
                raise QueueFullError(
                    f"the queue is full ({self._depth()} of {self.places} texts waiting); try again in a moment",
                    limit=self.places,
                )
            self._jobs.append(job)
            self._changed.notify_all()

    def discard(self, job: Job) -> None:
        """Abandon a job: a waiting one leaves the queue, a running one ends at the next round."""
        job.abandoned = True
        with self._changed:
            self._drop_unwanted()
            self._changed.notify_all()

    def close(self) -> None:
        """Refuse new jobs; waiting ones can still be taken."""
        self._closed = True  # without the lock, so that a signal handler may call this

    def wake(self) -> None:
        """Wake up all waiting threads."""
        with self._changed:
            self._changed.notify_all()

    def gather(self, max_batch: int, max_wait: float) -> list[Job]:
        """Wait for jobs and take the oldest with similar ones; returns none once the queue is closed and empty.

        It takes up to `max_batch` texts, or one larger job, within `max_wait` seconds of the arrival of the oldest.
        """
        with self._changed:
            while True:
                self._drop_unwanted()
                if not self._jobs:
                    if self._closed:
                        return []
                    self._changed.wait()
                    continue
                batch, full = self._like_the_oldest(max_batch)
                left = batch[0].arrived + max_wait - time.monotonic()
                if full or left <= 0 or self._closed:
                    for job in batch:
                        self._jobs.remove(job)
                    return batch
                self._changed.wait(left)

    def _like_the_oldest(self, max_batch: int) -> tuple[list[Job], bool]:
        """Return the jobs to take together, and whether the batch is full."""
        batch, size = [self._jobs[0]], self._jobs[0].size
        for job in list(self._jobs)[1:]:
            if job.likeness != batch[0].likeness:
                continue
            if size + job.size > max_batch:
                return batch, True
            batch.append(job)
            size += job.size
        return batch, size >= max_batch

    def _drop_unwanted(self) -> None:
        for job in [job for job in self._jobs if not job.wanted]:
            self._jobs.remove(job)
            job.answer.cancel()

    def _depth(self) -> int:
        return sum(job.size for job in self._jobs)
