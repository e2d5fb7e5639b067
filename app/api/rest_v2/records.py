"""Bodies of a produce to the records of a log, and records of a log to what a read answers."""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Raw

from app.api.rest_v2.errors import MAX_FAULTS_TOLD
from app.api.rest_v2.media import Embedded
from app.client.partitioner import partition_of
from app.codecs.json_parts import ensure_record_count
from app.codecs.records_in import HeaderIn, RecordIn, new_records
from app.codecs.stored import StoredRecords, View
from app.errors import InvalidBody, MalformedRequest
from app.http.answers import Body
from app.http.body_faults import malformed_json
from app.operations.append.append_topic import Spread
from engine.config import LogConfig
from engine.errors import InvalidRecord
from engine.records.builder import NewRecord
from engine.types import INT32_MAX, INT64_MAX, Buffer

_ABSENT: Final = Raw()
_NULL: Final = Raw(b"null")


class _Header(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Strimzi's: the value in base64, whatever the records are embedded as."""

    key: str
    value: Raw = _NULL


class _Record(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: Raw = _ABSENT
    value: Raw = _NULL
    partition: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)] | None = None
    timestamp: Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)] | None = None
    headers: list[_Header] | None = None


class _Produce(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    records: list[_Record]
    key_schema: None = None
    key_schema_id: None = None
    value_schema: None = None
    value_schema_id: None = None


_BODY: Final = msgspec.json.Decoder(_Produce)
_VALUE: Final = msgspec.json.Decoder(Raw)


_WRONG_TYPES: Final = (
    (re.compile(r"Expected `object`, got `\w+`"), "Malformed request"),
    (
        re.compile(r"Expected `array`, got `(?!null)\w+` - at `\$\.records`"),
        "'records' must be an array",
    ),
    (
        re.compile(r"Expected `object`, got `\w+` - at `\$\.records\[\d+\]`"),
        "Produce record must be an object",
    ),
)
"""What msgspec says of another JSON type, and Karapace's 400 for it; anything else is 422."""


class Target(NamedTuple):
    """Where the records of a request go: to a topic of so many partitions, or to one of them."""

    config: LogConfig
    partitions: int
    partition: int | None
    """That of the path; None leaves it to the records, and to Kafka's partitioner."""
    sticky: int
    """Where records without a key go this time."""


def parse_produce(
    body: Body, embedded: Embedded, target: Target, *, now_ms: int, max_records: int
) -> Spread:
    """Return the records of a body, dealt out to partitions.

    Raises MalformedRequest, InvalidBody, InvalidRecord with the records that are not acceptable,
    TooLarge beyond `max_records`. That the partitions exist is for the caller to see.
    """
    records = _parse(body, max_records)
    if target.partition is not None and any(one.partition is not None for one in records):
        raise InvalidBody(
            "Invalid request format: the partition is in the path and cannot be in a record too"
        )
    natives = [_native(record, embedded) for record in records]
    try:
        made = new_records(natives, now_ms=now_ms, config=target.config)
    except InvalidRecord as error:
        raise _not_base64(error) or error from None
    chosen: list[int] = []
    parts: dict[int, list[NewRecord]] = defaultdict(list)
    for record, new in zip(records, made, strict=True):
        partition = target.partition if record.partition is None else record.partition
        if partition is None:
            key = new[1]
            partition = (
                target.sticky if key is None else partition_of(bytes(key), target.partitions)
            )
        chosen.append(partition)
        parts[partition].append(new)
    return Spread(chosen, parts)


def _parse(body: Body, max_records: int) -> Sequence[_Record]:
    try:
        str(body, "utf-8")  # raw values are passed on unread: this is the only look at their bytes
        ensure_record_count(body, max_records=max_records)
        records = _BODY.decode(body).records
    except msgspec.ValidationError as error:
        for shape, text in _WRONG_TYPES:
            if shape.fullmatch(str(error)):
                raise MalformedRequest(f"{text}: {error}") from None
        raise InvalidBody(f"Invalid request format: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed_json(body, error) from None
    except RecursionError:
        raise MalformedRequest("the body is nested too deeply") from None
    if not records:
        raise InvalidBody("Invalid request format: records may not be empty")
    return records


def _not_base64(error: InvalidRecord) -> MalformedRequest | None:
    """Return Karapace's 400 if the first records that are wrong are not base64, else None."""
    faults = [one for one in error.errors if one["code"] in {"not_base64", "not_a_string"}]
    if not faults:
        return None
    return MalformedRequest(
        "; ".join(
            f"records[{fault['index']}].{fault['field']} is not a base64 string"
            for fault in faults[:MAX_FAULTS_TOLD]
        )
    )


def _native(record: _Record, embedded: Embedded) -> RecordIn:
    """Return the same record as the native interface has it.

    A key of JSON is stored as its JSON, a string with its quotes, and without whitespace, as the
    proxies store it: by its bytes it finds its partition, and compaction its predecessor.
    """
    key = record.key
    if embedded is Embedded.JSON and bytes(key)[:1] in (b"{", b"["):
        key = Raw(msgspec.json.format(bytes(key), indent=-1))
    headers = [HeaderIn(header.key, header.value, "base64") for header in record.headers or ()]
    return RecordIn(record.value, key, record.timestamp, headers, embedded.value, embedded.value)


class _HeaderOut(msgspec.Struct, gc=False):
    key: str
    value: str | None


class _RecordOut(msgspec.Struct, gc=False, omit_defaults=True):
    """The members of a record, in the order in which they are written."""

    topic: str
    key: Raw
    value: Raw
    partition: int
    offset: int
    timestamp: int
    headers: list[_HeaderOut]
    key_encoding: str | None = None
    value_encoding: str | None = None


_ENCODER: Final = msgspec.json.Encoder()


class Shown(NamedTuple):
    """Records as JSON objects, and where to go on if not all of them were shown."""

    records: list[bytes]
    size_bytes: int
    next_offset: int | None


def show_records(data: Buffer, view: View, topic: str, partition: int, embedded: Embedded) -> Shown:
    """Return the records of whole batches that the view wants.

    If JSON is wanted, a key or value that is not JSON is a string, and `key_encoding` or
    `value_encoding` of its record says which. Raises as `StoredRecords`, and RecordTooLarge.
    """
    stored = StoredRecords(data, view)
    shown: list[bytes] = []
    size_bytes = len(b"[]")
    for _, records in stored:
        for index, record in enumerate(records):
            least_bytes = len(record.key or b"") + len(record.value or b"")
            # Twice: a record that is too large whatever it contains is not rendered to be measured.
            if not stored.has_room(record, least_bytes, size_bytes, len(records) - index):
                break
            key, key_encoding = _shown(record.key, embedded)
            value, value_encoding = _shown(record.value, embedded)
            line = _ENCODER.encode(
                _RecordOut(
                    topic,
                    key,
                    value,
                    partition,
                    record.offset,
                    record.timestamp,
                    [_HeaderOut(name, _base64(content)) for name, content in record.headers],
                    key_encoding,
                    value_encoding,
                )
            )
            if not stored.has_room(record, len(line) + 1, size_bytes, len(records) - index):
                break
            shown.append(line)
            size_bytes += len(line) + 1
    return Shown(shown, size_bytes, stored.stopped_at)


def _shown(content: bytes | None, embedded: Embedded) -> tuple[Raw, str | None]:
    """Return a key or value as JSON, and its encoding if it is not the one that was asked for."""
    if content is None:
        return _NULL, None
    if embedded is Embedded.BINARY:
        return _text(_base64(content)), None
    if not content:
        return _NULL, None
    try:
        text = content.decode()  # strings of JSON are passed on unread
    except UnicodeDecodeError:
        return _text(_base64(content)), "base64"
    try:
        _VALUE.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return _text(text), "utf8"
    return Raw(content), None


def _text(text: str | None) -> Raw:
    return Raw(_ENCODER.encode(text))


def _base64(content: bytes | None) -> str | None:
    return None if content is None else b2a_base64(content, newline=False).decode()
