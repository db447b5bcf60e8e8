"""The service answers everything that the OpenAPI schema allows, and much that it does not, without an internal error.

KERMIT_FUZZ=560 sends 560 valid and 560 invalid requests to each of the nine routes that take a body: 10,000 in all.
"""

import os
from collections.abc import Iterator

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from services import PATIENCE, running

from kermit import Kermit

EXAMPLES = int(os.environ.get("KERMIT_FUZZ", "10"))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


ROUTES = {
    ("get", "/healthz"),
    ("get", "/metrics"),
    ("get", "/v1/models"),
    ("get", "/languages"),
    ("post", "/translate"),
    ("post", "/detect"),
    *(
        ("post", f"/v1/{name}")
        for name in ("translate", "infill", "complete", "sample", "score", "embed", "alternatives")
    ),
}


@pytest.fixture(scope="module")
def api(kermit: Kermit) -> Iterator[schemathesis.BaseSchema]:
    with running(kermit, max_tokens=6, max_batch=4) as live:
        yield schemathesis.openapi.from_url(f"{live.url}/openapi.json")


def test_every_route_is_tested(api: schemathesis.BaseSchema) -> None:
    found = [result.ok() for result in api.get_all_operations()]
    assert {(operation.method, operation.path) for operation in found} == ROUTES


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
@pytest.mark.parametrize(("method", "path"), sorted(route for route in ROUTES if route[0] == "post"))
def test_no_request_breaks_the_service(
    api: schemathesis.BaseSchema, method: str, path: str, mode: schemathesis.GenerationMode
) -> None:
    @hypothesis.settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(case=api[path][method].as_strategy(generation_mode=mode))
    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS, timeout=PATIENCE)

    check()


@pytest.mark.parametrize(("method", "path"), sorted(route for route in ROUTES if route[0] == "get"))
def test_routes_without_a_body_answer_according_to_the_schema(
    api: schemathesis.BaseSchema, method: str, path: str
) -> None:
    api[path][method].Case().call_and_validate(checks=CHECKS, timeout=PATIENCE)
