"""What keeps generators of clients content: each rule reads a document and yields what offends it.

Each stands for a generator that refused the document, or made code that did not compile or could
not decode an answer; `tests/interop/test_generated_clients.py` runs the generators.
"""

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeAlias

from schemas.common import INT64_MAX

Json: TypeAlias = dict[str, Any]

NULL = {"type": "null"}
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
MARKS = {
    "Log-Start-Offset",
    "Log-High-Watermark",
    "Log-Last-Stable-Offset",
    "Log-End-Offset",
    "Log-Next-Offset",
    "Log-Leader-Epoch",
}
PROMISED = {
    # Sections 4 to 6 of the contract: the headers with which these operations succeed.
    "appendRecords": {*MARKS, "ETag", "Link", "Location"},
    "appendBatches": {*MARKS, "ETag", "Link", "Location"},
    "readRecords": {*MARKS, "ETag", "Link", "Cache-Control", "Log-Explain"},
    "readBatches": {*MARKS, "ETag", "Link", "Cache-Control", "Log-First-Offset", "Content-Range"},
    "tailRecords": {*MARKS, "Link"},
    "getOffsets": {*MARKS, "ETag"},
    "getOffsetAt": {*MARKS, "ETag"},
    "downloadSegment": {*MARKS, "ETag", "Cache-Control", "Accept-Ranges", "Content-Range"},
    "putTopic": {"Location"},
    "getGroupOffset": {"ETag"},
    "putGroupOffset": {"ETag"},
    "getIngestProfile": {"ETag"},
    "putIngestProfile": {"ETag"},
}


class Document:
    """An OpenAPI document, its parts by what they are for."""

    def __init__(self, content: Json) -> None:
        self.content = content
        self.schemas: Json = content["components"]["schemas"]
        self.operations: list[Json] = [
            operation for path in content["paths"].values() for operation in path.values()
        ]

    @cached_property
    def answers(self) -> Json:
        """The schemas of answers, by name."""
        responses = [operation["responses"] for operation in self.operations]
        return self._reachable(responses, self.content["components"]["responses"])

    @cached_property
    def requests(self) -> Json:
        """The schemas of request bodies, by name."""
        return self._reachable([one.get("requestBody", {}) for one in self.operations])

    def _reachable(self, *places: Any) -> Json:
        found: Json = {}
        names = references(list(places))
        while names:
            found |= {name: self.schemas[name] for name in names}
            names = references(list(found.values())) - found.keys()
        return found


Rule: TypeAlias = Callable[[Document], Iterator[str]]


def objects(place: Any, where: str = "") -> Iterator[tuple[str, Json]]:
    """Each object that says something, with its place; neither examples nor maps of members."""
    if isinstance(place, dict):
        if not where.endswith("/properties"):
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


def kinds_of(schema: Json) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else kinds


def null_is_beside_a_type_or_a_reference(document: Document) -> Iterator[str]:
    """Of other nulls, and of `anyOf` for alternatives, no type comes that decodes anything."""
    for where, schema in objects(document.content):
        alternatives = schema.get("anyOf")
        if alternatives is not None and (
            len(alternatives) != 2 or alternatives[0].keys() != {"$ref"} or alternatives[1] != NULL
        ):
            yield f"{where}: anyOf"
        if schema == NULL and not where.endswith("/anyOf/1"):
            yield f"{where}: null"


def only_one_type_has_a_default(document: Document) -> Iterator[str]:
    """Generators write a default as the first of the types that it may have."""
    for where, schema in objects(document.content):
        if "default" in schema and not isinstance(schema.get("type"), str):
            yield where


def bounds_are_integers_of_64_bits(document: Document) -> Iterator[str]:
    """As a float 2**63 - 1 is 2**63, which no 64-bit integer can hold."""
    for where, schema in objects(document.content):
        if "integer" in kinds_of(schema) and schema.get("format") not in {"int32", "int64"}:
            yield f"{where}: no format"
        for bound in BOUNDS:
            value = schema.get(bound, 0)
            if type(value) is not int or abs(value) > INT64_MAX:
                yield f"{where}: {bound} {value}"


def no_keyword_is_passed_over(document: Document) -> Iterator[str]:
    """A constant is an enumeration of one; a map has its schema in `additionalProperties`."""
    for where, schema in objects(document.content):
        for keyword in {"const", "patternProperties", "prefixItems"} & schema.keys():
            yield f"{where}: {keyword}"


def parameters_are_described(document: Document) -> Iterator[str]:
    """In words; and with the default, if there is one."""
    for operation in document.operations:
        for parameter in operation.get("parameters", ()):
            description = parameter.get("description", "")
            is_needed = parameter["required"] or "Required" in description
            if not description or not (is_needed or "Default" in description):
                yield f"{operation['operationId']} {parameter['name']}"


def members_are_described(document: Document) -> Iterator[str]:
    """In words; and in a request with the default, which a union cannot have in its schema."""
    for name, schema in document.schemas.items():
        for member, described in schema.get("properties", {}).items():
            description = described.get("description", "")
            is_optional = member not in schema.get("required", ())
            if not description or (
                name in document.requests and is_optional and "Default" not in description
            ):
                yield f"{name}.{member}"


def links_have_parameters_only(document: Document) -> Iterator[str]:
    """openapi-generator refuses a document whose links have an object as `requestBody`."""
    for where, one in objects(document.content):
        if "/links/" in where and "requestBody" in one:
            yield where


def headers_are_declared(document: Document) -> Iterator[str]:
    """Each that the contract promises, and `traceparent` on every answer."""
    for operation in document.operations:
        declared: set[str] = set()
        for status, response in operation["responses"].items():
            headers = response.get("headers", {})
            declared |= headers.keys() if status < "300" else set()
            if "$ref" not in response and "traceparent" not in headers:
                yield f"{operation['operationId']} {status}: traceparent"
        for name in PROMISED.get(operation["operationId"], set()) - declared:
            yield f"{operation['operationId']}: {name}"
    responses = document.content["components"]["responses"]
    for response, name in (
        ("Unauthorized", "WWW-Authenticate"),
        ("TooManyRequests", "Retry-After"),
        ("ServiceUnavailable", "Retry-After"),
    ):
        if name not in responses[response]["headers"]:
            yield f"{response}: {name}"


def answers_have_one_schema(document: Document) -> Iterator[str]:
    """Successes have the same; alternatives say which one they are; no member has two types."""
    for operation in document.operations:
        contents = [one.get("content") for one in operation["responses"].values()]
        firsts = [next(iter(content.values()))["schema"] for content in contents if content]
        if any(one != firsts[0] for one in firsts):
            yield f"{operation['operationId']}: {firsts}"
    contents = [operation["responses"] for operation in document.operations]
    for where, schema in objects([contents, document.answers]):
        if "oneOf" in schema and "propertyName" not in schema.get("discriminator", {}):
            yield f"{where}: oneOf"
        if where.startswith("/0/") and "discriminator" in schema:
            yield f"{where}: without a name"
        if len({*kinds_of(schema)} - {"null"}) > 1:
            yield f"{where}: {schema['type']}"


def answers_may_grow_and_requests_may_not(document: Document) -> Iterator[str]:
    """Clients decode what a later release adds; a misspelt member of a request is refused."""
    for name, schema in document.schemas.items():
        if schema.get("type") == "object":
            is_open = name in document.answers
            if schema.get("additionalProperties") is not is_open:
                yield name


def enumerations_keep_their_names_apart(document: Document) -> Iterator[str]:
    """Go has one namespace for the values of all enumerations that are types."""
    owners: dict[str, str] = {}
    for name, schema in document.schemas.items():
        for value in schema.get("x-enum-varnames", schema.get("enum", ())):
            owner = owners.setdefault(str(value).upper(), name)
            if owner != name:
                yield f"{owner} and {name}: {value}"


def parameters_keep_their_names_apart(document: Document) -> Iterator[str]:
    """Go has one structure for the parameters of an operation, wherever they are sent."""
    for operation in document.operations:
        seen: set[str] = set()
        for one in operation.get("parameters", ()):
            name = re.sub("[^a-z]", "", one.get("x-go-name", one["name"]).lower())
            if name in seen:
                yield f"{operation['operationId']}: {one['name']}"
            seen.add(name)


def json_in_responses_has_an_example(document: Document) -> Iterator[str]:
    """Section 7 of the contract: a reader of the document sees what each looks like."""
    components = document.content["components"]["responses"]
    named = [(name, one) for name, one in components.items()]
    for operation in document.operations:
        named += [
            (f"{operation['operationId']} {status}", one)
            for status, one in operation["responses"].items()
        ]
    for name, response in named:
        for media_type, content in response.get("content", {}).items():
            if "json" in media_type and not content.keys() & {"example", "examples"}:
                yield f"{name}: {media_type}"


RULES: tuple[Rule, ...] = (
    null_is_beside_a_type_or_a_reference,
    only_one_type_has_a_default,
    bounds_are_integers_of_64_bits,
    no_keyword_is_passed_over,
    parameters_are_described,
    members_are_described,
    links_have_parameters_only,
    headers_are_declared,
    answers_have_one_schema,
    answers_may_grow_and_requests_may_not,
    enumerations_keep_their_names_apart,
    parameters_keep_their_names_apart,
    json_in_responses_has_an_example,
)
