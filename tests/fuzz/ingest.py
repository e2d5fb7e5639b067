"""Hostile bytes for what ingest parses: parts of bodies, events, signatures, profiles, pointers.

Each parser is compared with a few lines that do the same slowly.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import re
from base64 import b64decode, b64encode
from typing import Any, Final

import pytest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # no stubs
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic import ValidationError

from app.codecs.json_parts import elements_of, json_lines, text_lines, without_bom
from app.codecs.json_pointer import Pointer
from app.errors import InvalidSignature, MalformedRequest
from app.operations.ingest import cloudevents, otlp
from app.operations.ingest.profiles import IngestProfile
from app.operations.ingest.signatures import Signature, signature_of
from engine.errors import InvalidRecord, InvalidRequestValue, TooLarge
from engine.types import Buffer
from schemas.ingest import PutIngestProfile, PutIngestSignature, Scheme
from schemas.produce import OtlpSignal
from tests.fuzz.targets import target
from tests.support.time import START_MS

NOTHING: Final = object()


def decoded(body: bytes) -> Any:
    """The value of a body in JSON, with numbers as they are written; NOTHING if it is not JSON."""
    try:
        value = json.loads(
            body.decode(), parse_int=number, parse_float=number, parse_constant=refuse
        )
        json.dumps(value, ensure_ascii=False).encode()  # half a character is not text
    except (ValueError, RecursionError):
        return NOTHING
    return value


def number(text: str) -> tuple[str, str]:
    return "number", text


def refuse(name: str) -> None:
    raise ValueError(name)


def head_of(lines: bytes) -> dict[bytes, bytes]:
    """Headers as the service has them: names in lower case, no line end in a value."""
    pairs = (line.partition(b":") for line in lines.replace(b"\r", b"").split(b"\n"))
    return {name.lower(): value.strip() for name, _, value in pairs if name}


# -- bodies in parts -----------------------------------------------------------------------------


@target
def split(data: bytes) -> None:
    """The parts of a body are all of it, in order, each as it was sent; or it is refused."""
    if not data:
        return
    max_records, body = 1 + data[0], data[1:]
    if body:
        text = bytes(without_bom(body))
        split_array(text, max_records)
        split_json_lines(text, max_records)
        split_text(body, max_records)


def split_array(body: bytes, max_records: int) -> None:
    expected = decoded(body)
    try:
        parts = elements_of(body, max_records=max_records)
    except (MalformedRequest, InvalidRecord):
        assert not isinstance(expected, list) or nests_deeply(body)
    except TooLarge:
        assert len(expected) > max_records
    else:
        assert [decoded(bytes(part)) for part in parts] == expected
        assert len(parts) <= max_records
        position = 0
        for part in parts:
            position = body.index(bytes(part), position) + len(part)


def nests_deeply(body: bytes) -> bool:
    return body.count(b"[") + body.count(b"{") > 100


def split_json_lines(body: bytes, max_records: int) -> None:
    lines = [line for line in body.split(b"\n") if line.strip()]
    values = [decoded(line) for line in lines]
    try:
        parts = json_lines(body, max_records=max_records)
    except MalformedRequest:
        assert NOTHING in values or nests_deeply(body)
    except TooLarge:
        assert body.count(b"\n") + 1 > max_records
    else:
        assert [decoded(bytes(part)) for part in parts] == values
        assert all(bytes(part) in line for part, line in zip(parts, lines, strict=True))


def split_text(body: bytes, max_records: int) -> None:
    lines = re.split(rb"\r?\n", body)
    expected = lines if lines[-1] else lines[:-1]
    try:
        assert [bytes(part) for part in text_lines(body, max_records=max_records)] == expected
    except TooLarge:
        assert len(expected) > max_records


# -- CloudEvents ---------------------------------------------------------------------------------


@target
def events(data: bytes) -> None:
    """An event, in a head or in JSON, has its attributes in text, or what is wrong is named."""
    with contextlib.suppress(MalformedRequest):
        attributes = cloudevents.attributes_of_head(head_of(data))
        ensure_complete(attributes)
    if decoded(data) is NOTHING:
        return
    with contextlib.suppress(InvalidRecord):
        for _time, key, value, headers in cloudevents.records_of([data], [], no_key, START_MS):
            assert value == data
            pairs = {name.removeprefix("ce_"): text or b"" for name, text in headers}
            ensure_complete(pairs)
            assert key == pairs.get("partitionkey")


def no_key(_event: Buffer) -> None:
    """Find no key of the profile in an event."""


def ensure_complete(attributes: dict[str, bytes]) -> None:
    for name in cloudevents.REQUIRED:
        assert attributes[name]
    for value in attributes.values():
        value.decode()


# -- OTLP ----------------------------------------------------------------------------------------

EXPORTS: Final[dict[OtlpSignal, tuple[type[Any], str]]] = {
    "logs": (ExportLogsServiceRequest, "resourceLogs"),
    "traces": (ExportTraceServiceRequest, "resourceSpans"),
    "metrics": (ExportMetricsServiceRequest, "resourceMetrics"),
}


@target
def exports(data: bytes) -> None:
    """What a decoder of OTLP reads is taken as it is; JSON that has nothing exported is not."""
    if not data:
        return
    signal, (message, member) = list(EXPORTS.items())[data[0] % len(EXPORTS)]
    body = data[1:]
    with contextlib.suppress(otlp._NothingExported):  # noqa: SLF001  # what the operation catches
        try:
            taken = otlp._request_in_protobuf(body, 1)  # noqa: SLF001  # the parser alone
            assert taken == (body,)
        except MalformedRequest as error:
            if not names_a_group(body, str(error)):
                with pytest.raises(DecodeError):
                    message.FromString(body)
    with contextlib.suppress(MalformedRequest, otlp._NothingExported):  # noqa: SLF001  # as above
        assert otlp._request_in_json(signal, body, 1) == (body,)  # noqa: SLF001  # as above
        assert decoded(body)[member]


def names_a_group(body: bytes, refusal: str) -> bool:
    """Whether the refused field is a group: decoders skip them, and no exporter sends any."""
    found = re.search(r"at byte ([0-9]+)", refusal)
    return found is not None and body[int(found[1])] & 7 in {3, 4}


# -- signatures ----------------------------------------------------------------------------------

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SCHEMES: Final[tuple[Scheme, ...]] = ("github", "stripe", "slack", "standard-webhooks", "hmac")
SIGNATURES: Final = tuple(
    signature_of(
        PutIngestSignature(
            scheme=scheme, secrets=[SECRET], header="x-signature" if scheme == "hmac" else None
        )
    )
    for scheme in SCHEMES
)


@target
def signatures(data: bytes) -> None:
    """Only a request with a right signature is accepted; `*` in its header stands for that."""
    if not data:
        return
    signature = SIGNATURES[data[0] % len(SIGNATURES)]
    lines, _, body = data[1:].partition(b"\0")
    head = head_of(lines)
    right = right_signature(signature.scheme, head, body)
    if signature.header in head:
        head[signature.header] = head[signature.header].replace(b"*", right)
    with contextlib.suppress(InvalidSignature):
        signature.check(head, START_MS)
    refusal = refusal_of(signature, head, body)
    assert right.decode() not in refusal
    assert SECRET not in refusal
    if not refusal:
        assert right in head[signature.header]
        ensure_timely(signature.scheme, head)


def refusal_of(signature: Signature, head: dict[bytes, bytes], body: bytes) -> str:
    try:
        signature.verify(head, body, START_MS)
    except InvalidSignature as error:
        return str(error)
    return ""


def right_signature(scheme: Scheme, head: dict[bytes, bytes], body: bytes) -> bytes:
    key, before = SECRET.encode(), b""
    if scheme == "slack":
        before = b"v0:%b:" % head.get(b"x-slack-request-timestamp", b"")
    elif scheme == "stripe":
        before = b"%b." % (stripe_times(head) or [b""])[0]
    elif scheme == "standard-webhooks":
        key = b64_key()
        before = b"%b.%b." % (head.get(b"webhook-id", b""), head.get(b"webhook-timestamp", b""))
    digest = hmac.new(key, before + body, hashlib.sha256).digest()
    return b64encode(digest) if scheme == "standard-webhooks" else digest.hex().encode()


def b64_key() -> bytes:
    return b64decode(SECRET.removeprefix("whsec_"))


def stripe_times(head: dict[bytes, bytes]) -> list[bytes]:
    return re.findall(rb"(?:^|,)t=([^,]*)", head.get(b"stripe-signature", b""))


def ensure_timely(scheme: Scheme, head: dict[bytes, bytes]) -> None:
    times: dict[Scheme, list[bytes]] = {
        "slack": [head.get(b"x-slack-request-timestamp", b"")],
        "stripe": stripe_times(head),
        "standard-webhooks": [head.get(b"webhook-timestamp", b"")],
    }
    for seconds in times.get(scheme, ()):
        assert abs(int(seconds) * 1000 - START_MS) <= 300_000


# -- profiles and pointers -----------------------------------------------------------------------


@target
def profiles(data: bytes) -> None:
    """A document is refused, or is a profile that survives being written and read again."""
    with contextlib.suppress(ValidationError):
        document = PutIngestProfile.model_validate_json(data)
        again = PutIngestProfile.model_validate_json(document.model_dump_json())
        assert again == document
        if document.signature is None or document.signature.secrets:  # else the stored ones
            IngestProfile.of(document)
        for source in (document.key, document.delivery_id):
            if source is not None and source.pointer is not None:
                with contextlib.suppress(InvalidRequestValue):
                    Pointer(source.pointer).find(b"{}")
        if document.signature is not None:
            without = document.signature.model_copy(update={"secrets": None})
            assert repr(without) == repr(document.signature)


@target
def pointers(data: bytes) -> None:
    """The first line is a pointer into the rest: it finds what a walk through the value finds."""
    text, _, body = data.partition(b"\n")
    try:
        pointer = Pointer(text.decode())
    except (InvalidRequestValue, UnicodeDecodeError):
        return
    found = pointer.find(body)
    value = decoded(body)
    if value is not NOTHING:
        expected = walk(value, pointer.text)
        assert (NOTHING if found is None else decoded(found)) == expected
        shown = pointer.find_text(body)
        if isinstance(expected, str):
            assert shown == expected.encode()
        elif expected is None or expected is NOTHING:
            assert shown is None
        else:
            assert shown == found


def walk(value: Any, text: str) -> Any:
    for part in text.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and re.fullmatch("0|[1-9][0-9]*", name):
            if int(name) >= len(value):
                return NOTHING
            value = value[int(name)]
        else:
            return NOTHING
    return value
