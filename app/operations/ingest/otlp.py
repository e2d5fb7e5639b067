"""OTLP over HTTP: logs, traces and metrics of OpenTelemetry, one record per export request.

The request is stored as it was sent, protobuf or JSON, with its signal in a header of the record:
one endpoint takes all three. Answers are OTLP's: an empty response message, or a
`google.rpc.Status`, in the encoding of the request, and exporters repeat a request only after the
statuses that OTLP calls retryable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, cast

import msgspec
from msgspec import Raw, Struct, defstruct

from app.codecs.json_parts import ensure_json
from app.codecs.receipts import to_json
from app.errors import MalformedRequest, UnsupportedMediaType
from app.http.answers import JSON, NO_STORE, Answer, Body
from app.http.problems import RETRY_AFTER, kind_of, problem_answer, problem_as, problem_members
from app.operations.exchange import Exchange
from app.operations.ingest.bodies import Plan
from app.operations.ingest.ingest import append_body
from app.operations.request_content import sent_type
from schemas.produce import OtlpSignal

PROTOBUF: Final = b"application/x-protobuf"
TYPES: Final = (PROTOBUF, JSON)

PATH: Final = re.compile("/v1/topics/[^/]+/ingest/otlp/v1/[^/]+")

MAX_CHECKED_FIELDS: Final = 1_000
"""Of a message in protobuf: an exporter sends one per resource. Further ones are not looked at."""

RETRYABLE: Final = frozenset({429, 502, 503, 504})
"""Exporters repeat a request after these statuses, and give it up after any other error."""

_CODES: Final[Mapping[int, int]] = {
    400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 413: 8, 415: 3, 421: 7, 422: 3,
    429: 8, 500: 13, 503: 14, 504: 4,
}  # fmt: skip
"""`google.rpc.Code` by status: INVALID_ARGUMENT, UNAUTHENTICATED, PERMISSION_DENIED, …"""

_UNKNOWN: Final = 2

_PARTS: Final[Mapping[str, str]] = {
    "logs": "resourceLogs",
    "traces": "resourceSpans",
    "metrics": "resourceMetrics",
}
"""The member of an export request that has what is exported; its field is 1 in protobuf."""

_EMPTY: Final[Mapping[bytes, bytes]] = {PROTOBUF: b"", JSON: b"{}"}
"""The response message of each signal: its only member tells of a partial success."""

_VARINT: Final = 0
_LENGTH_DELIMITED: Final = 2
_FIXED_BYTES: Final = {1: 8, 5: 4}
"""The wire types of protobuf."""


_ABSENT: Final = Raw()


class _Parts(Struct, array_like=True, gc=False):
    """What is exported; only whether there is anything."""

    first: Raw = _ABSENT


class _Export(Protocol):
    """An export request in JSON."""

    parts: _Parts | None


def _decoder_of(member: str) -> msgspec.json.Decoder[_Export]:
    """Return what finds one member of an export request."""
    kind = defstruct("Export", [("parts", _Parts | None, None)], rename={"parts": member}, gc=False)
    return cast("msgspec.json.Decoder[_Export]", msgspec.json.Decoder(kind))


_EXPORTS: Final = {signal: _decoder_of(member) for signal, member in _PARTS.items()}


class _NothingExported(Exception):
    """The request is valid and empty; OTLP calls it a success."""


async def ingest_otlp(exchange: Exchange, topic: str, signal: OtlpSignal) -> Answer:
    """Append one export request; raises as `ingest`."""
    media_type = sent_type(exchange.head)
    if media_type not in TYPES:
        names = [name.decode() for name in TYPES]
        raise UnsupportedMediaType(
            f"an OTLP exporter sends {' or '.join(names)}, not {media_type.decode('latin-1')!r}",
            accepted=names,
        )
    cut = _request_in_protobuf if media_type == PROTOBUF else partial(_request_in_json, signal)

    def shape(plan: Plan) -> Plan:
        headers = [*plan.headers, ("otlp-signal", signal.encode())]
        return plan._replace(cut=cut, headers=headers, is_event=False)

    with suppress(_NothingExported):
        await append_body(exchange, topic, shape, signal)
    return Answer(200, [(b"content-type", media_type), NO_STORE], _EMPTY[media_type])


def _request_in_json(signal: OtlpSignal, body: Body, _max_records: int) -> tuple[Body]:
    ensure_json(body)
    try:
        parts = _EXPORTS[signal].decode(body).parts
    except msgspec.ValidationError:
        raise MalformedRequest(
            f"an export of {signal} is a JSON object with {_PARTS[signal]}, an array"
        ) from None
    if parts is None or not parts.first:
        raise _NothingExported
    return (body,)


def _request_in_protobuf(body: Body, _max_records: int) -> tuple[Body]:
    """Check the framing of the first fields; what they say is the reader's to decode."""
    if not body:
        raise _NothingExported
    position = 0
    try:
        for _ in range(MAX_CHECKED_FIELDS):
            if position == len(body):
                break
            position = _end_of_field(body, position)
    except (IndexError, ValueError):
        raise MalformedRequest(
            f"the body is not an export request in protobuf: the field at byte {position} is cut "
            "short, or has no valid tag"
        ) from None
    return (body,)


def _end_of_field(body: Body, position: int) -> int:
    """Return where a field ends; raises IndexError or ValueError if there is none."""
    tag, position = _varint(body, position)
    kind = tag & 7
    if tag >> 3 == 0:
        raise ValueError("field 0")
    if kind == _VARINT:
        return _varint(body, position)[1]
    if kind == _LENGTH_DELIMITED:
        size_bytes, position = _varint(body, position)
    elif kind in _FIXED_BYTES:
        size_bytes = _FIXED_BYTES[kind]
    else:
        raise ValueError("groups are not used, and others do not exist")
    if position + size_bytes > len(body):
        raise IndexError(position)
    return position + size_bytes


def _varint(body: Body, position: int) -> tuple[int, int]:
    """Return an unsigned number and where it ends."""
    number = 0
    for shift in range(0, 70, 7):
        byte = body[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise ValueError("more than ten bytes")


def is_otlp(path: str) -> bool:
    """Whether errors at a path are messages for an exporter."""
    return PATH.fullmatch(path) is not None


def rpc_code(status: int) -> int:
    """Return the `google.rpc.Code` of an HTTP status."""
    return _CODES.get(status, _UNKNOWN)


def status_answer(
    error: Exception, *, path: str, trace: bytes | None, head: Mapping[bytes, bytes]
) -> Answer:
    """Return an error as a `google.rpc.Status`; what is logged is what any error logs."""
    problem = problem_answer(error, path=path, trace=trace)
    kind = kind_of(error)
    status = 503 if kind.retryable and kind.status not in RETRYABLE else kind.status
    code = rpc_code(status)
    message = str(problem_members(error)["detail"])
    media_type = PROTOBUF if sent_type(head) == PROTOBUF else JSON
    body = to_json({"code": code, "message": message})
    if media_type == PROTOBUF:
        text = message.encode()
        body = b"\x08%b\x12%b%b" % (_encoded(code), _encoded(len(text)), text)
    answer = problem_as(problem, status, media_type, body)
    if status != kind.status:
        answer.headers.append(RETRY_AFTER)
    return answer


def _encoded(number: int) -> bytes:
    """Return an unsigned number as a varint of protobuf."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
