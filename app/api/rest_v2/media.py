"""The media types of the proxies: what is embedded in JSON, and which of them a client takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final

from app.codecs.receipts import to_json
from app.errors import UnsupportedMediaType
from app.http.answers import JSON, NO_STORE, Answer
from app.operations.request_content import has_body, negotiate

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
