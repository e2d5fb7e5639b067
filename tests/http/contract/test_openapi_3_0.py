"""The document for generators that read no OpenAPI 3.1."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV30SpecValidator

from app.api.openapi.earlier import as_openapi_3_0
from tests.support.generators import DOCUMENT as COMMITTED
from tests.support.service import Api

DOCUMENT: dict[str, Any] = json.loads(COMMITTED.read_text(encoding="utf-8"))
EARLIER = as_openapi_3_0(DOCUMENT)


def test_it_is_valid() -> None:
    """As OpenAPI 3.0, whose schemas may have no members that it does not know."""
    assert [error.message for error in OpenAPIV30SpecValidator(EARLIER).iter_errors()] == []


@pytest.mark.anyio
async def test_it_is_served_beside_the_other(api: Api) -> None:
    """Made from the document that is served."""
    answer = await api.client.get("/openapi-3.0.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == EARLIER


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, set[str], set[str]]]:
    """What each operation is called, and asks for."""
    for path, methods in document["paths"].items():
        for one in methods.values():
            names = {parameter["name"] for parameter in one.get("parameters", ())}
            yield path, one["operationId"], names, set(one["responses"])


def test_it_has_every_operation_and_model() -> None:
    """With the same parameters and responses; only the scheme that 3.0 has not is left out."""
    assert list(operations(EARLIER)) == list(operations(DOCUMENT))
    schemas = [one["components"]["schemas"] for one in (EARLIER, DOCUMENT)]
    assert schemas[0].keys() == schemas[1].keys()
    for name, model in schemas[1].items():
        assert schemas[0][name].get("properties", {}).keys() == model.get("properties", {}).keys()
    assert {"bearer": []} in EARLIER["security"]
    assert "clientCertificate" not in json.dumps(EARLIER)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": ["integer", "null"]}, {"type": "integer", "nullable": True}),
        (
            {"anyOf": [{"$ref": "#/a"}, {"type": "null"}], "description": "d"},
            {"allOf": [{"$ref": "#/a"}], "nullable": True, "description": "d"},
        ),
        (
            {"anyOf": [{"$ref": "#/a"}, {"type": "string"}, {"type": "null"}]},
            {"anyOf": [{"$ref": "#/a"}, {"type": "string"}], "nullable": True},
        ),
        ({"$ref": "#/a", "description": "d"}, {"allOf": [{"$ref": "#/a"}], "description": "d"}),
        (
            {"required": ["a", "b"], "properties": {"a": {"type": ["string", "null"]}, "b": {}}},
            {
                "required": ["b"],
                "properties": {"a": {"type": "string", "nullable": True}, "b": {}},
            },
        ),
        ({"required": ["a"], "anyOf": []}, {"required": ["a"], "anyOf": []}),
        ({"type": "object", "additionalProperties": True}, {"type": "object"}),
        ({"additionalProperties": {"type": "null"}}, {"additionalProperties": {"type": "null"}}),
        ({"type": "string", "examples": ["a", "b"]}, {"type": "string", "example": "a"}),
        (
            {"type": "string", "contentMediaType": "a/b", "contentSchema": {"$ref": "#/a"}},
            {"type": "string"},
        ),
        (
            {"properties": {"type": {"type": ["string", "null"]}, "examples": {"type": "array"}}},
            {
                "properties": {
                    "type": {"type": "string", "nullable": True},
                    "examples": {"type": "array"},
                }
            },
        ),
        (
            {"example": {"type": ["a", "null"]}, "examples": {"e": {"value": {"type": ["a"]}}}},
            {"example": {"type": ["a", "null"]}, "examples": {"e": {"value": {"type": ["a"]}}}},
        ),
    ],
)
def test_what_a_schema_becomes(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    """Null, what stands beside a reference, examples; data stays as it is."""
    minimal = {
        **DOCUMENT,
        "paths": {},
        "components": {"schemas": {"One": schema}, "securitySchemes": {}},
    }
    assert as_openapi_3_0(minimal)["components"]["schemas"]["One"] == expected
