"""Requests that arrive together are computed together, and no answer depends on which others it shares a batch with."""

import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from services import ENGLISH, PAIRS, PATIENCE, Live, held, running, slowed, until

from kermit import Kermit


def ask(live: Live, pool: ThreadPoolExecutor, *requests: tuple[str, dict[str, Any]]) -> list[Future[httpx.Response]]:
    """Send requests at once, each on its own connection."""
    return [pool.submit(live.client.post, path, json=body) for path, body in requests]


MIXED: list[tuple[str, dict[str, Any]]] = [
    *[
        ("/v1/translate", {"texts": [text], "to": "de", "trace": number % 2 == 0})
        for number, text in enumerate(ENGLISH)
    ],
    ("/v1/translate", {"texts": [ENGLISH[0] * 5, "", ENGLISH[2]], "to": "de"}),
    *[("/v1/translate", {"texts": [ENGLISH[1]], "to": "de", "temperature": 3.0, "seed": seed}) for seed in (1, 2, 1)],
    ("/v1/translate", {"texts": [ENGLISH[1], ENGLISH[3]], "to": "de", "temperature": 3.0, "seed": 1}),
    *[("/v1/sample", {"count": 2, "seed": seed, "max_tokens": 12}) for seed in (5, 6)],
    *[("/v1/complete", {"x": ["dog ..."], "y": [""], "seed": seed, "max_tokens": 12}) for seed in (5, 9)],
    *[("/v1/infill", {"x": [f"{text} ____"], "max_tokens": 9, "temperature": 2.0}) for text in ENGLISH],
    *[("/v1/score", {"x": [text], "orders": 2}) for text in ENGLISH[:2]],
    *[("/v1/embed", {"x": [text]}) for text in ENGLISH],
]


def close(found: Any, expected: Any) -> bool:
    """Equal, except for rounding of probabilities and vectors."""
    match expected:
        case float():
            return found == pytest.approx(expected, rel=1e-3, abs=1e-3)
        case dict():
            return found.keys() == expected.keys() and all(close(found[key], expected[key]) for key in expected)
        case list():
            return len(found) == len(expected) and all(map(close, found, expected))
        case _:
            return bool(found == expected)


def test_an_answer_does_not_depend_on_its_batch(live: Live) -> None:
    alone = [live.post(path, **body).json() for path, body in MIXED]
    with ThreadPoolExecutor(len(MIXED)) as pool:
        with held(live.service) as batches:
            answers = ask(live, pool, *MIXED)
            until(lambda: live.service.queue.depth + live.service.worker.computing >= len(MIXED))
        together = [answer.result(PATIENCE).json() for answer in answers]
    assert sum(map(len, batches)) == len(MIXED)
    assert len(batches) < 12  # eight kinds, and what came first
    for (path, body), one, other in zip(MIXED, alone, together, strict=True):
        assert close(other, one), (path, body)


def test_a_full_queue_rejects_requests_and_says_when_to_retry(kermit: Kermit) -> None:
    with running(kermit, queue=4, max_batch=2) as live, ThreadPoolExecutor(8) as pool:
        with held(live.service):
            first = ask(live, pool, ("/v1/sample", {"max_tokens": 1}))
            until(lambda: live.service.worker.computing == 1)
            waiting = ask(live, pool, *[("/v1/sample", {"max_tokens": 1, "count": 2})] * 2)
            until(lambda: live.service.queue.depth == 4)
            assert live.metric("kermit_queue_depth") == 4
            refused = live.post("/v1/sample", max_tokens=1)
            assert refused.status_code == 429
            assert refused.headers["Retry-After"] == "1"
            assert "4 of 4 texts waiting" in refused.json()["detail"]
        assert all(answer.result(PATIENCE).status_code == 200 for answer in first + waiting)


def test_a_request_past_its_deadline_ends_and_is_never_computed(kermit: Kermit) -> None:
    with running(kermit, deadline=2.5) as live, ThreadPoolExecutor(8) as pool:
        with held(live.service) as batches:
            first = ask(live, pool, ("/v1/sample", {"max_tokens": 1}))
            until(lambda: live.service.worker.computing == 1)
            (late,) = ask(live, pool, ("/v1/translate", {"texts": ["A dog"], "to": "de"}))
            response = late.result(PATIENCE)
            assert response.status_code == 503
            assert response.json()["detail"].startswith("no answer within 2.5 seconds")
            assert "Retry-After" in response.headers
            assert live.service.queue.depth == 0
            assert first[0].result(PATIENCE).status_code == 503
        until(lambda: live.service.worker.computing == 0)
        assert batches == [["SampleRequest"]]  # it had started; the other never does
        assert live.metric("kermit_abandoned_total") == 2


def test_a_decode_past_its_deadline_is_abandoned_at_the_next_round(kermit: Kermit) -> None:
    with running(kermit, deadline=2.0) as live:
        finishes: list[str] = []
        real = live.service.model.answer

        def late(jobs: Any) -> Any:
            time.sleep(2.2)  # the deadline passes while it is being computed
            answers = list(real(jobs))
            finishes.extend(result.finish for answer in answers for result in answer.results)
            return answers

        live.service.model.answer = late  # type: ignore[method-assign]
        endless = {"strategy": "serial", "termination_penalty": 90.0}
        response = live.post("/v1/translate", texts=["A dog"], to="de", **endless)
        assert (response.status_code, response.json()["detail"][:16]) == (503, "no answer within")
        until(lambda: bool(finishes))
        assert finishes == ["abandoned"]


def test_a_score_past_its_deadline_is_abandoned_at_the_next_batch_of_canvases(kermit: Kermit) -> None:
    with running(kermit, deadline=2.0) as live, slowed(live.service) as passes:
        long = " ".join(ENGLISH * 2)
        assert live.post("/v1/score", x=[long] * 4, orders=64).status_code == 503
        until(lambda: live.service.worker.computing == 0)
        assert 0 < len(passes) < 12  # of dozens


def test_a_client_that_disconnects_frees_its_place(kermit: Kermit) -> None:
    with running(kermit) as live, ThreadPoolExecutor(2) as pool:
        with held(live.service) as batches:
            first = ask(live, pool, ("/v1/sample", {"max_tokens": 1}))
            until(lambda: live.service.worker.computing == 1)
            host, port = live.url.removeprefix("http://").split(":")
            with socket.create_connection((host, int(port))) as caller:
                head = b"POST /v1/sample HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2"
                caller.sendall(head + b"\r\n\r\n{}")
                until(lambda: live.service.queue.depth == 1)
            until(lambda: live.service.queue.depth == 0)
        assert first[0].result(PATIENCE).status_code == 200
        assert batches == [["SampleRequest"]]


def test_an_error_in_one_request_does_not_affect_others(live: Live) -> None:
    wrong = {"x": [ENGLISH[0]], "method": "exact", "factorization": "y_given_x"}  # one side alone has no y
    requests = [
        ("/v1/translate", {"texts": ["x" * 90], "to": "de"}),
        ("/v1/translate", {"texts": [ENGLISH[0]], "to": "de"}),
        ("/v1/score", {"x": ["x" * 14], "method": "exact"}),
        ("/v1/score", {"x": ["dog"], "method": "exact"}),
        ("/v1/score", wrong),
    ]
    with ThreadPoolExecutor(8) as pool:
        with held(live.service):
            ask(live, pool, ("/v1/sample", {"max_tokens": 1}))
            until(lambda: live.service.worker.computing == 1)
            answers = ask(live, pool, *requests)
            until(lambda: live.service.queue.depth == len(requests))
        found = [answer.result(PATIENCE) for answer in answers]
    assert [answer.status_code for answer in found[:4]] == [422, 200, 422, 200]
    assert found[4].status_code < 500
    assert found[1].json()["results"][0]["y"] == PAIRS[0][1]


@pytest.mark.parametrize("place", ["answer", "check_lengths"])
def test_an_internal_error_is_a_500_without_details_and_the_service_continues(
    place: str, kermit: Kermit, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(kermit) as live:
        with monkeypatch.context() as patch:
            patch.setattr(live.service.model, place, lambda asked: 1 / 0)
            response = live.post("/v1/sample", max_tokens=1)
        assert response.status_code == 500
        assert "ZeroDivisionError" not in response.text
        assert live.post("/v1/sample", max_tokens=1).status_code == 200


def test_a_score_is_answered_as_soon_as_it_is_ready(kermit: Kermit) -> None:
    with running(kermit) as live, ThreadPoolExecutor(3) as pool:
        with held(live.service):
            first = ask(live, pool, ("/v1/sample", {"max_tokens": 1}))
            until(lambda: live.service.worker.computing == 1)
            scores = [("/v1/score", {"x": ["A dog"], "orders": 1}), ("/v1/score", {"x": ["Two men"], "orders": 1})]
            both = []
            for score in scores:  # one after the other, so that they wait in this order
                both += ask(live, pool, score)
                until(lambda: live.service.queue.depth == len(both))  # noqa: B023
            real, gate = live.service.model.kermit.score, threading.Event()

            def second_waits(x: list[str], *arguments: Any, **settings: Any) -> Any:
                if x == ["Two men"]:
                    assert gate.wait(PATIENCE)
                return real(x, *arguments, **settings)

            live.service.model.kermit.score = second_waits  # type: ignore[method-assign]
        try:
            assert first[0].result(PATIENCE).status_code == 200
            assert both[0].result(PATIENCE).status_code == 200
            assert not both[1].done()
        finally:
            gate.set()
            del live.service.model.kermit.score
        assert both[1].result(PATIENCE).status_code == 200
