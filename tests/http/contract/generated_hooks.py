"""What generated requests need besides the document; loaded by the long run's own process, too."""

import zlib
from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, HookContext, Response, SerializationContext

TOPIC = "flights"
PARTITIONS = 2
OF_HTTP = {
    "connection",
    "content-length",
    "content-type",
    "cross-origin-resource-policy",
    "date",
    "referrer-policy",
    "server",
    "keep-alive",
    "transfer-encoding",
    "x-content-type-options",
}


@schemathesis.serializer(
    "application/x-ndjson", "application/vnd.kafka.recordbatch.v2", "application/x-protobuf"
)
def as_bytes(_context: SerializationContext, value: object) -> bytes:
    """Bodies that are not one JSON document go out as they were generated."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


@schemathesis.hook
def before_call(_context: HookContext, case: Case[Any], _kwargs: dict[str, Any]) -> None:
    """Let every other request use an existing log, because a random name only gets 404.

    The random name decides which ones, so that a failure can be repeated.
    """
    if (case.query or {}).get("offsets") == "string":
        # The answer is another media type by a parameter, which schemathesis does not look at;
        # test_openapi.py looks at its schema.
        case.query = {**case.query, "offsets": "number"}
    if isinstance(case.body, dict) and case.body.get("offsets") == "string":
        case.body = {**case.body, "offsets": "number"}
    path = case.path_parameters
    if isinstance(path.get("topic"), str) and _is_chosen(path["topic"]):
        path["topic"] = TOPIC
        if "partition" in path:
            path["partition"] = zlib.crc32(str(path["partition"]).encode(errors="replace"))
            path["partition"] %= PARTITIONS


@schemathesis.check
def only_declared_headers(_context: CheckContext, response: Response, case: Case[Any]) -> None:
    """Every header of an answer is declared for it, or belongs to HTTP itself."""
    if response.status_code == 405:
        return  # another method is another operation, and not one of the document
    document = case.operation.schema.raw_schema
    declared = case.operation.definition.raw["responses"].get(str(response.status_code), {})
    if "$ref" in declared:
        declared = document["components"]["responses"][declared["$ref"].rpartition("/")[2]]
    known = {name.lower() for name in declared.get("headers", ())} | OF_HTTP
    assert response.headers.keys() <= known, response.headers.keys() - known


def _is_chosen(name: str) -> bool:
    return name != TOPIC and zlib.crc32(name.encode("utf-8", "replace")) % 2 == 0
