"""Rounds as server-sent events: those of the trace, in order, and then the answer."""

import json
from collections.abc import Generator
from typing import Any

import pytest
from services import PAIRS, Live, running, slowed, until

from kermit import Kermit


def events(live: Live, path: str, **body: Any) -> Generator[tuple[str, dict[str, Any]], None, None]:
    with live.client.stream("POST", path, json=body | {"stream": True}) as response:
        assert response.status_code == 200
        assert response.headers["Content-Type"].startswith("text/event-stream")
        name = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/translate", {"texts": [pair[0] for pair in PAIRS], "to": "de"}),
        ("/v1/infill", {"x": ["A ____ sleeps.", "____"], "max_tokens": 9}),
        ("/v1/complete", {"x": ["dog ..."], "y": ["... Hund"], "max_tokens": 9}),
        ("/v1/sample", {"count": 2, "strategy": "serial", "max_tokens": 9}),
    ],
)
def test_the_events_are_the_trace_followed_by_the_answer(live: Live, path: str, body: dict[str, Any]) -> None:
    *told, (name, answer) = events(live, path, **body, trace=True)
    assert name == "result"
    assert answer == live.post(path, **body, trace=True).json()
    for index, result in enumerate(answer["results"]):
        mine = [(name, event) for name, event in told if event["index"] == index]
        trace = result["trace"]
        assert [name for name, _ in mine] == ["start"] + ["round"] * result["rounds"]
        assert mine[0][1] == {"index": index, "sentence": 0} | {
            key: trace[key] for key in ("start", "start_text", "open_slots")
        }
        assert [event["round"] for _, event in mine[1:]] == list(range(1, result["rounds"] + 1))
        assert [event["insertions"] for _, event in mine[1:]] == trace["rounds"]


def test_a_round_is_sent_before_the_next_is_computed(live: Live) -> None:
    seen = events(live, "/v1/sample", strategy="serial", termination_penalty=90.0, max_tokens=60)
    assert next(seen)[0] == "start"
    assert next(seen)[0] == "round"
    assert live.service.worker.computing == 1  # it continues in the meantime
    assert [name for name, _ in seen][-1] == "result"


def test_a_text_with_nothing_to_insert_has_no_rounds_but_an_answer(live: Live) -> None:
    ((name, answer),) = events(live, "/v1/infill", x=[" "])
    assert name == "result"
    assert answer["results"][0]["x"] == " "


def test_a_request_rejected_before_the_first_round_has_an_error_status(live: Live) -> None:
    response = live.post("/v1/translate", texts=["x" * 90], to="de", stream=True)
    assert (response.status_code, response.json()["limit"]) == (422, 64)
    assert live.post("/v1/translate", texts=["a"], to="fr", stream=True).status_code == 422


def test_a_deadline_that_passes_during_a_stream_is_an_error_event(kermit: Kermit) -> None:
    with running(kermit, deadline=2.0) as live, slowed(live.service):
        *told, (name, problem) = events(live, "/v1/sample", strategy="serial", termination_penalty=90.0)
    assert told[0][0] == "start"
    assert name == "error"
    assert problem["detail"].startswith("no answer within 2 seconds")


def test_a_disconnected_client_ends_the_decode(kermit: Kermit) -> None:
    with running(kermit) as live, slowed(live.service) as passes:
        told = events(live, "/v1/sample", strategy="serial", termination_penalty=90.0, max_tokens=60)
        assert [next(told)[0], next(told)[0]] == ["start", "round"]
        told.close()
        until(lambda: live.service.worker.computing == 0)
        assert len(passes) < 30  # of sixty
        assert live.metric("kermit_abandoned_total") == 1
