"""Every route answers like the pipeline, and invalid requests are rejected with a reason and the right status."""

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from services import ENGLISH, GERMAN, PAIRS, Live, running

from kermit import BalancedTreePrior, DecodingSettings, Factorization, Kermit, Sampling, Strategy
from kermit.decoding import Constraints
from kermit.serving.app import STATIC
from kermit.serving.settings import ServiceSettings


def results(live: Live, path: str, **body: Any) -> list[dict[str, Any]]:
    response = live.post(path, **body)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["results"]
    return found


# ------------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("given", "side", "to", "wanted"), [(ENGLISH, "y", "de", GERMAN), (GERMAN, "x", "en", ENGLISH)]
)
def test_translate_works_in_both_directions(
    live: Live, given: list[str], side: str, to: str, wanted: list[str]
) -> None:
    found = results(live, "/v1/translate", texts=given, to=to)
    assert [result[side] for result in found] == wanted
    assert all(result["finish"] == "finished" and result["trace"] is None for result in found)


def test_infill_fills_the_blanks_of_a_pair(live: Live) -> None:
    (found,) = results(live, "/v1/infill", x=["A man ____ a red ____."], y=["Ein Mann fährt ein ____ Rad."])
    assert (found["x"], found["y"]) == PAIRS[2]
    assert found["tokens"] == 3


def test_infill_passes_its_own_settings_on(live: Live, kermit: Kermit) -> None:
    (found,) = results(live, "/v1/infill", x=["A ____ sleeps."], min_tokens_per_blank=3, max_tokens_per_blank=3)
    how = DecodingSettings(max_tokens=64, constraints=Constraints(min_tokens_per_blank=3, max_tokens_per_blank=3))
    assert found["x"] == kermit.infill(["A ____ sleeps."], settings=how)[0].x
    assert found["tokens"] == 3


def test_complete_keeps_the_fragments(live: Live, kermit: Kermit) -> None:
    (found,) = results(live, "/v1/complete", x=["... girls ..."], y=["... Straße ..."], seed=3, top_k=5)
    how = DecodingSettings(sampling=Sampling(0.7, top_k=5), max_tokens=64)
    (expected,) = kermit.complete(["... girls ..."], ["... Straße ..."], settings=how, seeds=[3])
    assert (found["x"], found["y"]) == (expected.x, expected.y)
    assert "girls" in found["x"]
    assert "Straße" in found["y"]


@pytest.mark.parametrize("segment", ["both", "en", "y"])
def test_sample_draws_what_the_pipeline_draws(live: Live, kermit: Kermit, segment: str) -> None:
    found = results(live, "/v1/sample", count=3, segment=segment, seed=11, temperature=1.5)
    how = DecodingSettings(sampling=Sampling(1.5), max_tokens=64)
    expected = kermit.sample(3, segment=segment, seed=11, settings=how)
    assert [result["x"] for result in found] == [None if segment == "y" else one.x for one in expected]
    assert [result["y"] for result in found] == [None if segment == "en" else one.y for one in expected]


def test_decoding_settings_are_those_of_the_pipeline(live: Live, kermit: Kermit) -> None:
    body = {"strategy": "serial", "termination_penalty": 3.0, "temperature": 2.0, "top_p": 0.9, "max_tokens": 6}
    how = DecodingSettings(Strategy.SERIAL, Sampling(2.0, top_p=0.9), termination_penalty=3.0, max_tokens=6)
    (found,) = results(live, "/v1/translate", texts=[ENGLISH[0]], to="de", seed=5, **body)
    (expected,) = kermit.translate([ENGLISH[0]], "de", settings=how, seeds=[5])
    assert found["y"] == expected.y
    assert (found["rounds"], found["tokens"], found["finish"]) == (expected.rounds, expected.tokens, expected.finish)
    assert found["log_prob"] == pytest.approx(expected.log_prob, rel=1e-4)
    (short,) = results(live, "/v1/translate", texts=[ENGLISH[0]], to="de", max_rounds=1)
    assert (short["rounds"], short["finish"]) == (1, "max_rounds")


def test_the_best_of_several_candidates_is_the_pipelines(live: Live, kermit: Kermit) -> None:
    body = {"texts": [ENGLISH[1] + " " + ENGLISH[0]], "to": "de", "candidates": 6, "ranking": "likelihood", "seed": 4}
    (found,) = results(live, "/v1/translate", **body, temperature=4.0, split_sentences=False, trace=True)
    how = DecodingSettings(sampling=Sampling(4.0), candidates=6, ranking="likelihood")
    (expected,) = kermit.translate(body["texts"], "de", settings=how, seeds=[4], split_sentences=False)
    assert (found["y"], found["rounds"]) == (expected.y, expected.rounds)
    assert "".join(one["text"] for round_ in found["trace"]["rounds"] for one in round_)
    (alone,) = results(live, "/v1/translate", texts=body["texts"], to="de", temperature=4.0, seed=4)
    assert alone["y"] != found["y"]


def test_a_long_text_is_translated_sentence_by_sentence_and_keeps_its_layout(live: Live) -> None:
    text = f"{ENGLISH[0]} {ENGLISH[2]}\n\n{ENGLISH[1]}"
    whole, blank, single = results(live, "/v1/translate", texts=[text, " ", ENGLISH[3]], to="de", trace=True)
    assert whole["x"] == text
    assert whole["y"] == f"{GERMAN[0]} {GERMAN[2]}\n\n{GERMAN[1]}"
    assert whole["trace"] is None
    assert [part["x"] for part in whole["sentences"]] == [ENGLISH[0], ENGLISH[2], ENGLISH[1]]
    assert whole["tokens"] == sum(part["tokens"] for part in whole["sentences"])
    assert whole["rounds"] == max(part["rounds"] for part in whole["sentences"])
    assert (blank["y"], blank["sentences"]) == ("", None)
    assert (single["y"], single["sentences"]) == (GERMAN[3], None)
    assert single["trace"] is not None
    (unsplit,) = results(live, "/v1/translate", texts=[text], to="de", split_sentences=False)
    assert unsplit["sentences"] is None


def test_a_text_in_capitals_is_translated_to_capitals(live: Live) -> None:
    (found,) = results(live, "/v1/translate", texts=[f"{ENGLISH[0].upper()} {ENGLISH[2]}"], to="de")
    (alone,) = results(live, "/v1/translate", texts=[ENGLISH[0].capitalize()], to="de")
    assert found["y"] == f"{alone['y'].upper()} {GERMAN[2]}"
    assert found["x"] == f"{ENGLISH[0].upper()} {ENGLISH[2]}"


def test_a_sentence_that_is_too_long_is_named(live: Live) -> None:
    answer = live.post("/v1/translate", texts=["ok", f"{ENGLISH[0]} {'x' * 90}."], to="de")
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("texts.1, sentence 2: the text has 91 tokens, but may have at most 64")


def test_finish_shows_a_limit_reached_by_any_sentence(live: Live) -> None:
    (found,) = results(live, "/v1/translate", texts=[f"{ENGLISH[2]} {ENGLISH[0]}"], to="de", max_tokens=5)
    assert [part["finish"] for part in found["sentences"]] == ["max_tokens", "finished"]
    assert found["finish"] == "max_tokens"


def test_a_trace_contains_every_insertion(live: Live) -> None:
    (found,) = results(live, "/v1/translate", texts=[ENGLISH[2]], to="de", trace=True)
    trace = found["trace"]
    assert "".join(trace["start_text"][0]) == ENGLISH[2]
    assert (trace["names"], trace["open_slots"]) == (["en", "de"], [len(trace["start"][0]) + 2])
    assert len(trace["rounds"]) == found["rounds"]
    assert sum(map(len, trace["rounds"])) == found["tokens"]
    assert trace["rounds"][-1] == []
    total = sum(insertion["log_prob"] for insertions in trace["rounds"] for insertion in insertions)
    assert found["log_prob"] <= total <= 0


@pytest.mark.parametrize("method", ["exact", "importance", "bound", "paper_bound"])
def test_a_score_equals_the_pipelines_whatever_else_is_scored(live: Live, kermit: Kermit, method: str) -> None:
    x, y = ENGLISH[:2], GERMAN[:2]
    drawing = {} if method == "exact" else {"orders": 4, "seed": 2}
    found = results(live, "/v1/score", x=x, y=y, factorization="y_given_x", method=method, **drawing)
    for number in range(2):
        (expected,) = kermit.score(
            [x[number]], [y[number]], factorization=Factorization.Y_GIVEN_X, method=method, **drawing
        )
        assert found[number]["log_prob"] == pytest.approx(expected.log_prob, rel=1e-3)
        assert found[number]["method"] == method
        assert (found[number]["standard_error"] is None) == (method != "importance")


def test_a_score_accepts_the_temperature_of_the_tree_prior(live: Live, kermit: Kermit) -> None:
    text = " ".join(ENGLISH[:2])
    asked = {"x": [text], "prior": "balanced_tree", "orders": 4}
    found = [live.post("/v1/score", **asked, temperature=value).json()["results"][0] for value in (0.1, 1.0)]
    for score, temperature in zip(found, (0.1, 1.0), strict=True):
        [own] = kermit.score([text], prior=BalancedTreePrior(temperature), orders=4)
        assert score["log_prob"] == pytest.approx(own.log_prob, abs=1e-4)
    assert found[0] != found[1]


@pytest.mark.parametrize("drawn", [{"orders": 1, "prior": "balanced_tree"}, {"prior": "left_to_right"}], ids=str)
def test_a_score_from_one_order_has_a_null_error_in_valid_json(live: Live, drawn: dict[str, Any]) -> None:
    (found,) = results(live, "/v1/score", x=[ENGLISH[0]], **drawn)
    assert math.isfinite(found["log_prob"])
    assert found["standard_error"] is None


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_embed_returns_the_pipelines_vectors(live: Live, kermit: Kermit, pooling: str) -> None:
    response = live.post("/v1/embed", x=ENGLISH, y=GERMAN, pooling=pooling)
    vectors = np.array(response.json()["vectors"])
    np.testing.assert_allclose(vectors, kermit.embed(ENGLISH, GERMAN, pooling=pooling), atol=1e-4)


def test_models_describes_the_model_to_clients(live: Live) -> None:
    (card,) = live.client.get("/v1/models").json()["models"]
    assert card["name"] == "by-heart"
    assert card["languages"] == {"x": "en", "y": "de"}
    assert card["factorizations"] == ["joint", "x_given_y", "y_given_x"]
    assert card["strategies"] == ["parallel", "serial"]
    assert (card["orders"], card["cached_context"]) == (None, False)
    assert card["max_tokens"] == 64
    assert "/" not in json.dumps(card)  # no path of the server


def test_health_says_ok(live: Live) -> None:
    response = live.client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("translate", {"texts": ["a"]}, "to: Field required"),
        ("translate", {"texts": [], "to": "de"}, "texts: List should have at least 1 item"),
        ("translate", {"texts": "a", "to": "de"}, "texts: Input should be a valid list"),
        ("translate", {"texts": ["a"], "to": "fr"}, "unknown language 'fr'; the model's languages are en and de"),
        (
            "translate",
            {"texts": ["a"], "to": "de", "temprature": 1},
            "unknown field 'temprature' (did you mean 'temperature'?)",
        ),
        ("translate", {"texts": ["a"], "to": "de", "temperature": 0}, "temperature: Input should be greater than or"),
        ("translate", {"texts": ["a"], "to": "de", "strategy": "diagonal"}, "strategy: Input should be 'serial', '"),
        ("translate", {"texts": ["a"], "to": "de", "max_tokens": 65}, "max_tokens: must be at"),
        ("translate", {"texts": ["a"] * 33, "to": "de"}, "33 texts, but a request may have at most 32; split it"),
        (
            "translate",
            {"texts": ["ok", "x" * 90], "to": "de"},
            "texts.1: the text has 90 tokens, but may have at most 64",
        ),
        ("infill", {"x": ["a"], "y": ["x" * 90]}, "y.0: the text has 90 tokens, but may have at most 64"),
        ("infill", {"x": ["a", "b"], "y": ["c"]}, "2 texts in x but 1 in y"),
        ("infill", {"x": ["____"], "min_tokens_per_blank": 3, "max_tokens_per_blank": 2}, "no less than"),
        ("score", {"x": ["x" * 90]}, "x.0: the text has 90 tokens, but may have at most 64"),
        ("score", {"x": ["x" * 20], "method": "exact"}, "importance-weighted estimate"),
        (
            "score",
            {"x": ["a"], "method": "exact", "orders": 4, "prior": "uniform"},
            "orders, prior: only for random orders",
        ),
        ("score", {"x": ["a"], "temperature": 0.3}, "temperature only applies to prior balanced_tree"),
        ("embed", {"x": ["x" * 90]}, "x.0: the text has 90 tokens, but may have at most 64"),
        ("sample", {"segment": "fr"}, "unknown language 'fr'"),
        ("sample", {"count": 10**9}, "1000000000 texts, but a request may have at most 32"),
        ("sample", {"segments": "x"}, "unknown field 'segments' (did you mean 'segment'?)"),
        ("embed", {"x": ["a"], "qqq": 1}, "unknown field 'qqq'; known: x, y, side, pooling"),
        ("translate", {"texts": ["a"], "to": "de", "ranking": "again"}, "ranking needs several candidates"),
        ("translate", {"texts": ["a"], "to": "de", "candidates": 33}, "candidates: Input should be less than"),
        ("sample", {"count": 2, "begun": [[]]}, "begun has rounds for 1 texts, not 2"),
        ("sample", {"seed": -1}, "seed: Input should be greater than or equal to 0"),
        ("infill", {"x": ["A ____", "A man"]}, "text 1: no blank to fill; write a blank as four underscores, ____"),
        ("complete", {"x": ["A man"], "y": ["Hund"]}, "no open place; write ... where text may be inserted"),
        ("embed", {}, "no text given; give x, y or both"),
        ("embed", {"x": ["A"], "y": ["B"], "side": "de"}, "side can only be given with x alone"),
        ("score", {"x": ["A"], "side": "fr"}, "unknown language 'fr'"),
    ],
)
def test_invalid_requests_are_rejected_with_a_reason(live: Live, path: str, body: dict[str, Any], detail: str) -> None:
    response = live.post(f"/v1/{path}", **body)
    assert response.status_code == 422
    assert detail in response.json()["detail"]


def test_an_exceeded_limit_is_also_returned_as_a_number(live: Live) -> None:
    assert live.post("/v1/translate", texts=["x" * 90], to="de").json()["limit"] == 64
    assert live.post("/v1/sample", count=33).json()["limit"] == 32
    assert live.post("/v1/sample", seed=-1).json()["limit"] is None


def test_blanks_do_not_count_as_text(live: Live) -> None:
    assert live.post("/v1/infill", x=["a" + "_" * 200], max_tokens=2).status_code == 200


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 3000, b'{"texts": ["\\ud800"], "to": "de"}', b"", b"3"])
def test_a_body_that_is_not_a_request_is_rejected(live: Live, content: bytes) -> None:
    response = live.client.post("/v1/translate", content=content, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)
    assert response.json()["detail"]


def test_the_error_for_a_body_that_is_not_a_json_object_says_what_to_send(live: Live) -> None:
    def answer(content: bytes, kind: str = "application/json") -> tuple[int, str]:
        response = live.client.post("/v1/translate", content=content, headers={"Content-Type": kind})
        return response.status_code, response.json()["detail"]

    broken = answer(b'{"texts": ["a", ')
    assert broken[0] == 400
    assert broken[1].startswith("the body is not JSON: ")
    assert "at character 16" in broken[1]
    object_wanted = (422, "the body must be a JSON object, sent with Content-Type: application/json")
    assert answer(b"") == answer(b"3") == answer(b'{"texts": ["a"], "to": "de"}', "text/plain") == object_wanted


def test_too_large_a_body_is_rejected_with_or_without_content_length(live: Live) -> None:
    def endless() -> Iterator[bytes]:
        yield b'{"to": "de", "texts": ["'
        for _ in range(40):
            yield b"x" * 2**15

    for content in (b"x" * (2**20 + 1), endless()):
        response = live.client.post("/v1/translate", content=content, headers={"Content-Type": "application/json"})
        assert response.status_code == 413
        assert "more than 1048576 bytes" in response.json()["detail"]


def test_other_paths_and_methods_are_rejected(live: Live) -> None:
    for path in ("/v1/nothing", "/static/../app.py", "/static/%2e%2e/app.py", "/static/", "/redoc"):
        assert live.client.get(path).status_code == 404
    assert live.client.get("/v1/translate").status_code == 405


def test_with_a_token_only_requests_that_send_it_are_answered(kermit: Kermit) -> None:
    with running(kermit, token="open sesame") as live:
        assert live.post("/v1/sample", max_tokens=1).status_code == 200
        assert live.client.get("/metrics").status_code == 200
        for wrong in ("", "Bearer", "Bearer open", "Basic open sesame", "Bearer öpen"):
            for path in ("/v1/models", "/metrics"):
                response = live.client.get(path, headers={"Authorization": wrong.encode("latin-1")})
                assert response.status_code == 401
                assert response.headers["WWW-Authenticate"] == "Bearer"
                assert "Authorization: Bearer" in response.json()["detail"]
        refused = live.client.post("/v1/sample", json={}, headers={"Authorization": "Bearer wrong"})
        assert refused.status_code == 401
        for path in ("/healthz", "/", "/static/page.js", "/openapi.json"):
            assert live.client.get(path, headers={"Authorization": ""}).status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue": 0},
        {"max_batch": 0},
        {"deadline": 0},
        {"deadline": math.inf},
        {"max_wait_ms": -1},
        {"max_wait_ms": math.inf},
        {"token": " "},
        {"token": "ü"},
        {"cors": ("example.com",)},
        {"cors": ("https://*.example.com",)},
    ],
)
def test_impossible_settings_are_errors_that_name_them(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="origin" if "cors" in wrong else next(iter(wrong))):
        ServiceSettings(**wrong)


# ----------------------------------------------------------------------------------------------- headers, metrics, page


def test_responses_have_strict_security_headers(live: Live) -> None:
    for path in ("/", "/static/page.js", "/v1/models", "/nothing"):
        headers = live.client.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_the_page_has_no_inline_script_or_style_and_no_file_from_elsewhere(live: Live) -> None:
    page = live.client.get("/").text
    assert "<style" not in page
    assert " style=" not in page
    assert "onclick" not in page
    assert page.count("<script") == page.count('<script type="module" src="static/page.js"></script>') == 1
    for name in sorted(file.name for file in STATIC.iterdir() if file.suffix in (".js", ".css", ".svg")):
        page += live.client.get(f"/static/{name}").raise_for_status().text
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_head_is_answered_and_swagger_comes_from_this_origin(live: Live) -> None:
    for path in ("/", "/docs"):
        answer = live.client.head(path)
        assert answer.status_code == 200
        assert int(answer.headers["Content-Length"]) > 0
        assert answer.content == b""
    docs = live.client.get("/docs").text
    assert "://" not in docs
    for link in ("static/swagger/swagger-ui-bundle.js", "static/swagger/swagger-ui.css", "static/docs.js"):
        assert link in docs
        assert live.client.get(f"/{link}").status_code == 200


def test_other_origins_may_call_if_the_settings_allow_it(live: Live, kermit: Kermit) -> None:
    header = "Access-Control-Allow-Origin"
    asks = {"Origin": "https://example.com", "Access-Control-Request-Method": "POST"}
    assert header not in live.client.get("/v1/models", headers=asks).headers
    with running(kermit, cors=("https://example.com",)) as shared:
        assert shared.client.get("/v1/models", headers=asks).headers[header] == "https://example.com"
        assert shared.client.options("/v1/translate", headers=asks).status_code == 200
        others = asks | {"Origin": "https://elsewhere.com"}
        assert header not in shared.client.get("/v1/models", headers=others).headers


def test_metrics_count_requests_rounds_and_batches(kermit: Kermit) -> None:
    with running(kermit) as live:
        live.post("/v1/translate", texts=ENGLISH[:3], to="de")
        live.post("/v1/translate", texts=ENGLISH[:1], to="fr")
        live.client.get("/made-up")
        response = live.client.get("/metrics")
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert 'kermit_requests_total{route="/v1/translate",status="200"} 1.0' in response.text
        assert live.metric("kermit_requests_total", route="/v1/translate", status="422") == 1
        assert live.metric("kermit_request_seconds_count", route="/v1/translate") == 2
        assert live.metric("kermit_batch_size_sum") == 3  # an unknown language is never computed
        assert live.metric("kermit_rounds_count") == 3
        assert live.metric("kermit_rounds_sum") == 12
        assert live.metric("kermit_queue_depth") == 0
        assert "made-up" not in response.text  # clients cannot create new series


def test_texts_of_the_second_side_can_be_given_alone(live: Live) -> None:
    blanked = "____ schläft."
    expected = results(live, "/v1/infill", x=[""], y=[blanked])
    assert results(live, "/v1/infill", y=[blanked]) == expected
    assert results(live, "/v1/infill", x=[blanked], side="de") == expected
    scored = results(live, "/v1/score", x=["Hund"], side="de", orders=2)
    assert scored == results(live, "/v1/score", y=["Hund"], orders=2)
    vectors = [live.post("/v1/embed", **body).json() for body in ({"y": ["Hund"]}, {"x": ["Hund"], "side": "y"})]
    assert vectors[0] == vectors[1]
