"""The proof for records of one shape: column by column, where the other proofs go record by record.

Records of fixed size are common, and many of them in a row are a table: every field is at the same
place of each. What frames them is the same in all rows, their offsets are known, and their times
are compared as a whole; all of that is slicing and comparing bytes. Fields whose bytes are equal to
those of a row that is right are right, whatever the content between them.

No verdict is always possible and never wrong: `check` has other proofs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from engine.errors import InvalidRecord
from engine.records.record import Record, decode_record
from engine.records.varint import decode_varint, size_of_varint, size_of_varlong
from engine.types import Buffer

MIN_RUN: Final = 64
"""Fewer records of one shape are not worth the columns."""

_ONE_BYTE_DELTAS: Final = 1 << 6
_TWO_BYTE_DELTAS: Final = 1 << 13
_LOW_COLUMN: Final = bytes(2 * delta & 0x7F | 0x80 for delta in range(_TWO_BYTE_DELTAS))
_HIGH_COLUMN: Final = bytes(2 * delta >> 7 for delta in range(_TWO_BYTE_DELTAS))
_ONLY_COLUMN: Final = bytes(2 * delta for delta in range(_ONE_BYTE_DELTAS))
"""The offset deltas 0, 1, 2, … as varints: the columns of two bytes, and that of one."""

_LAST: Final = bytes(range(0x80))  # of the bytes of a varint; 0 only if there is no other
_NOT_LAST: Final = bytes(range(0x80, 0x100))
_ROW_BYTES: Final = 8  # 55 bits of milliseconds are a million years


class TimeDeltas(NamedTuple):
    """The least and the greatest timestamp delta of records that are right, in ms."""

    least: int
    greatest: int


class _Run(NamedTuple):
    """Records of one shape, right beyond doubt."""

    records_count: int
    size_bytes: int
    times: TimeDeltas


def prove_uniform(
    payload: Buffer, records_count: int, first_delta: int, *, requires_keys: bool
) -> TimeDeltas | None:
    """Return the times of the records if they are runs of one shape and right, else None.

    Right means: in the shortest form, without headers, with offset deltas that count up from
    `first_delta` and times not before the base, filling the payload, with keys if those are
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
        length, start = decode_varint(data, position)
        size = start + length - position
        if length <= 0 or delta >= limit:
            return None
        table = _Table(data, position, size, min(limit - delta, (len(data) - position) // size))
        enough = min(limit - delta, MIN_RUN)
        if not table.keep_equal([0]) >= enough:  # most batches of other shapes end here
            return None
        record, _ = decode_record(data, position)
    except InvalidRecord:
        return None
    if record.timestamp < 0 or record.headers or (requires_keys and record.key is None):
        return None
    times = _keep_framed(table, record, start - position, size_of_varint(delta))
    if times is None or table.count < enough:
        return None
    at = times.stop
    if delta < _ONE_BYTE_DELTAS:
        is_counting = table.column(at) == _ONLY_COLUMN[delta : delta + table.count]
    else:
        is_counting = table.column(at) == _LOW_COLUMN[delta : delta + table.count] and (
            table.column(at + 1) == _HIGH_COLUMN[delta : delta + table.count]
        )
    if not is_counting:
        return None
    deltas = _extremes([table.column(at) for at in times])
    return _Run(table.count, table.count * size, deltas)


class _Table:
    """Rows of one size; `count` of them are still thought to be of one shape."""

    def __init__(self, data: bytes, position: int, size: int, count: int) -> None:
        self._data = data
        self._position = position
        self.row_bytes = size
        self.count = count

    def column(self, at: int) -> bytes:
        """Return the bytes at this place of the rows."""
        begin = self._position + at
        return self._data[begin : self._position + self.count * self.row_bytes : self.row_bytes]

    def keep_equal(self, places: Iterable[int]) -> int:
        """Drop the rows from the first on that differs from row 0 there; return the count."""
        for at in places:
            column = self.column(at)
            self.count -= len(column.lstrip(column[:1]))
        return self.count

    def keep_within(self, at: int, allowed: bytes) -> None:
        """Drop the rows from the first on whose byte is none of these."""
        self.count -= len(self.column(at).lstrip(allowed))


def _keep_framed(
    table: _Table, record: Record, length_bytes: int, offset_bytes: int
) -> range | None:
    """Keep the rows framed as the first, whose record is given; return the places of the times.

    None if a number in the first row is longer than it need be: the shortest forms would not fill
    it. What stands at the place of the offset is not looked at.
    """
    time_at = length_bytes + 1  # behind the attributes
    time_bytes = size_of_varlong(record.timestamp)
    key_at = time_at + time_bytes + offset_bytes
    value_at = key_at + _nullable_bytes(record.key)
    headers_at = value_at + _nullable_bytes(record.value)
    size = headers_at + 1
    if size != table.row_bytes or time_bytes > _ROW_BYTES:
        return None
    if length_bytes != size_of_varint(size - length_bytes):
        return None
    key_length = range(key_at, value_at - len(record.key or b""))
    value_length = range(value_at, headers_at - len(record.value or b""))
    table.keep_equal([*range(1, time_at), *key_length, *value_length, headers_at])
    for at in range(time_at, time_at + time_bytes):
        is_last = at == time_at + time_bytes - 1
        allowed = _LAST[min(time_bytes - 1, 1) :] if is_last else _NOT_LAST
        table.keep_within(at, allowed[::2] if at == time_at else allowed)
    return range(time_at, time_at + time_bytes)


def _nullable_bytes(content: bytes | None) -> int:
    """Return how many bytes a field takes with its length in front."""
    return 1 if content is None else size_of_varint(len(content)) + len(content)


def _extremes(columns: Sequence[bytes]) -> TimeDeltas:
    """Return the least and the greatest of the numbers, none negative, in columns of varints.

    As integers their bytes sort as the numbers do: where all are of one length, the bits that say
    whether another byte follows are the same in all of them.
    """
    rows = bytearray(_ROW_BYTES * len(columns[0]))
    for place, column in enumerate(columns):
        rows[place::_ROW_BYTES] = column
    numbers = struct.unpack(f"<{len(columns[0])}Q", rows)
    return TimeDeltas(_number(min(numbers)), _number(max(numbers)))


def _number(row: int) -> int:
    groups = row.to_bytes(_ROW_BYTES, "little")
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(groups)) >> 1
