"""The left-to-right strategy and score over HTTP: equal to the pipeline's, and 422 if not supported."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from insertion_models import cached_model_of
from services import ENGLISH, GERMAN, Live, running

from kermit import DecodingSettings, Factorization, Kermit, Strategy
from kermit.decoding import DEFAULT_SAMPLING

ORDERED: dict[str, Any] = {"strategy": "left_to_right", "max_tokens": 5}
GENERATE: dict[str, dict[str, Any]] = {
    "translate": {"texts": ENGLISH[:2], "to": "de"},
    "infill": {"x": ["A ____ sleeps.", "____ dogs ____"]},
    "complete": {"x": ["dog ..."], "y": ["... Hund"], "seed": 3},
    "sample": {"count": 2, "seed": 3},
}


def results(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["results"]
    return found


@pytest.mark.parametrize("route", list(GENERATE))
def test_every_route_generates_the_same_as_the_pipeline(ordered: Live, ordered_kermit: Kermit, route: str) -> None:
    found = results(ordered.post(f"/v1/{route}", **GENERATE[route], **ORDERED, trace=True))
    best = DecodingSettings(Strategy.LEFT_TO_RIGHT, max_tokens=5)
    drawn = DecodingSettings(Strategy.LEFT_TO_RIGHT, DEFAULT_SAMPLING, max_tokens=5)
    body = GENERATE[route]
    match route:
        case "translate":
            expected = ordered_kermit.translate(body["texts"], "de", settings=best)
        case "infill":
            expected = ordered_kermit.infill(body["x"], settings=best)
        case "complete":
            expected = ordered_kermit.complete(body["x"], body["y"], settings=drawn, seeds=[3])
        case _:
            expected = ordered_kermit.sample(2, seed=3, settings=drawn)
    assert [(one["x"], one["y"]) for one in found] == [(one.x, one.y) for one in expected]
    assert [one["rounds"] for one in found] == [one.rounds for one in expected]
    for one in found:
        assert {len(insertions) for insertions in one["trace"]["rounds"]} <= {0, 1}


@pytest.mark.parametrize("way", [None, *Factorization])
def test_a_score_is_the_pipelines_without_an_error(
    ordered: Live, ordered_kermit: Kermit, way: Factorization | None
) -> None:
    body = {"x": ENGLISH, "y": GERMAN, "method": "left_to_right", "factorization": way and way.value}
    found = results(ordered.post("/v1/score", **body))
    expected = ordered_kermit.score(ENGLISH, GERMAN, factorization=way, method="left_to_right")
    assert [one["log_prob"] for one in found] == pytest.approx([one.log_prob for one in expected], abs=1e-3)
    assert {(one["method"], one["standard_error"]) for one in found} == {("left_to_right", None)}


@pytest.mark.parametrize("drawing", [{"orders": 4}, {"prior": "uniform"}, {"temperature": 1.0}, {"seed": 1}])
def test_fields_for_random_orders_are_rejected(ordered: Live, drawing: dict[str, Any]) -> None:
    response = ordered.post("/v1/score", x=["A"], method="left_to_right", **drawing)
    assert response.status_code == 422
    message = f"{next(iter(drawing))}: only for random orders, but method left_to_right scores one order; remove it"
    assert message in response.json()["detail"]


@pytest.mark.parametrize("route", list(GENERATE))
def test_a_model_that_was_not_trained_in_that_order_rejects_the_strategy(live: Live, route: str) -> None:
    response = live.post(f"/v1/{route}", **GENERATE[route], **ORDERED)
    assert response.status_code == 422
    assert response.json()["detail"].startswith(
        "left_to_right decoding needs a model trained with left_to_right among its orders"
    )
    told = live.post(f"/v1/{route}", **GENERATE[route], **ORDERED, stream=True).text
    assert "left_to_right decoding needs a model trained" in told


def test_a_model_that_was_not_trained_in_that_order_rejects_the_score(live: Live) -> None:
    response = live.post("/v1/score", x=["A"], method="left_to_right")
    assert response.status_code == 422
    assert "left_to_right needs a model with cached_context" in response.json()["detail"]


def test_models_lists_the_orders(ordered: Live) -> None:
    (card,) = ordered.client.get("/v1/models").json()["models"]
    assert card["strategies"] == ["parallel", "serial", "left_to_right"]
    assert card["orders"] == ["balanced_tree", "left_to_right"]
    assert card["cached_context"] is True


@pytest.fixture(scope="module")
def ordered_alone(ordered_kermit: Kermit) -> Iterator[Live]:
    """A service whose model was trained from left to right only."""
    tokenizer = ordered_kermit.tokenizer
    with running(Kermit(cached_model_of(tokenizer, orders=("left_to_right",)), tokenizer)) as service:
        yield service


def test_the_default_of_a_model_of_one_order_is_that_order(ordered_alone: Live) -> None:
    (card,) = ordered_alone.client.get("/v1/models").json()["models"]
    assert card["strategies"] == ["left_to_right"]
    by_default = results(ordered_alone.post("/v1/sample", max_tokens=5, seed=4))
    assert by_default == results(ordered_alone.post("/v1/sample", **ORDERED, seed=4))
    refused = ordered_alone.post("/v1/sample", strategy="parallel")
    assert refused.status_code == 422
    assert "use the strategy left_to_right" in refused.json()["detail"]
