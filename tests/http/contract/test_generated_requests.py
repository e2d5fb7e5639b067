"""Requests generated from the document: no 5xx, and no answer outside the document."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.api.application import document_text
from tests.http.contract.generated_hooks import PARTITIONS, TOPIC, only_declared_headers
from tests.support.server import serving

SCHEMA = schemathesis.openapi.from_dict(json.loads(document_text()))

PROMISES = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    only_declared_headers,
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with the topic that the document's examples name."""
    directory: Path = tmp_path_factory.mktemp("generated")
    with serving(directory, max_wait_ms=50, max_tail_ms=50) as served:
        httpx.put(f"{served.url}/v1/topics/{TOPIC}", json={"partitions": PARTITIONS})
        yield served.url


def test_every_answer_in_a_chain_of_requests_is_in_the_document(url: str) -> None:
    """The same for chains in which each request uses the response of the previous one."""

    class Chain(SCHEMA.as_state_machine()):  # type: ignore[misc]  # built from the document
        def get_call_kwargs(self, _case: Case[Any]) -> dict[str, Any]:
            return {"base_url": url}

        def validate_response(self, response: Any, case: Case[Any], **_: Any) -> None:
            case.validate_response(response, checks=PROMISES)

    Chain.run(
        settings=settings(
            max_examples=8,
            stateful_step_count=6,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
    )


@SCHEMA.parametrize()
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_answer_is_in_the_document(case: Case[Any], url: str) -> None:
    """Whatever is sent, valid or not, the response is documented and never 5xx."""
    response = case.call(base_url=url, timeout=60)
    case.validate_response(response, checks=PROMISES)
