"""The document is one that every generator of clients takes, and it explains every word of itself.

Each rule stands for a generator that refused the document, or made code that did not compile or
could not decode an answer; `tests/contract/test_generated_clients.py` runs the generators.
"""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from app.factory import document_text
from app.problems import INTERNAL, KINDS, ServiceError
from engine.errors import EngineError
from schemas.common import INT64_MAX
from schemas.problems import Code, Problem

ROOT = Path(__file__).parents[2]
DOCUMENT: dict[str, Any] = json.loads(document_text())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
NULL = {"type": "null"}

MARKS = {
    "Log-Start-Offset",
    "Log-High-Watermark",
    "Log-Last-Stable-Offset",
    "Log-End-Offset",
    "Log-Next-Offset",
    "Log-Leader-Epoch",
}
PROMISED = {
    # Sections 4 to 6 of the contract: what these operations answer with, whatever the status.
    "appendRecords": {*MARKS, "ETag", "Link", "Location", "traceparent"},
    "appendBatches": {*MARKS, "ETag", "Link", "Location", "traceparent"},
    "readRecords": {*MARKS, "ETag", "Link", "Cache-Control", "Log-Explain", "traceparent"},
    "readBatches": {*MARKS, "ETag", "Link", "Cache-Control", "Log-First-Offset", "Content-Range"},
    "tailRecords": {*MARKS, "Link", "traceparent"},
    "getOffsets": {*MARKS, "ETag", "traceparent"},
    "getOffsetAt": {*MARKS, "ETag", "traceparent"},
    "downloadSegment": {*MARKS, "ETag", "Cache-Control", "Accept-Ranges", "Content-Range"},
    "putTopic": {"Location"},
    "getGroupOffset": {"ETag"},
    "putGroupOffset": {"ETag"},
}
ROOTS: tuple[type[Exception], ...] = (EngineError, ServiceError)
NO_FACTS = {None, "errors", "has_begun", "has_written", "headers", "tag"}
"""What errors are constructed with besides facts; `tag` is shown as `etag`."""


def operations() -> Iterator[dict[str, Any]]:
    for path in DOCUMENT["paths"].values():
        yield from path.values()


def objects(place: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object of the document with its place, examples left out."""
    if isinstance(place, dict):
        yield where, place
        for name, inner in place.items():
            if name not in {"example", "examples"}:
                yield from objects(inner, f"{where}/{name}")
    elif isinstance(place, list):
        for index, inner in enumerate(place):
            yield from objects(inner, f"{where}/{index}")


def references(place: Any) -> set[str]:
    """The names of the schemas that a part of the document refers to."""
    found = (str(one.get("$ref", "")) for _, one in objects(place))
    return {one.rpartition("/")[2] for one in found if one.startswith("#/components/schemas/")}


def reachable(*places: Any) -> dict[str, Any]:
    """Each schema that parts of the document lead to, by its name."""
    found: dict[str, Any] = {}
    names = references(list(places))
    while names:
        found |= {name: SCHEMAS[name] for name in names}
        names = references(list(found.values())) - found.keys()
    return found


ANSWERS = reachable(
    [operation["responses"] for operation in operations()], DOCUMENT["components"]["responses"]
)
REQUESTS = reachable([operation.get("requestBody", {}) for operation in operations()])


def is_null_beside_a_reference(schema: Any) -> bool:
    """Whether null is the alternative to a reference, which has no type to add it to."""
    alternatives = schema.get("anyOf", ())
    return len(alternatives) == 2 and alternatives[0].keys() == {"$ref"} and alternatives[1] == NULL


def test_null_is_a_second_type_or_beside_a_reference() -> None:
    """`anyOf: [X, null]` and a bare null make types that nothing can be decoded into."""
    for where, schema in objects(SCHEMAS):
        if NULL in schema.get("anyOf", ()) or NULL in schema.get("oneOf", ()):
            assert is_null_beside_a_reference(schema), where
    bare = [where for where, schema in objects(DOCUMENT) if schema.get("type") == "null"]
    assert all(where.endswith("/anyOf/1") for where in bare), bare


def test_an_alternative_is_one_of_many() -> None:
    """Of `anyOf` openapi-generator makes an empty struct in Rust."""
    for where, schema in objects(DOCUMENT):
        assert "anyOf" not in schema or is_null_beside_a_reference(schema), where


def test_only_a_value_of_one_type_has_a_default() -> None:
    """Generators write a default as the first of the types it may have."""
    for where, schema in objects(DOCUMENT):
        if "default" in schema and not where.endswith("/properties"):
            assert isinstance(schema.get("type"), str), where


def test_bounds_of_integers_are_integers_with_a_format() -> None:
    """A bound of 2**63 - 1 written as a float is 2**63, which no 64-bit integer can hold."""
    for where, schema in objects(DOCUMENT):
        kinds = schema.get("type")
        if "integer" in ([kinds] if isinstance(kinds, str) else kinds or ()):
            assert schema.get("format") in {"int32", "int64"}, where
        for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if isinstance(schema.get(bound), int | float):
                assert type(schema[bound]) is int, where
                assert abs(schema[bound]) <= INT64_MAX, where


def test_no_keyword_is_used_that_generators_pass_over() -> None:
    """A constant is an enumeration of one, and a map has its schema in `additionalProperties`."""
    for where, schema in objects(DOCUMENT):
        assert schema.keys().isdisjoint({"const", "patternProperties", "prefixItems"}), where


def test_every_parameter_and_every_property_is_described() -> None:
    """In words, and a parameter that may be left out with its default."""
    for operation in operations():
        for parameter in operation.get("parameters", ()):
            place = (operation["operationId"], parameter["name"])
            assert parameter.get("description"), place
            assert (
                parameter["required"]
                or "Required" in parameter["description"]
                or ("Default" in parameter["description"])
            ), place
    for where, schema in objects(SCHEMAS):
        if where.endswith("/properties"):
            for name, described in schema.items():
                assert described.get("description"), (where, name)


def test_every_member_of_a_request_that_may_be_left_out_says_its_default() -> None:
    """In its description, because a union cannot say it in its schema."""
    for name, schema in REQUESTS.items():
        for member in schema.get("properties", {}).keys() - set(schema.get("required", ())):
            assert "Default" in schema["properties"][member]["description"], (name, member)


def test_links_have_parameters_only() -> None:
    """openapi-generator refuses a document whose links have an object as `requestBody`."""
    for where, one in objects([operation["responses"] for operation in operations()]):
        if "/links/" in where:
            assert "requestBody" not in one, where


def test_the_headers_of_the_contract_are_declared() -> None:
    """Each of sections 4 to 6, for each operation that answers with it, and on no 304 alone."""
    for operation in operations():
        declared = {
            name
            for status, response in operation["responses"].items()
            if status.startswith("2")
            for name in response.get("headers", ())
        }
        assert PROMISED.get(operation["operationId"], set()) <= declared, operation["operationId"]
        assert all(
            "traceparent" in response.get("headers", {"traceparent"})
            for response in operation["responses"].values()
        )
    responses = DOCUMENT["components"]["responses"]
    assert "WWW-Authenticate" in responses["Unauthorized"]["headers"]
    for name in ("TooManyRequests", "ServiceUnavailable"):
        assert "Retry-After" in responses[name]["headers"]
    for name, header in DOCUMENT["components"]["headers"].items():
        assert header["description"], name
        assert header["schema"]["type"], name


def test_an_answer_has_one_schema() -> None:
    """A union in an answer has a member that says which alternative it is."""
    for operation in operations():
        for status, response in operation["responses"].items():
            for media_type, content in response.get("content", {}).items():
                assert "anyOf" not in content["schema"], (operation["operationId"], status)
                assert "oneOf" not in content["schema"], (operation["operationId"], media_type)
    for name, schema in ANSWERS.items():
        for where, one in objects(schema, name):
            if where.endswith("/properties"):
                continue  # its keys are names of members
            assert "oneOf" not in one or "propertyName" in one.get("discriminator", {}), where
            kinds = one.get("type")
            assert isinstance(kinds, str | None) or len(set(kinds) - {"null"}) == 1, where


def test_answers_may_get_new_members_and_requests_may_not() -> None:
    """Generated clients decode what a later release adds; a misspelt member is refused."""
    for name, schema in SCHEMAS.items():
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is (name in ANSWERS), name


def classes_below(root: type[Exception]) -> Iterator[type[Exception]]:
    yield root
    for child in root.__subclasses__():
        yield from classes_below(child)


def test_every_code_and_every_fact_of_a_problem_is_in_the_document() -> None:
    """Typed members, so that a client need not guess; what is raised is what is declared."""
    assert set(get_args(Code)) == {kind.code for kind in (*KINDS.values(), INTERNAL)}
    errors = {one.__name__ for root in ROOTS for one in classes_below(root)}
    for package in ("app", "engine"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                    name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                    facts = {word.arg for word in node.keywords} if name in errors else set()
                    unknown = facts - NO_FACTS - Problem.model_fields.keys()
                    assert not unknown, f"{path}:{node.lineno} {unknown}"
