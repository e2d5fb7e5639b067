"""Produce to a topic or partition, and read one partition: records in the proxies' JSON.

One offset or error a record is answered. A read is Redpanda's: from an offset on, without consumer
or state.
"""

from __future__ import annotations

import asyncio
import re
from binascii import b2a_base64
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Final, NamedTuple

import msgspec
from aiokafka.errors import MessageSizeTooLargeError
from msgspec import Raw

from app.api.rest_v2.media import (
    MAX_FAULTS_TOLD,
    Embedded,
    answer_of,
    embedded_in,
    ensure_takes_answer,
    message_of,
    record_error_code,
    wanted_records,
)
from app.client.partitioner import partition_of
from app.codecs.calls import AppendCall, OffsetSpec, ReadCall, ensure_no_conditions
from app.codecs.json_parts import ensure_record_count
from app.codecs.receipts import mark_headers
from app.codecs.records_in import HeaderIn, RecordIn, new_records
from app.codecs.stored import StoredRecords, View
from app.errors import InvalidBody, MalformedRequest, malformed_json
from app.http.answers import NO_STORE, Answer, Body
from app.operations.append.append_topic import Outcome, Spread, Written, append_parts
from app.operations.exchange import Exchange
from app.operations.read.read import fetch_or_wait
from app.store.port import Partition
from engine.config import LogConfig
from engine.errors import InvalidRecord, TooLarge, WouldBlock
from engine.log.results import Fetched
from engine.records.budget import DecodeBudget
from engine.records.builder import NewRecord
from engine.types import INT32_MAX, INT64_MAX, Buffer
from schemas.kafka_rest_v2 import KafkaRestReadParameters

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


KAFKA_TOO_LARGE: Final = MessageSizeTooLargeError.description
"""Kafka's own description of the error, which the proxies pass on."""


async def produce(
    exchange: Exchange, topic: str, partition: int | None, *, is_async: bool
) -> Answer:
    """Append the records of a body; answer when they are on disk, or at once if `is_async`.

    If nothing was written at all, what the first partition met is the error of the request. A
    topic that is not there is reported before a format that is not accepted, as Karapace does, and
    records that are too large for the topic are 422 with an entry each.
    """
    service = exchange.service
    ensure_takes_answer(exchange.head)
    partitions = service.topic(topic).partitions
    if partition is not None:
        service.partition(topic, partition)
    embedded = embedded_in(exchange.head)
    ensure_no_conditions(exchange.head)
    sticky = service.sticky_partition(topic, partitions)
    target = Target(service.any_partition(topic).config, partitions, partition, sticky)
    body = await exchange.body()

    def parse() -> Spread:
        return parse_produce(
            body,
            embedded,
            target,
            now_ms=service.clock.now_ms(),
            max_records=service.settings.max_records_per_request,
        )

    if len(body) <= service.settings.inline_append_bytes:
        spread = parse()
    else:
        spread = await exchange.write(parse)
    for number in spread.parts:
        service.partition(topic, number)  # all of them are there, or nothing is written
    call = AppendCall("0" if is_async else "all")
    try:
        outcomes = await append_parts(exchange, topic, call, spread)
    except TooLarge as error:
        refused = [_failure(error) for _ in spread.chosen]
        raise InvalidRecord(str(error), offsets=refused) from None
    if is_async:
        return Answer(204, [], b"")
    report = {
        "offsets": _offsets(spread, outcomes),
        "key_schema_id": None,
        "value_schema_id": None,
    }
    return answer_of(exchange.head, report)


def _offsets(spread: Spread, outcomes: Mapping[int, Outcome]) -> list[dict[str, object]]:
    """Return one entry a record in input order: where it is, or why it is not."""
    next_offsets = {
        partition: outcome.appended.base_offset
        for partition, outcome in outcomes.items()
        if isinstance(outcome, Written)
    }
    told = {
        partition: _failure(outcome)
        for partition, outcome in outcomes.items()
        if isinstance(outcome, Exception)
    }
    entries: list[dict[str, object]] = []
    for partition in spread.chosen:
        if partition in told:
            entries.append(told[partition])
            continue
        offset = next_offsets[partition]
        entries.append(
            {"partition": partition, "offset": offset, "error_code": None, "error": None}
        )
        next_offsets[partition] = offset + 1
    return entries


def _failure(error: Exception) -> dict[str, object]:
    return {
        "partition": None,
        "offset": None,
        "error_code": record_error_code(error),
        "error": KAFKA_TOO_LARGE if isinstance(error, TooLarge) else message_of(error),
    }


async def read_records(
    exchange: Exchange, partition: Partition, parameters: KafkaRestReadParameters
) -> Answer:
    """Return an array of records, empty if none comes within the time.

    It skips control batches and compaction gaps: a client that sees only record offsets cannot.
    """
    embedded = wanted_records(exchange.head)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + parameters.timeout / 1000
    start = parameters.offset
    while True:
        left_ms = max(0, round((deadline - loop.time()) * 1000))
        call = ReadCall(OffsetSpec(start), parameters.max_bytes, max_wait_ms=left_ms)
        _, fetched = await fetch_or_wait(exchange, partition, call)
        shown = await _show(exchange, partition, fetched, start, embedded)
        if shown.records or not fetched.data:
            break
        start = fetched.next_offset if shown.next_offset is None else shown.next_offset
    exchange.ticket.exchange_answer(shown.size_bytes)
    next_offset = fetched.next_offset if shown.next_offset is None else shown.next_offset
    headers = [
        (b"content-type", embedded.media_type),
        NO_STORE,
        *mark_headers(partition, fetched.watermarks, next_offset),
    ]
    return Answer(200, headers, b"[" + b",".join(shown.records) + b"]")


async def _show(
    exchange: Exchange, partition: Partition, fetched: Fetched, start: int, embedded: Embedded
) -> Shown:
    settings = exchange.service.settings

    def show(budget: DecodeBudget | None) -> Shown:
        view = View(
            start=start,
            max_records=settings.default_fetch_records,
            max_answer_bytes=settings.max_answer_bytes,
            max_record_bytes=settings.max_answer_bytes,
            limit_bytes=settings.max_decompressed_batch_bytes,
            budget=budget,
            nonblocking=budget is None,
            is_verified=fetched.is_verified,
        )
        with exchange.service.render_memory.hold((fetched.data,), is_inline=view.nonblocking):
            return show_records(fetched.data, view, partition.topic, partition.number, embedded)

    if len(fetched.data) <= settings.inline_read_bytes:
        with suppress(WouldBlock):
            return show(None)
    return await exchange.decode(exchange.read, lambda: show(exchange.budget))
