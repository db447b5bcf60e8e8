"""The queue: its limit, which jobs share a batch, and which are never computed. No model, no HTTP."""

import threading
import time

import pytest

from kermit.serving.http_errors import QueueFullError, StoppingError
from kermit.serving.jobs import Job, JobQueue
from kermit.serving.schemas import InfillRequest, Request, SampleRequest, TranslateRequest


def job(request: Request | None = None, *, seconds: float = 1000.0) -> Job:
    return Job(request or SampleRequest(), time.monotonic() + seconds)


def sample(**settings: object) -> SampleRequest:
    return SampleRequest.model_validate(settings)


def test_similar_jobs_are_taken_together_and_others_wait_their_turn() -> None:
    queue = JobQueue(10)
    jobs = [job(sample(seed=1)), job(sample(top_k=3)), job(sample(seed=2, trace=True)), job(sample(top_k=3))]
    for one in jobs:
        queue.put(one)
    assert queue.gather(8, 0) == [jobs[0], jobs[2]]
    assert queue.depth == 2
    assert queue.gather(8, 0) == [jobs[1], jobs[3]]
    assert queue.depth == 0


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (sample(seed=1), sample(seed=2, count=3, trace=True, stream=True), True),
        (sample(), sample(temperature=0.5), False),
        (sample(), sample(strategy="serial"), False),
        (sample(), sample(max_tokens=3), False),
        (sample(segment="x"), sample(segment="y"), False),
        (TranslateRequest(texts=["a"], to="x"), TranslateRequest(texts=["b", "c"], to="x"), True),
        (TranslateRequest(texts=["a"], to="x"), TranslateRequest(texts=["a"], to="y"), False),
        (InfillRequest(x=["a"]), InfillRequest(x=["b"], y=["c"]), False),
        (InfillRequest(x=["a"]), InfillRequest(x=["a"], keep_words=False), False),
    ],
)
def test_requests_that_differ_only_in_texts_seed_and_trace_are_batched(
    one: Request, other: Request, alike: bool
) -> None:
    assert (one.likeness == other.likeness) is alike
    assert (hash(one.likeness) == hash(other.likeness)) or not alike


def test_a_batch_holds_at_most_the_maximum_number_of_texts() -> None:
    queue = JobQueue(100)
    jobs = [job(sample(count=count)) for count in (2, 2, 1, 1, 9)]
    for one in jobs:
        queue.put(one)
    assert queue.gather(5, 0) == jobs[:3]
    assert queue.gather(5, 0) == jobs[3:4]
    assert queue.gather(5, 0) == jobs[4:]  # more than a batch, and so alone


def test_places_are_counted_in_texts_and_a_full_queue_rejects_jobs() -> None:
    queue = JobQueue(4)
    queue.put(job(sample(count=3)))
    with pytest.raises(QueueFullError, match="3 of 4 texts waiting") as refused:
        queue.put(job(sample(count=2)))
    assert refused.value.limit == 4
    queue.put(job())
    assert queue.depth == 4


def test_a_discarded_job_frees_its_place_and_is_never_taken() -> None:
    queue = JobQueue(2)
    first, second = job(), job()
    queue.put(first)
    queue.put(second)
    queue.discard(first)
    assert first.answer.cancelled()
    assert queue.depth == 1
    queue.put(job())
    assert first not in queue.gather(8, 0)


def test_a_job_past_its_deadline_frees_its_place_and_is_never_taken() -> None:
    queue = JobQueue(1)
    late = job(seconds=0.01)
    queue.put(late)
    time.sleep(0.02)
    fresh = job()
    queue.put(fresh)
    assert late.answer.cancelled()
    assert queue.gather(8, 0) == [fresh]


def test_the_oldest_job_waits_for_others_only_up_to_the_limit() -> None:
    queue = JobQueue(10)
    first, second = job(), job()
    queue.put(first)
    threading.Timer(0.05, queue.put, [second]).start()
    assert queue.gather(2, 1000.0) == [first, second]  # full, and so at once
    alone = job()
    queue.put(alone)
    began = time.monotonic()
    assert queue.gather(2, 0.1) == [alone]
    assert time.monotonic() - began >= 0.05


def test_a_closed_queue_rejects_jobs_and_hands_out_those_it_has() -> None:
    queue = JobQueue(10)
    accepted = job()
    queue.put(accepted)
    queue.close()
    with pytest.raises(StoppingError, match="stopping"):
        queue.put(job())
    assert queue.gather(8, 1000.0) == [accepted]  # without waiting for more
    assert queue.gather(8, 1000.0) == []


def test_closing_wakes_waiting_workers() -> None:
    queue, found = JobQueue(1), list[list[Job]]()
    waiting = threading.Thread(target=lambda: found.append(queue.gather(8, 0)))
    waiting.start()
    queue.close()
    queue.wake()
    waiting.join(60)
    assert found == [[]]
