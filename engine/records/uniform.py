"""Proves records of one shape by columns; other records are proved one by one.

Records of a fixed size are common, and a run of them is a table: every field has the same position
in each row. The framing bytes are equal in all rows, the offset deltas are known, and the
timestamps are compared as columns; all of that is slicing and comparing bytes. If the framing bytes
of a row equal those of a valid row, the row is valid, whatever its content.

It may always give up without a proof: `check` has other ones.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from engine.errors import InvalidRecord
from engine.records.varint import decode_varint, size_of_varint
from engine.types import Buffer

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
