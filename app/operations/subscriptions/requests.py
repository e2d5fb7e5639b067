"""Requests of subscriptions: records in four formats, ids that repeat, Standard Webhooks."""

from __future__ import annotations

import base64
import contextlib
import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from engine.types import NO_TIMESTAMP, Buffer
from schemas.ingest import standard_webhooks_key
from schemas.subscriptions import PutSubscription

CONTENT_TYPES: Final[Mapping[str, str]] = {
    "ndjson": "application/x-ndjson",
    "json": "application/json",
    "cloudevents": "application/cloudevents-batch+json",
    "body": "application/octet-stream",
}
_MEDIA_TYPE: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[ -~]{1,200}")


class Batch(NamedTuple):
    """Records of one partition that are pushed together."""

    topic: str
    partition: int
    lines: Sequence[bytes]
    """Each record as reads show it; keys and values in base64 for the format `body`."""
    first_offset: int
    last_offset: int
    next_offset: int
    """Where to go on: behind records that are not wanted, too."""


class _Offset(msgspec.Struct):
    offset: int


_offset = msgspec.json.Decoder(_Offset)


def batch_of(topic: str, partition: int, text: bytes, next_offset: int) -> Batch:
    """Return a batch from records as lines; there is at least one."""
    lines = text.removesuffix(b"\n").split(b"\n")
    first, last = _offset.decode(lines[0]).offset, _offset.decode(lines[-1]).offset
    return Batch(topic, partition, lines, first, last, next_offset)


class Request(NamedTuple):
    """What is sent, the same at every repetition but for time and attempt."""

    headers: Mapping[str, str]
    body: Buffer


def request_of(
    name: str, options: PutSubscription, batch: Batch, *, now_ms: int, attempt: int
) -> Request:
    """Return the request that pushes a batch."""
    content_type = CONTENT_TYPES[options.format]
    more: dict[str, str] = {}
    match options.format:
        case "ndjson":
            body = b"\n".join(batch.lines) + b"\n"
        case "json":
            body = b'{"topic":"%b","partition":%d,"records":[%b]}' % (
                batch.topic.encode(),
                batch.partition,
                b",".join(batch.lines),
            )
        case "cloudevents":
            events = [_event(batch, msgspec.json.decode(line)) for line in batch.lines]
            body = msgspec.json.encode(events)
        case _:
            body, content_type, more = _value(msgspec.json.decode(batch.lines[0]))
    # The scheme forbids a full stop in an id; a topic may have one.
    place = f"{batch.topic.replace('.', '%2E')}/{batch.partition}"
    webhook_id = f"{place}/{batch.first_offset}-{batch.last_offset}"
    seconds = str(now_ms // 1000)
    headers = {
        **options.headers,
        "content-type": content_type,
        "user-agent": "tidelog",
        "webhook-id": webhook_id,
        "webhook-timestamp": seconds,
        "tidelog-subscription": name,
        "tidelog-topic": batch.topic,
        "tidelog-partition": str(batch.partition),
        "tidelog-first-offset": str(batch.first_offset),
        "tidelog-last-offset": str(batch.last_offset),
        "tidelog-attempt": str(attempt),
        **more,
    }
    if options.signature is not None:
        signed = f"{webhook_id}.{seconds}.".encode() + body
        headers["webhook-signature"] = " ".join(
            f"v1,{_signed(secret, signed)}" for secret in options.signature.secrets or ()
        )
    return Request(headers, body)


def _signed(secret: str, content: bytes) -> str:
    _, key = standard_webhooks_key(secret)
    return base64.b64encode(hmac.digest(key, content, "sha256")).decode()


def _event(batch: Batch, record: dict[str, Any]) -> dict[str, object]:
    """Return a record as a CloudEvent 1.0; its id is the same at every repetition."""
    event: dict[str, object] = {
        "specversion": "1.0",
        "id": f"{batch.topic}/{batch.partition}/{record['offset']}",
        "source": f"/v1/topics/{batch.topic}/partitions/{batch.partition}",
        "type": "tidelog.record",
    }
    if record["timestamp"] != NO_TIMESTAMP:
        with contextlib.suppress(OverflowError, ValueError, OSError):  # outside the calendar
            moment = datetime.fromtimestamp(record["timestamp"] / 1000, UTC)
            event["time"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if record["key_encoding"] == "utf8" and record["key"]:
        event["subject"] = record["key"]
    match record["value_encoding"]:
        case "json":
            event |= {"datacontenttype": "application/json", "data": record["value"]}
        case "utf8":
            event |= {"datacontenttype": "text/plain", "data": record["value"]}
        case _:
            event["data_base64"] = record["value"]
    return event


def _value(record: dict[str, Any]) -> tuple[bytes, str, dict[str, str]]:
    """Return a record's value as it is, its content type, and headers that tell the rest."""
    more: dict[str, str] = {}
    content_type = CONTENT_TYPES["body"]
    for header in record["headers"]:
        text = base64.b64decode(header["value"] or "").decode("latin-1")
        if header["key"].lower() == "content-type" and _MEDIA_TYPE.fullmatch(text):
            content_type = text
    if record["key"] is not None:
        more["tidelog-key"] = record["key"]  # in base64, as it is read for this format
    if record["value"] is None:
        return b"", content_type, more | {"tidelog-tombstone": "true"}
    return base64.b64decode(record["value"]), content_type, more
