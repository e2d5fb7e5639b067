"""Checks the content of a client's batch, once, before it is appended.

A correct checksum proves that the bytes are those the client sent, not that they are valid. Any
Kafka reader can read a batch that passes this check. It runs outside every lock; nothing is kept or
re-encoded.

The proof is fast, the diagnosis slow. The proof decodes the records with the compiled codec and
adds up the size of their shortest encoding: if the sum equals the size of the payload, every number
is encoded as a writer would encode it. All other batches, valid or not, are decoded in plain
Python, which accepts what Kafka's reader accepts and names every fault.

Records of a fixed size are common, and a run of them is a table: every field has the same position
in each row. The framing bytes are equal in all rows, the offset deltas are known, and the
timestamps are compared as columns; all of that is slicing and comparing bytes. If the framing bytes
of a row equal those of a valid row, the row is valid, whatever its content. This proof may always
give up: the others follow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
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
from engine.records.varint import decode_varint, size_of_varint
from engine.types import INT64_MAX, NO_TIMESTAMP, Buffer

MIN_RUN: Final = 64
"""The minimum of records of one shape: for fewer, columns are not faster."""

_ONE_BYTE_DELTAS: Final = 1 << 6
_TWO_BYTE_DELTAS: Final = 1 << 13
_LOW_COLUMN: Final = bytes(2 * delta & 0x7F | 0x80 for delta in range(_TWO_BYTE_DELTAS))
_HIGH_COLUMN: Final = bytes(2 * delta >> 7 for delta in range(_TWO_BYTE_DELTAS))
_ONLY_COLUMN: Final = bytes(2 * delta for delta in range(_ONE_BYTE_DELTAS))
"""The offset deltas 0, 1, 2, … as varints: the columns of two bytes, and that of one."""

_PLAIN_MAX: Final = 0x7F  # of attributes; some readers misread larger values
_LAST: Final = bytes(range(0x80))  # last bytes of a varint; 0 only if alone
_NOT_LAST: Final = bytes(range(0x80, 0x100))
_ROW_BYTES: Final = 8  # 55 bits of milliseconds are a million years
_WORDS: Final = ((1, "B"), (2, "H"), (4, "I"), (_ROW_BYTES, "Q"))


class TimeDeltas(NamedTuple):
    """The smallest and largest timestamp delta of valid records, in ms."""

    least: int
    greatest: int


class _Run(NamedTuple):
    """Records of one shape, proved valid."""

    records_count: int
    size_bytes: int
    times: TimeDeltas


def prove_uniform(
    payload: Buffer, records_count: int, first_delta: int, *, requires_keys: bool
) -> TimeDeltas | None:
    """Return the times of the records if they are valid runs of one shape, else None.

    Valid records are in the shortest encoding, without headers, fill the payload, have offset
    deltas that count up from `first_delta`, timestamps not before the base, and keys if those are
    required.
    """
    if records_count < MIN_RUN:
        return None
    data = bytes(payload)
    runs: list[_Run] = []
    position, delta, end = 0, first_delta, first_delta + records_count
    while delta < end:
        run = _run_at(data, position, delta, end, requires_keys=requires_keys)
        if run is None:
            return None
        runs.append(run)
        position += run.size_bytes
        delta += run.records_count
    if position != len(data):
        return None
    return TimeDeltas(min(run.times.least for run in runs), max(run.times.greatest for run in runs))


def _run_at(
    data: bytes, position: int, delta: int, end: int, *, requires_keys: bool
) -> _Run | None:
    """Return the run that begins at `position` with the record of that offset delta, or None."""
    limit = min(end, _ONE_BYTE_DELTAS if delta < _ONE_BYTE_DELTAS else _TWO_BYTE_DELTAS)
    try:
        frame = _frame_at(data, position, 1 if delta < _ONE_BYTE_DELTAS else 2)
    except InvalidRecord:
        return None
    if frame is None or delta >= limit or (requires_keys and frame.is_keyless):
        return None
    size = frame.size_bytes
    table = _Table(data, position, size, min(limit - delta, (len(data) - position) // size))
    enough = min(limit - delta, MIN_RUN)
    for at in frame.fixed:
        if table.keep_equal(at) < enough:  # most other batches are rejected here
            return None
    times = frame.times
    for at in times:
        table.keep_within(at, _time_bytes(times, at))
    if table.count < enough or not _is_counting(table, times.stop, delta):
        return None
    deltas = _extremes([table.column(at) for at in times])
    return _Run(table.count, table.count * size, deltas)


def _is_counting(table: _Table, at: int, delta: int) -> bool:
    """Whether the offset deltas at this position of the rows count up from `delta`."""
    numbers = slice(delta, delta + table.count)
    if delta < _ONE_BYTE_DELTAS:
        return table.column(at) == _ONLY_COLUMN[numbers]
    is_low_right = table.column(at) == _LOW_COLUMN[numbers]
    return is_low_right and table.column(at + 1) == _HIGH_COLUMN[numbers]


def _time_bytes(times: range, at: int) -> bytes:
    """Return the allowed byte values at `at` of a non-negative time in columns `times`."""
    is_last = at == times[-1]
    allowed = _LAST[min(len(times) - 1, 1) :] if is_last else _NOT_LAST
    return allowed[::2] if at == times.start else allowed


class _Frame(NamedTuple):
    """The positions of the fields in a record, from its first byte."""

    size_bytes: int
    fixed: list[int]
    """The positions of the bytes that are equal in all records of this shape."""
    times: range
    is_keyless: bool


def _frame_at(data: bytes, position: int, offset_bytes: int) -> _Frame | None:
    """Return the frame of the record at `position`, whose offset delta has `offset_bytes`.

    None if it has headers or a number that is not in the shortest form. Time and offset are checked
    as columns. Raises InvalidRecord if the bytes end too early.
    """
    length, start = decode_varint(data, position)
    row = data[position : start + length]
    time_at = start - position + 1  # after the attributes
    time_end = time_at + 1 + _bytes_before_last(row, time_at)
    key_at = time_end + offset_bytes
    key_bytes, key_start = decode_varint(row, key_at)
    value_at = key_start + max(key_bytes, 0)
    value_bytes, value_start = decode_varint(row, value_at)
    headers_at = value_start + max(value_bytes, 0)
    if headers_at != len(row) - 1 or row[headers_at] or row[time_at - 1] > _PLAIN_MAX:
        return None
    is_shortest = (
        time_at - 1 == size_of_varint(length)
        and key_start - key_at == _bytes_of_length(key_bytes)
        and value_start - value_at == _bytes_of_length(value_bytes)
    )
    if not is_shortest or time_end - time_at > _ROW_BYTES:
        return None
    fixed = [*range(time_at), *range(key_at, key_start), *range(value_at, value_start), headers_at]
    return _Frame(len(row), fixed, range(time_at, time_end), key_bytes < 0)


def _bytes_before_last(row: bytes, at: int) -> int:
    """Return how many bytes from `at` on have the continuation bit."""
    head = row[at : at + _ROW_BYTES]
    return len(head) - len(head.lstrip(_NOT_LAST))


def _bytes_of_length(length: int) -> int:
    """Return how many bytes a length takes; -1 is the length of null."""
    return size_of_varint(length) if length >= -1 else 0


class _Table:
    """Rows of one size; the first `count` of them may still be of one shape."""

    def __init__(self, data: bytes, position: int, size: int, count: int) -> None:
        self._data = data
        self._position = position
        self.row_bytes = size
        self.count = count

    def column(self, at: int) -> bytes:
        """Return the bytes at this position of all rows."""
        begin = self._position + at
        return self._data[begin : self._position + self.count * self.row_bytes : self.row_bytes]

    def keep_equal(self, at: int) -> int:
        """Drop all rows from the first that differs from row 0 at `at`; return the count."""
        column = self.column(at)
        first = column[:1]
        if column != first * self.count:
            self.count -= len(column.lstrip(first))
        return self.count

    def keep_within(self, at: int, allowed: bytes) -> None:
        """Drop all rows from the first whose byte at `at` is not allowed."""
        column = self.column(at)
        if column.translate(None, allowed):
            self.count -= len(column.lstrip(allowed))


def _extremes(columns: Sequence[bytes]) -> TimeDeltas:
    """Return the smallest and largest of the non-negative numbers in columns of varints.

    Read as little-endian words they sort like the numbers, because numbers of one length have the
    same continuation bits.
    """
    count = len(columns[0])
    if all(column == column[:1] * count for column in columns):
        only = _number([column[0] for column in columns])
        return TimeDeltas(only, only)
    word_bytes, code = next(word for word in _WORDS if word[0] >= len(columns))
    rows = bytearray(count * word_bytes)
    for at, column in enumerate(columns):
        rows[at::word_bytes] = column
    # Times usually ascend: sorting is then one pass, and faster than `min` and `max`.
    ordered = sorted(struct.unpack(f"<{count}{code}", rows))
    least, greatest = (word.to_bytes(word_bytes, "little") for word in (ordered[0], ordered[-1]))
    return TimeDeltas(_number(least), _number(greatest))


def _number(groups: Sequence[int]) -> int:
    number = 0
    for group in reversed(groups):
        number = number << 7 | group & 0x7F
    return number >> 1


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
