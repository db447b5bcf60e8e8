"""Alternatives to an inserted word, and decoding again around the one that was picked."""

import math
from typing import Any

import pytest
from services import ENGLISH, GERMAN, Live

BODIES: dict[str, dict[str, Any]] = {
    "translate": {"texts": [ENGLISH[2]], "to": "de"},
    "infill": {"x": ["A man ____ a red ____."], "y": ["Ein Mann fährt ein ____ Rad."]},
    "complete": {"x": ["... girls ..."], "y": [""], "seed": 3},
    "sample": {"seed": 4, "max_tokens": 12},
}


def generated(live: Live, path: str, **body: Any) -> dict[str, Any]:
    response = live.post(f"/v1/{path}", **body, trace=True)
    assert response.status_code == 200, response.text
    (found,) = response.json()["results"]
    return dict(found)


def alternatives(live: Live, trace: dict[str, Any], number: int, slot: int, **body: Any) -> dict[str, Any]:
    """Alternatives for the slot of a round, counted from 0."""
    canvas = {"start": trace["start"], "open_slots": trace["open_slots"], "rounds": trace["rounds"][:number]}
    response = live.post("/v1/alternatives", **canvas, slot=slot, **body)
    assert response.status_code == 200, response.text
    return dict(response.json())


@pytest.mark.parametrize("path", ["translate", "infill"])
def test_the_best_alternative_is_what_was_inserted_with_the_same_probability(live: Live, path: str) -> None:
    trace = generated(live, path, **BODIES[path])["trace"]
    for number, insertions in enumerate(trace["rounds"]):
        for insertion in insertions:
            found = alternatives(live, trace, number, insertion["slot"], count=5)
            assert len(found["results"]) == 5
            best = found["results"][0]
            assert (best["token_id"], best["text"]) == (insertion["token_id"], insertion["text"])
            assert best["log_prob"] == pytest.approx(insertion["log_prob"], abs=1e-3)
            probabilities = [math.exp(one["log_prob"]) for one in found["results"]]
            assert probabilities == sorted(probabilities, reverse=True)
            assert sum(probabilities) + math.exp(found["end_log_prob"]) <= 1.001


@pytest.mark.parametrize("path", list(BODIES))
def test_a_decode_that_continues_after_some_rounds_ends_like_the_whole(live: Live, path: str) -> None:
    whole = generated(live, path, **BODIES[path])
    for count in range(len(whole["trace"]["rounds"])):
        again = generated(live, path, **BODIES[path], begun=[whole["trace"]["rounds"][:count]])
        assert again["log_prob"] == pytest.approx(whole["log_prob"], rel=1e-3)
        for name in ("x", "y", "rounds", "tokens", "finish"):
            assert again[name] == whole[name]


def test_a_picked_word_stays_and_the_rest_is_decoded_around_it(live: Live) -> None:
    trace = generated(live, "translate", **BODIES["translate"])["trace"]
    (first,) = trace["rounds"][0]
    other = alternatives(live, trace, 0, first["slot"])["results"][1]
    pick = {"slot": first["slot"], "token_id": other["token_id"], "log_prob": other["log_prob"]}
    again = generated(live, "translate", **BODIES["translate"], begun=[[[pick]]])
    assert other["text"].strip() in again["y"]
    assert again["trace"]["rounds"][0][0]["token_id"] == other["token_id"]
    assert again["y"] != GERMAN[2]
    assert again["x"] == ENGLISH[2]


def test_from_left_to_right_alternatives_are_those_of_the_end_of_the_span(ordered: Live) -> None:
    body = {"texts": ["A dog sleeps."], "to": "de", "strategy": "left_to_right", "max_tokens": 4}
    whole = generated(ordered, "translate", **body, termination_penalty=90)
    for number, insertions in enumerate(whole["trace"]["rounds"][:-1]):
        (insertion,) = insertions
        found = alternatives(ordered, whole["trace"], number, insertion["slot"], strategy="left_to_right")
        assert found["results"][0]["token_id"] == insertion["token_id"]
        begun = [whole["trace"]["rounds"][: number + 1]]
        again = generated(ordered, "translate", **body, termination_penalty=90, begun=begun)
        assert (again["y"], again["finish"]) == (whole["y"], whole["finish"])


def test_decided_rounds_are_streamed_too(live: Live) -> None:
    whole = generated(live, "translate", **BODIES["translate"])
    body = BODIES["translate"] | {"begun": [whole["trace"]["rounds"][:2]], "stream": True}
    text = live.post("/v1/translate", **body).text
    assert text.count("event: start") == 1
    assert text.count("event: round") == whole["rounds"]


@pytest.mark.parametrize(
    ("changed", "detail"),
    [
        ({"slot": 1}, "slot 1 is not open; the open slots are"),
        ({"slot": 900}, "slot 900 is not open"),
        ({"rounds": [[{"slot": 2, "token_id": 9}]]}, "slot 2 is closed"),
        ({"start": [[10**6], []]}, "token 1000000 is unknown; the vocabulary ends at"),
        ({"start": [[0], []]}, "special token"),
        ({"open_slots": [77]}, "slot 77 does not exist"),
        ({"strategy": "left_to_right"}, "needs a model trained with left_to_right"),
        ({"slots": 3}, "unknown field 'slots' (did you mean 'slot'?)"),
    ],
)
def test_impossible_requests_are_rejected_with_a_reason(live: Live, changed: dict[str, Any], detail: str) -> None:
    trace = generated(live, "translate", **BODIES["translate"])["trace"]
    body = {"start": trace["start"], "open_slots": trace["open_slots"], "rounds": [], "slot": trace["open_slots"][0]}
    response = live.post("/v1/alternatives", **body | changed)
    assert response.status_code == 422
    assert detail in response.json()["detail"]


def test_decided_rounds_that_do_not_fit_are_rejected(live: Live) -> None:
    for begun, detail in (
        ([[[{"slot": 1, "token_id": 9}]]], "slot 1 is closed"),
        ([[[{"slot": 12, "token_id": 10**6}]]], "token 1000000 is unknown"),
    ):
        response = live.post("/v1/translate", **BODIES["translate"], begun=begun)
        assert response.status_code == 422
        assert detail in response.json()["detail"]
