"""The proof for records of one shape: column by column, where the other proofs go record by record.

Records of fixed size are common, and many of them in a row are a table: every field is at the same
place of each. What frames them is the same in all rows, their offsets are known, and their times
are compared as a whole; all of that is slicing and comparing bytes. Fields whose bytes are equal to
those of a row that is right are right, whatever the content between them.

No verdict is always possible and never wrong: `check` has other proofs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from engine.errors import InvalidRecord
from engine.records.varint import decode_varint, size_of_varint
from engine.types import Buffer

MIN_RUN: Final = 64
"""Fewer records of one shape are not worth the columns."""

_ONE_BYTE_DELTAS: Final = 1 << 6
_TWO_BYTE_DELTAS: Final = 1 << 13
_LOW_COLUMN: Final = bytes(2 * delta & 0x7F | 0x80 for delta in range(_TWO_BYTE_DELTAS))
_HIGH_COLUMN: Final = bytes(2 * delta >> 7 for delta in range(_TWO_BYTE_DELTAS))
_ONLY_COLUMN: Final = bytes(2 * delta for delta in range(_ONE_BYTE_DELTAS))
"""The offset deltas 0, 1, 2, … as varints: the columns of two bytes, and that of one."""

_PLAIN_MAX: Final = 0x7F  # of attributes; what is greater reads as a longer number to some
_LAST: Final = bytes(range(0x80))  # of the bytes of a varint; 0 only if there is no other
_NOT_LAST: Final = bytes(range(0x80, 0x100))
_ROW_BYTES: Final = 8  # 55 bits of milliseconds are a million years
_WORDS: Final = ((1, "B"), (2, "H"), (4, "I"), (_ROW_BYTES, "Q"))


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
        frame = _frame_at(data, position, 1 if delta < _ONE_BYTE_DELTAS else 2)
    except InvalidRecord:
        return None
    if frame is None or delta >= limit or (requires_keys and frame.is_keyless):
        return None
    size = frame.size_bytes
    table = _Table(data, position, size, min(limit - delta, (len(data) - position) // size))
    enough = min(limit - delta, MIN_RUN)
    for at in frame.fixed:
        if table.keep_equal(at) < enough:  # most batches of other shapes end here
            return None
    times = frame.times
    for at in times:
        table.keep_within(at, _time_bytes(times, at))
    if table.count < enough or not _is_counting(table, times.stop, delta):
        return None
    deltas = _extremes([table.column(at) for at in times])
    return _Run(table.count, table.count * size, deltas)


def _is_counting(table: _Table, at: int, delta: int) -> bool:
    """Whether the offset deltas at this place of the rows count up from `delta`."""
    numbers = slice(delta, delta + table.count)
    if delta < _ONE_BYTE_DELTAS:
        return table.column(at) == _ONLY_COLUMN[numbers]
    is_low_right = table.column(at) == _LOW_COLUMN[numbers]
    return is_low_right and table.column(at + 1) == _HIGH_COLUMN[numbers]


def _time_bytes(times: range, at: int) -> bytes:
    """Return the bytes that may stand there in a time, none negative, that takes these places."""
    is_last = at == times[-1]
    allowed = _LAST[min(len(times) - 1, 1) :] if is_last else _NOT_LAST
    return allowed[::2] if at == times.start else allowed


class _Frame(NamedTuple):
    """What stands where in a record, counted from its first byte."""

    size_bytes: int
    fixed: list[int]
    """The places of what is the same in all records of this shape, whatever their content."""
    times: range
    is_keyless: bool


def _frame_at(data: bytes, position: int, offset_bytes: int) -> _Frame | None:
    """Return the frame of the record at `position`, whose offset delta takes so many bytes.

    None if it has headers, or a number that is longer than it need be. What stands at the places of
    time and offset is for the columns to judge. Raises InvalidRecord where the bytes end too soon.
    """
    length, start = decode_varint(data, position)
    row = data[position : start + length]
    time_at = start - position + 1  # behind the attributes
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
    """Return how many bytes from `at` on say that another one of their number follows."""
    head = row[at : at + _ROW_BYTES]
    return len(head) - len(head.lstrip(_NOT_LAST))


def _bytes_of_length(length: int) -> int:
    """Return how many bytes the length of a content takes; -1 is that of none."""
    return size_of_varint(length) if length >= -1 else 0


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

    def keep_equal(self, at: int) -> int:
        """Drop the rows from the first on that differs from row 0 there; return the count."""
        column = self.column(at)
        first = column[:1]
        if column != first * self.count:
            self.count -= len(column.lstrip(first))
        return self.count

    def keep_within(self, at: int, allowed: bytes) -> None:
        """Drop the rows from the first on whose byte is none of these."""
        column = self.column(at)
        if column.translate(None, allowed):
            self.count -= len(column.lstrip(allowed))


def _extremes(columns: Sequence[bytes]) -> TimeDeltas:
    """Return the least and the greatest of the numbers, none negative, in columns of varints.

    Read as little-endian words they sort as the numbers do: where all are of one length, the bits
    that say whether another byte follows are the same in all of them.
    """
    count = len(columns[0])
    if all(column == column[:1] * count for column in columns):
        only = _number([column[0] for column in columns])
        return TimeDeltas(only, only)
    word_bytes, code = next(word for word in _WORDS if word[0] >= len(columns))
    rows = bytearray(count * word_bytes)
    for at, column in enumerate(columns):
        rows[at::word_bytes] = column
    # Times ascend as a rule: then sorting is one pass, and quicker than looking for both ends.
    ordered = sorted(struct.unpack(f"<{count}{code}", rows))
    least, greatest = (word.to_bytes(word_bytes, "little") for word in (ordered[0], ordered[-1]))
    return TimeDeltas(_number(least), _number(greatest))


def _number(groups: Sequence[int]) -> int:
    number = 0
    for group in reversed(groups):
        number = number << 7 | group & 0x7F
    return number >> 1
