"""What the proxies' clients send and take: media types, and errors as the proxies tell them.

An error is `{"error_code": 40401, "message": "…"}`. A code has the status in its first three
digits, or is the status itself. The numbers are those of Confluent's `Errors` and of Redpanda's
`reply_error_code`; where an operation of Karapace's has another one, the error brings it as the
fact `proxy_code`. A message begins with Karapace's text, which its clients compare, and goes on
with ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final

from app.codecs.receipts import to_json
from app.errors import ServiceError, UnsupportedMediaType
from app.http.answers import JSON, NO_STORE, Answer
from app.http.problems import kind_of, problem_answer, problem_as, problem_members
from app.operations.request_content import has_body, negotiate
from engine.errors import (
    EngineError,
    InvalidRecord,
    OffsetBelowLogStart,
    OffsetBeyondLogEnd,
    PartitionNotFound,
    TopicNotFound,
)

V2: Final = b"application/vnd.kafka.v2+json"
JSON_V2: Final = b"application/vnd.kafka.json.v2+json"
BINARY_V2: Final = b"application/vnd.kafka.binary.v2+json"

ANSWERS: Final = (
    V2,
    b"application/vnd.kafka+json",
    JSON,
    JSON_V2,
    BINARY_V2,
    b"application/vnd.kafka.v1+json",
    b"application/vnd.kafka.json+json",
    b"application/vnd.kafka.binary+json",
    b"application/vnd.kafka.json.v1+json",
    b"application/vnd.kafka.binary.v1+json",
)
_JSON_RECORDS: Final = (
    JSON_V2,
    b"application/vnd.kafka.json+json",
    b"application/vnd.kafka.json.v1+json",
)
_RECORDS: Final = (
    BINARY_V2,
    *_JSON_RECORDS,
    V2,
    b"application/vnd.kafka+json",
    JSON,
    b"application/vnd.kafka.binary+json",
    b"application/vnd.kafka.v1+json",
    b"application/vnd.kafka.binary.v1+json",
)

_ANY_FAMILY: Final = re.compile(rb"(^|,)(\s*)\*/(?=[^*\s])")
"""`*/json`, which RFC 9110 does not define and Karapace's clients send."""

_CONTENT: Final = re.compile(
    rb"application/(?:vnd\.kafka(?:\.(json|binary))?(?:\.v[12])?\+json|json|octet-stream)"
)


class Embedded(Enum):
    """How keys and values are written into JSON; the value is the native name of it."""

    BINARY = "base64"
    JSON = "json"

    @property
    def media_type(self) -> bytes:
        return JSON_V2 if self is Embedded.JSON else BINARY_V2


def embedded_in(head: Mapping[bytes, bytes]) -> Embedded:
    """Return how the records of a body are embedded: binary, where nothing says JSON.

    Raises UnsupportedMediaType, for a body without a type and for formats that need a schema too.
    """
    default = b"" if has_body(head) else V2
    media_type = head.get(b"content-type", default).partition(b";")[0].strip().lower()
    match = _CONTENT.fullmatch(media_type)
    if match is None:
        accepted = [JSON_V2.decode(), BINARY_V2.decode()]
        given = f"{media_type.decode('latin-1')!r} is not accepted"
        raise UnsupportedMediaType(
            f"{given if media_type else 'the body has no type'}; "
            f"send Content-Type: {' or '.join(accepted)}",
            headers={"accept-post": ", ".join(accepted)},
        )
    return Embedded.JSON if match[1] == b"json" else Embedded.BINARY


def ensure_takes_answer(head: Mapping[bytes, bytes]) -> bytes:
    """Return the media type of an answer without records; raises NotAcceptable."""
    return negotiate(_accept_of(head), ANSWERS)


def answer_of(head: Mapping[bytes, bytes], value: object) -> Answer:
    """Return a value as JSON of the type the client likes best; raises NotAcceptable."""
    return Answer(200, [(b"content-type", ensure_takes_answer(head)), NO_STORE], to_json(value))


def wanted_records(head: Mapping[bytes, bytes]) -> Embedded:
    """Return how records are to be embedded: binary, where nothing says JSON; NotAcceptable."""
    chosen = negotiate(_accept_of(head), _RECORDS)
    return Embedded.JSON if chosen in _JSON_RECORDS else Embedded.BINARY


def _accept_of(head: Mapping[bytes, bytes]) -> bytes | None:
    header = head.get(b"accept")
    return None if header is None else _ANY_FAMILY.sub(rb"\1\2application/", header)


PATHS: Final = ("/topics", "/consumers", "/brokers")
"""What lies at or below these is answered as the proxies would."""

NOT_FOUND: Final = 404
PARTITION_NOT_FOUND: Final = 40402
UNKNOWN_TOPIC_OR_PARTITION: Final = 40403
"""Karapace's code for a topic that cannot be described, where Confluent has 40401."""

KAFKA_ERROR: Final = 50002
RETRIABLE_KAFKA_ERROR: Final = 50003

_CODES: Final[Mapping[type[Exception], int]] = {
    TopicNotFound: 40401,
    PartitionNotFound: PARTITION_NOT_FOUND,
    OffsetBelowLogStart: 40002,
    OffsetBeyondLogEnd: 40002,
}
_CODES_BY_STATUS: Final[Mapping[int, int]] = {401: 40101, 403: 40301}

_TEXTS: Final[Mapping[type[Exception], str]] = {
    TopicNotFound: "Topic {topic} not found",
    PartitionNotFound: "Partition {partition} not found",
}
_TEXTS_BY_STATUS: Final[Mapping[int, str]] = {
    401: "Unauthorized",
    403: "Forbidden",
    406: "HTTP 406 Not Acceptable",
    413: "HTTP Request Entity Too Large",
    415: "HTTP 415 Unsupported Media Type",
    500: "Internal server error",
    503: "Service unavailable",
}

MAX_FAULTS_TOLD: Final = 3


def is_for_proxies(path: str) -> bool:
    """Whether a path is one of the proxies', whatever becomes of the request."""
    return path.startswith(PATHS) and any(
        path == root or path.startswith(root + "/") for root in PATHS
    )


def error_answer(error: Exception, *, path: str, trace: bytes | None = None) -> Answer:
    """Return an error as the proxies tell it; what is logged is what any error logs."""
    problem = problem_answer(error, path=path, trace=trace)
    code = error_code(error)
    status = code // 100 if code >= 40000 else code
    body: dict[str, object] = {"error_code": code, "message": message_of(error)}
    offsets = _facts(error).get("offsets")
    if offsets is not None:
        body["offsets"] = offsets
    return problem_as(problem, status, V2, to_json(body))


def error_code(error: Exception) -> int:
    """Return the number of an error; an unexpected one is 500."""
    known = _facts(error).get("proxy_code") or _CODES.get(type(error))
    status = kind_of(error).status
    return known if isinstance(known, int) else _CODES_BY_STATUS.get(status, status)


def record_error_code(error: Exception) -> int:
    """Return the number with which the answer to a produce tells what became of one record."""
    return RETRIABLE_KAFKA_ERROR if kind_of(error).retryable else KAFKA_ERROR


def message_of(error: Exception) -> str:
    """Return Karapace's text, then ours, with the first records that are not acceptable."""
    message = str(problem_members(error)["detail"])
    text = _TEXTS.get(type(error)) or _TEXTS_BY_STATUS.get(kind_of(error).status)
    if text is not None:
        message = f"{text.format_map(_facts(error))}: {message}"
    if isinstance(error, InvalidRecord) and error.errors:
        faults = [
            f"records[{fault['index']}].{fault['field']}: {fault['detail']}"
            for fault in error.errors[:MAX_FAULTS_TOLD]
            if fault.get("index") is not None
        ]
        return "; ".join([message, *faults])
    return message


def _facts(error: Exception) -> Mapping[str, object]:
    return error.facts() if isinstance(error, EngineError | ServiceError) else {}
