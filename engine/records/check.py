"""Checks the content of a client's batch, once, before it is appended.

A correct checksum proves that the bytes are those the client sent, not that they are valid. Any
Kafka reader can read a batch that passes this check. It runs outside every lock; nothing is kept or
re-encoded.

The proof is fast, the diagnosis slow. The proof decodes the records with the compiled codec and
adds up the size of their shortest encoding: if the sum equals the size of the payload, every number
is encoded as a writer would encode it. All other batches, valid or not, are decoded in plain
Python, which accepts what Kafka's reader accepts and names every fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn

from engine.errors import ErrorCode, InvalidRecord, InvalidTimestamp
from engine.records.batch import BatchView
from engine.records.budget import CHECK_EVERY, DecodeBudget
from engine.records.compiled import DECODING_ERRORS, iterate, sizes_from
from engine.records.compression import DEFAULT_DECOMPRESSED_LIMIT_BYTES
from engine.records.header import BatchHeader, TimestampType
from engine.records.parts import PART_BYTES, Part, split
from engine.records.record import (
    Record,
    absolute_timestamp,
    decode_record,
    peek_headers_count,
)
from engine.records.uniform import prove_uniform
from engine.records.varint import decode_varint
from engine.types import INT64_MAX, NO_TIMESTAMP

MAX_REPORTED_ERRORS: Final = 100
"""How many faulty records of one batch an error lists."""

MAX_HEADERS: Final = 512 * 1024
"""How many headers one record may have: each takes at least 2 bytes, and some 80 in memory."""

assert PART_BYTES >= 2 * MAX_HEADERS, "a part with several records cannot exceed the limit"


class TimestampBounds(NamedTuple):
    """The times in ms that a topic accepts from a client, both ends included."""

    earliest: int
    latest: int

    @classmethod
    def around(cls, now_ms: int, *, before_max_ms: int, after_max_ms: int) -> TimestampBounds:
        """Return the bounds that `message.timestamp.before.max.ms` and `.after.max.ms` set."""
        return cls(now_ms - before_max_ms, now_ms + after_max_ms)


@dataclass(frozen=True, slots=True)
class _Fault:
    """One fault of one record."""

    index: int
    field: str
    code: ErrorCode
    detail: str

    def as_error(self) -> dict[str, object]:
        code = self.code.name.lower()
        return {"index": self.index, "field": self.field, "code": code, "detail": self.detail}


_UNBOUNDED: Final = TimestampBounds(-INT64_MAX - 1, INT64_MAX)


class _Rules(NamedTuple):
    """The topic's requirements for a record."""

    requires_keys: bool
    bounds: TimestampBounds | None

    def faults_of(
        self, index: int, record: Record, timestamp_type: TimestampType
    ) -> Iterator[_Fault]:
        """Yield the faults of a record whose offset is still a delta."""
        if record.offset != index:
            detail = f"offset delta {record.offset} instead of {index}"
            yield _Fault(index, "offset", ErrorCode.INVALID_RECORD, detail)
        if self.requires_keys and record.key is None:
            detail = "a compacted topic needs keys"
            yield _Fault(index, "key", ErrorCode.INVALID_RECORD, detail)
        if self.bounds is not None and record.timestamp != NO_TIMESTAMP:
            if not self.bounds.earliest <= record.timestamp <= self.bounds.latest:
                detail = (
                    f"timestamp {record.timestamp} is not within "
                    f"{self.bounds.earliest} to {self.bounds.latest}"
                )
                yield _Fault(index, "timestamp", ErrorCode.INVALID_TIMESTAMP, detail)
        elif timestamp_type is TimestampType.LOG_APPEND_TIME:
            detail = "only the log sets log-append time"
            yield _Fault(index, "timestamp", ErrorCode.INVALID_TIMESTAMP, detail)


@dataclass(frozen=True, slots=True)
class CheckedRecords:
    """The result for a valid batch; its record offsets are 0 to `count` - 1."""

    count: int
    max_timestamp: int
    """The largest record timestamp in ms, independent of the header; -1 if no record has one."""


def check_records(
    batch: BatchView,
    *,
    requires_keys: bool,
    timestamp_bounds: TimestampBounds | None,
    limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES,
    budget: DecodeBudget | None = None,
) -> CheckedRecords:
    """Check a client's batch and raise if it is invalid; the batch is not changed.

    `timestamp_bounds` is None for a topic with log-append time, where record times do not matter.
    As in Kafka's `LogValidator`, a record without a timestamp is within any bounds. A batch that
    claims log-append time is refused if it has such a record, or if the topic has log-append time.

    Raises `InvalidTimestamp` if a timestamp is out of bounds, otherwise `InvalidRecord`, both with
    the records concerned in `errors`; `CorruptBatch`, `UnsupportedCompression` and `TooLarge` as
    `BatchView.uncompressed`; `DecodeBudgetSpent`. The checksum is not verified.
    """
    header = batch.header
    if header.records_count <= 0 or header.last_offset_delta + 1 != header.records_count:
        raise InvalidRecord(
            f"the header claims {header.records_count} records "
            f"for {header.last_offset_delta + 1} offsets"
        )
    rules = _Rules(requires_keys, timestamp_bounds)
    payload = batch.uncompressed(limit_bytes=limit_bytes, budget=budget)
    parts = _split(payload, header.records_count)
    max_timestamp = _prove(batch, parts, rules, budget) if parts else None
    if max_timestamp is None:
        max_timestamp = _diagnose(header, payload, rules, budget)
    return CheckedRecords(header.records_count, max_timestamp)


def _split(payload: memoryview, records_count: int) -> list[Part]:
    """Return the records in parts that cannot hold too many headers; an empty list on failure.

    The compiled codec creates the headers before it checks a record's length. A part with several
    records is too short for many headers; a larger record that claims too many is refused.
    """
    if len(payload) <= PART_BYTES:
        return [Part(payload, records_count)]
    try:
        parts = list(split(payload, records_count))
        claims = [_claimed_headers(part) for part in parts]
    except InvalidRecord:
        return []
    index = 0
    for part, headers_count in zip(parts, claims, strict=True):
        if headers_count > MAX_HEADERS:
            detail = f"{headers_count} headers exceed the limit of {MAX_HEADERS}"
            _refuse([_Fault(index, "headers", ErrorCode.INVALID_RECORD, detail)])
        index += part.records_count
    return parts if all(part.is_bounded for part in parts) else []


def _claimed_headers(part: Part) -> int:
    """Return how many headers a large single record claims; 0 for other parts."""
    if len(part.payload) <= PART_BYTES or not part.is_bounded:
        return 0
    _, start = decode_varint(part.payload, 0)
    return peek_headers_count(part.payload, start)


def _prove(
    batch: BatchView, parts: list[Part], rules: _Rules, budget: DecodeBudget | None
) -> int | None:
    """Return the largest timestamp if all records are proved valid, else None."""
    header = batch.header
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME or header.base_timestamp < 0:
        return None
    max_timestamp = NO_TIMESTAMP
    first_delta = 0
    for part in parts:
        if budget is not None:
            budget.check()
        try:
            latest = _prove_part(batch, part, first_delta, rules)
        except DECODING_ERRORS:
            return None
        if latest is None:
            return None
        max_timestamp = max(max_timestamp, latest)
        first_delta += part.records_count
    return max_timestamp


def _prove_part(batch: BatchView, part: Part, first_delta: int, rules: _Rules) -> int | None:
    """Return the largest timestamp of a part's records, or None if one cannot be proved.

    Unless they are uniform, records are proved one at a time, while their fields are in the
    processor's cache: collecting the fields of all records first is slower, even without a Python
    loop.
    """
    header = batch.header
    requires_keys = rules.requires_keys
    earliest, latest = rules.bounds or _UNBOUNDED
    uniform = prove_uniform(
        part.payload, part.records_count, first_delta, requires_keys=requires_keys
    )
    if uniform is not None:
        base = header.base_timestamp
        is_within = earliest <= base + uniform.least and base + uniform.greatest <= latest
        return base + uniform.greatest if is_within else None
    size_of = sizes_from(header.base_timestamp)
    max_timestamp = NO_TIMESTAMP
    written_bytes = 0
    delta = first_delta
    offset = header.base_offset + first_delta
    for record in iterate(batch.buffer, part.payload, part.records_count):
        timestamp = record.timestamp
        key = record.key
        if record.offset != offset or (key is None and requires_keys):
            return None
        if not earliest <= timestamp <= latest:
            return None
        if timestamp > max_timestamp:  # noqa: PLR1730  # max() costs a call per record
            max_timestamp = timestamp
        written_bytes += size_of(delta, timestamp, key, record.value, record.headers)
        delta += 1
        offset += 1
    is_proved = written_bytes == len(part.payload) and delta - first_delta == part.records_count
    return max_timestamp if is_proved else None


def _diagnose(
    header: BatchHeader, payload: memoryview, rules: _Rules, budget: DecodeBudget | None
) -> int:
    """Return the largest timestamp if every record is valid, else raise with the faulty ones."""
    faults: list[_Fault] = []
    max_timestamp = NO_TIMESTAMP
    position = 0
    for index in range(header.records_count):
        if budget is not None and not index % CHECK_EVERY:
            budget.check()
        try:
            delta, position = decode_record(payload, position)
        except InvalidRecord as error:
            faults.append(_Fault(index, "record", ErrorCode.INVALID_RECORD, str(error)))
            break  # the start of the next record is unknown
        record = delta._replace(timestamp=absolute_timestamp(header, delta.timestamp))
        faults += rules.faults_of(index, record, header.timestamp_type)
        max_timestamp = max(max_timestamp, record.timestamp)
        if len(faults) >= MAX_REPORTED_ERRORS:
            break
    else:
        if position != len(payload):
            detail = f"{len(payload) - position} bytes follow the last record"
            faults.append(
                _Fault(header.records_count - 1, "record", ErrorCode.INVALID_RECORD, detail)
            )
    if faults:
        _refuse(faults)
    return max_timestamp


def _refuse(faults: list[_Fault]) -> NoReturn:
    """Raise for the faults; InvalidTimestamp if a timestamp is among them, as in Kafka."""
    errors = [fault.as_error() for fault in faults[:MAX_REPORTED_ERRORS]]
    message = f"record {faults[0].index}: {faults[0].detail}"
    if any(fault.code is ErrorCode.INVALID_TIMESTAMP for fault in faults):
        raise InvalidTimestamp(message, errors)
    raise InvalidRecord(message, errors)
